//! Attempts to leave a sandbox. Each is made outside of one as well, where it must work: a control
//! that it would be seen.

mod files;
mod image_builds;
mod limits;
pub(crate) mod network;
mod saved_processes;
mod setting;

use std::collections::BTreeSet;
use std::fs;

use serde_json::json;

use self::setting::{Running, contexts, outside, setting};
use tests::escapes::attempts::{EVERYWHERE, ON_SOME_MACHINES};
use tests::escapes::program::{ABSENT, END, names, program};

/// Numbers of block devices, as `mknod` takes them.
fn disks() -> String {
    let entries = fs::read_dir("/sys/block").unwrap();
    let numbers = entries.filter_map(|entry| {
        let text = fs::read_to_string(entry.unwrap().path().join("dev")).ok()?;
        let (major, minor) = text.trim().split_once(':')?;
        let device = rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?);
        Some(device.to_string())
    });
    numbers.collect::<Vec<_>>().join(",")
}

/// Makes all attempts outside; the names of those that worked, and of those without the feature.
fn outside_attempts(secret: &str) -> (BTreeSet<String>, BTreeSet<String>) {
    const SCRIPT: &str = "mount --bind $3 $3; mount -o remount,ro,bind $3; \
        setsid sleep infinity & exec perl -e \"$0\" $1 $2 $3 $! $4 1";
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (own, cover) = (path("own"), path("cover"));
    fs::create_dir(&cover).unwrap();
    let output = outside(SCRIPT, &[&program(), &own, secret, &cover, &disks()]);
    let (absent, worked): (Vec<_>, Vec<_>) =
        output.lines().partition(|line| line.starts_with(ABSENT));
    assert_eq!(worked.last(), Some(&END), "{output}");
    let absent = absent
        .into_iter()
        .map(|line| line[ABSENT.len()..].to_owned());
    (
        worked.into_iter().map(str::to_owned).collect(),
        absent.collect(),
    )
}

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

    let (worked, absent) = outside_attempts(&secret);
    let without_control = |attempts| -> Vec<&str> {
        let mut names = names(attempts);
        names.retain(|name| !worked.contains(*name));
        names
    };
    assert_eq!(without_control(EVERYWHERE), Vec::<&str>::new());
    for name in without_control(ON_SOME_MACHINES) {
        assert!(absent.contains(name), "{name}");
        eprintln!("not checked, because this machine lacks it: {name}");
    }
}
