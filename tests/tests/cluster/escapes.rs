//! Attempts to leave a Pod whose processes are kept. No filter holds its system calls, and its
//! supervisor has capabilities. The same attempts work outside of sandboxes
//! (`standalone::escapes::no_attempt_works_in_a_sandbox_although_it_works_outside`).

use crds::contract::persistence::PersistenceLevel;
use serde_json::json;
use tests::clients::POLL;
use tests::escapes::attempts::{EVERYWHERE, ON_SOME_MACHINES};
use tests::escapes::program::{END, names, program};

use crate::installation::IMAGE;
use crate::test_namespace::TestNamespace;

/// Attempts that nothing but a filter denies (`docs/persistence.md`, what such a Pod may do).
const ALLOWED: &[&str] = &[];

#[tokio::test]
#[ignore = "needs a real cluster: make test-cluster"]
async fn pod_with_saved_processes_reaches_nothing_outside() {
    let ns = TestNamespace::of_gateway().await;
    let name = "escapes";
    // A file and a process of the machine, which the node runs on.
    let secret = tempfile::NamedTempFile::new().unwrap();
    let own = std::process::id().to_string();
    let script = "perl -e \"$0\" /tmp/escape $1 /proc/sys $2 '' 1; \
        cat /proc/1/environ; readlink -v /proc/1/fd/0; ls /proc/1/root; kill -9 1; \
        echo and the supervisor lives; exec sleep infinity";
    ns.apply(
        name,
        &json!({
            "image": IMAGE, "workspace": {"size": "1Gi"}, "persistence": "Memory",
            "command": ["sh", "-c", script, program(), secret.path(), own],
        }),
    );
    ns.ready(name).await;
    let log = loop {
        let log = ns.kubectl(&format!("logs {name}"));
        if log.contains("and the supervisor lives") {
            break log;
        }
        tokio::time::sleep(POLL).await;
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
    // Nothing that was tried keeps the processes from being saved.
    ns.patch(name, json!({"state": "Paused"})).await;
    let status = ns.paused(name).await;
    let kept = status.persisted.unwrap();
    assert_eq!(kept.level, PersistenceLevel::Memory, "{kept:?}");
    ns.delete::<crds::Sandbox>(name).await;
}
