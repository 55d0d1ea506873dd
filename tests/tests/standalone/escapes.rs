//! Attempts to leave a sandbox. Each is made outside of one as well, where it must work: a control
//! that it would be seen.

mod files;
mod image_builds;
mod limits;
pub(crate) mod network;
mod saved_processes;
mod setting;

use serde_json::json;

use self::setting::{Running, contexts, setting};
use tests::escapes::outside::{assert_attempts_work, disks};
use tests::escapes::program::{ABSENT, END, program};

/// Lines of a program's output that name an attempt that has worked.
fn worked_in<'a>(place: &'a str, output: &'a str) -> impl Iterator<Item = String> + 'a {
    assert!(output.ends_with(&format!("{END}\n")), "{place}: {output}");
    let lines = output.lines();
    let worked = lines.filter(|line| *line != END && !line.starts_with(ABSENT));
    worked.map(move |line| format!("{place}: {line}"))
}

#[test]
fn no_attempt_works_in_a_sandbox_although_it_works_outside() {
    let Some(setting) = setting(&[]) else { return };
    let (mut victim, secret) = (Running::idle(), setting.secret());
    let id = victim.0.id().to_string();
    let (program, disks) = (program(), disks());
    let command = [
        "perl",
        "-e",
        &program,
        "/tmp/escape",
        &secret,
        "/proc/sys",
        &id,
        &disks,
    ];
    let mut worked = Vec::new();
    for (image_name, image) in [("host", "host"), ("pulled", &*setting.image)] {
        for (context_name, context) in contexts() {
            let container = json!({"command": command, "securityContext": context});
            let pod = format!("{image_name}-{context_name}");
            worked.extend(worked_in(&pod, &setting.once(&pod, image, &container)));
        }
    }
    setting.run("joined", "host", &json!({"command": ["sleep", "infinity"]}));
    let arguments = [&["exec", "joined", "--"], &command[..]].concat();
    let joined = setting.fixture.standalone.run("kubectl", &arguments);
    worked.extend(worked_in("joined", &joined));
    assert_eq!(worked, Vec::<String>::new());
    assert!(victim.is_alive());
    assert_attempts_work(&secret);
}
