//! The same attempts in a sandbox whose processes are kept. No filter holds its system calls, so more of
//! the kernel is in reach; its namespaces and its lack of capabilities hold all the same.

use std::fs;

use serde_json::json;
use tests::binaries::criu_or_skip;
use tests::clients::POLL;

use super::disks;
use super::setting::{Running, setting};
use tests::escapes::attempts::{EVERYWHERE, ON_SOME_MACHINES};
use tests::escapes::program::{END, names, program};

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
    let sandbox = json!({
        "apiVersion": "openhands.dev/v1alpha1", "kind": "Sandbox", "metadata": {"name": "kept"},
        "spec": {
            "image": "host", "command": ["sh", "-c", script, program(), secret, id, disks],
            "workspace": {"size": "1Gi"}, "persistence": "Memory",
        },
    });
    let fixture = &setting.fixture;
    let path = fixture.state.path().join("kept.json");
    fs::write(&path, sandbox.to_string()).unwrap();
    fixture.kubectl(&format!("apply -f {}", path.display()));
    fixture.kubectl("wait --for=condition=Ready sbx/kept --timeout=60s");
    let log = loop {
        let log = fixture.kubectl("logs kept");
        if log.contains("and the supervisor lives") {
            break log;
        }
        std::thread::sleep(POLL);
    };
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
    fixture.kubectl("patch sbx kept --type merge -p {\"spec\":{\"state\":\"Paused\"}}");
    fixture.kubectl("wait --for=jsonpath={.status.persisted.level}=Memory sbx/kept --timeout=60s");
}
