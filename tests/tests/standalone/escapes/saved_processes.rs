//! The same attempts in a sandbox whose processes are kept. No filter holds its system calls, so more of
//! the kernel is in reach; its namespaces and its lack of capabilities hold all the same.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;
use tests::binaries::criu_or_skip;
use tests::cli_tools::until;
use tests::escapes::attempts::{EVERYWHERE, ON_SOME_MACHINES};
use tests::escapes::other_volume::{OtherVolume, worked};
use tests::escapes::program::{END, names, program};

use super::disks;
use super::setting::{Running, Setting, setting};

/// Attempts that nothing but the filter denies (`docs/standalone-security.md`, kept processes).
const ALLOWED: &[&str] = &[
    // Keys that belong to the user namespace of sandboxes.
    "add a key",
    "find the keys of the user",
    "join a session of keys",
    "list all keys",
    // The kernel checks the time before the right to set it.
    "set the clock",
    "reach the hypervisor",
];

#[test]
fn sandbox_with_saved_processes_reaches_nothing_outside() {
    let Some(criu) = criu_or_skip() else { return };
    let flags = ["--memory-persistence", "--criu", criu.to_str().unwrap()];
    let Some(setting) = setting(&flags) else {
        return;
    };
    let (mut victim, secret) = (Running::idle(), setting.secret());
    let script = "perl -e \"$0\" /tmp/escape $1 /proc/sys $2 $3 1; \
        cat /proc/1/environ; readlink -v /proc/1/fd/0; ls /proc/1/root; kill -9 1; \
        echo and the supervisor lives; exec sleep infinity";
    let (id, disks) = (victim.0.id().to_string(), disks());
    let program = program();
    start(
        &setting,
        "kept",
        &["sh", "-c", script, &program, &secret, &id, &disks],
    );
    let log = log_with(&setting, "kept", "and the supervisor lives");
    assert!(log.contains(&format!("{END}\n")), "{log}");
    for denied in ["/proc/1/environ", "/proc/1/fd/0", "/proc/1/root"] {
        let is_denied = log
            .lines()
            .any(|line| line.contains(denied) && line.contains("denied"));
        assert!(is_denied, "{denied}: {log}");
    }
    let attempts = [names(EVERYWHERE), names(ON_SOME_MACHINES)].concat();
    let mut worked: Vec<_> = log.lines().filter(|line| attempts.contains(line)).collect();
    worked.retain(|name| !ALLOWED.contains(name));
    assert_eq!(worked, Vec::<&str>::new());
    assert!(victim.is_alive());
    // Nothing that was tried keeps the processes from being saved.
    pause(&setting, "kept");
}

/// Starts a sandbox of level `Memory`, and waits until it is ready.
fn start(setting: &Setting, name: &str, command: &[&str]) {
    let sandbox = json!({
        "apiVersion": "openhands.dev/v1alpha1", "kind": "Sandbox", "metadata": {"name": name},
        "spec": {
            "image": "host", "command": command,
            "workspace": {"size": "1Gi"}, "persistence": "Memory",
        },
    });
    let fixture = &setting.fixture;
    let path = fixture.state.path().join(format!("{name}.json"));
    fs::write(&path, sandbox.to_string()).unwrap();
    fixture.kubectl(&format!("apply -f {}", path.display()));
    fixture.kubectl(&format!(
        "wait --for=condition=Ready sbx/{name} --timeout=60s"
    ));
}

/// Waits for a text in the log of a sandbox; the log.
fn log_with(setting: &Setting, name: &str, text: &str) -> String {
    let mut log = String::new();
    until(text, || {
        log = setting.fixture.kubectl(&format!("logs {name}"));
        log.contains(text)
    });
    log
}

/// Pauses a sandbox, whose processes are kept.
fn pause(setting: &Setting, name: &str) {
    let fixture = &setting.fixture;
    let patch = "--type merge -p {\"spec\":{\"state\":\"Paused\"}}";
    fixture.kubectl(&format!("patch sbx {name} {patch}"));
    for wanted in ["phase}=Paused", "persisted.level}=Memory"] {
        let wait = format!("wait --for=jsonpath={{.status.{wanted} sbx/{name} --timeout=60s");
        fixture.kubectl(&wait);
    }
}

/// Directory below this one whose workspace has the file `secret`.
fn with_secret(directory: &Path) -> Option<PathBuf> {
    if directory.join("workspace/secret").is_file() {
        return Some(directory.to_owned());
    }
    let entries = fs::read_dir(directory).ok()?.flatten();
    let directories = entries.filter(|entry| entry.file_type().is_ok_and(|it| it.is_dir()));
    directories
        .map(|entry| entry.path())
        .find_map(|path| with_secret(&path))
}

#[test]
fn sandbox_with_saved_processes_does_not_reach_the_volume_of_another() {
    let Some(criu) = criu_or_skip() else { return };
    let flags = ["--memory-persistence", "--criu", criu.to_str().unwrap()];
    let Some(setting) = setting(&flags) else {
        return;
    };
    let script = "echo secret >/workspace/secret; echo written; exec sleep infinity";
    start(&setting, "other", &["sh", "-c", script]);
    log_with(&setting, "other", "written");
    pause(&setting, "other");
    let volumes = setting.fixture.state.path().join("node/volumes");
    let other = OtherVolume::new(with_secret(&volumes).unwrap());
    other.assert_outside_works();
    let words = other.words(Path::new("/workspace"));
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    let attempts = [&["perl", "-e"], &words[..]].concat();
    let script = "\"$@\"; exec sleep infinity";
    start(
        &setting,
        "kept",
        &[&["sh", "-c", script, "sh"], &attempts[..]].concat(),
    );
    let log = log_with(&setting, "kept", END);
    assert_eq!(worked(&log), Vec::<&str>::new());
    let exec = ["exec", "kept", "-c", "sandbox", "--"];
    let standalone = &setting.fixture.standalone;
    let said = standalone.run("kubectl", &[&exec[..], &attempts].concat());
    assert_eq!(worked(&said), Vec::<&str>::new());
    pause(&setting, "kept");
}
