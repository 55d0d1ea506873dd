//! Attempts to leave a Pod whose processes are kept. No filter holds its system calls, and its
//! supervisor has capabilities. A sandbox of level `Workspace` on the same node shows what these
//! Pods add; outside of sandboxes all of the attempts work.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crds::contract::persistence::PersistenceLevel;
use serde_json::json;
use tests::cli_tools::{cluster_directory, kubectl};
use tests::clients::POLL;
use tests::escapes::attempts::{EVERYWHERE, ON_SOME_MACHINES};
use tests::escapes::other_volume::{OtherVolume, worked};
use tests::escapes::outside::{assert_attempts_work, disks};
use tests::escapes::program::{END, names, program};

use crate::beats;
use crate::installation::IMAGE;
use crate::node_control::{supervisor, volume};
use crate::test_namespace::TestNamespace;

/// Attempts that work because there is no filter (`docs/persistence.md`, privileges).
const ADDED: &[&str] = &[
    "add a key",
    "clone into a user namespace",
    "find the keys of the user",
    "join a session of keys",
    "list all keys",
    "reach the hypervisor",
    "set the clock",
    "unshare users and mounts",
    "use io_uring",
];

/// Tries of a look at the log.
const MAX_POLLS: u32 = 600;

/// Names of the attempts on the file, the process and the disks of the machine. None may work.
fn attempts_on_the_machine() -> impl Iterator<Item = &'static str> {
    let all = EVERYWHERE.iter().chain(ON_SOME_MACHINES);
    let is_of_machine = |attempt: &str| {
        let of_machine = ["$secret", "$victim", "@disks"];
        of_machine.iter().any(|target| attempt.contains(target))
    };
    all.filter(move |(_, attempt)| is_of_machine(attempt))
        .map(|(name, _)| *name)
}

/// Makes all attempts in a sandbox of this level, and more on its first process. Returns those that
/// have worked. `secret` is a file of the machine.
async fn attempts(
    ns: &TestNamespace,
    name: &str,
    level: PersistenceLevel,
    secret: &str,
) -> BTreeSet<String> {
    // A process of the machine, which the node runs on.
    let own = std::process::id().to_string();
    let script = "perl -e \"$0\" /tmp/escape \"$1\" /proc/sys $2 \"$3\" 1; \
        cat /proc/1/environ; readlink -v /proc/1/fd/0; ls /proc/1/root; kill -9 1; \
        echo and the supervisor lives; exec sleep infinity";
    ns.apply(
        name,
        &json!({
            "image": IMAGE, "workspace": {"size": "1Gi"}, "persistence": level,
            "command": ["sh", "-c", script, program(), secret, own, disks()],
        }),
    );
    ns.ready(name).await;
    let mut log = String::new();
    for _ in 0..MAX_POLLS {
        log = ns.kubectl(&format!("logs {name}"));
        if log.contains("and the supervisor lives") {
            break;
        }
        tokio::time::sleep(POLL).await;
    }
    assert!(log.contains(&format!("{END}\n")), "{log}");
    if level == PersistenceLevel::Memory {
        for denied in ["/proc/1/environ", "/proc/1/fd/0", "/proc/1/root"] {
            let is_denied = |line: &str| line.contains(denied) && line.contains("denied");
            assert!(log.lines().any(is_denied), "{denied}: {log}");
        }
        // The same, as root outside.
        let first = supervisor(&ns.get(name).await).expect("the Pod has a supervisor");
        assert_ne!(fs::read(first.join("environ")).unwrap(), b"");
        fs::read_link(first.join("fd/0")).unwrap();
        fs::read_dir(first.join("root")).unwrap();
    }
    let all = [names(EVERYWHERE), names(ON_SOME_MACHINES)].concat();
    let worked = log.lines().filter(|line| all.contains(line));
    let worked: BTreeSet<_> = worked.map(str::to_owned).collect();
    let reached = attempts_on_the_machine().filter(|name| worked.contains(*name));
    assert_eq!(reached.collect::<Vec<_>>(), Vec::<&str>::new(), "{level:?}");
    worked
}

#[tokio::test]
#[ignore = "needs a real cluster: make test-cluster"]
async fn pod_with_saved_processes_reaches_nothing_outside() {
    let ns = TestNamespace::of_gateway().await;
    // Its path is the same on the node.
    let secret = tempfile::NamedTempFile::new_in(cluster_directory()).unwrap();
    fs::write(secret.path(), "secret").unwrap();
    let secret = secret.path().to_str().unwrap();
    let plain = attempts(&ns, "plain", PersistenceLevel::Workspace, secret).await;
    let kept = attempts(&ns, "kept", PersistenceLevel::Memory, secret).await;
    assert_attempts_work(secret);
    let added = kept
        .difference(&plain)
        .filter(|name| !ADDED.contains(&&***name));
    assert_eq!(
        added.collect::<Vec<_>>(),
        Vec::<&String>::new(),
        "{plain:?}"
    );
    // Nothing that was tried keeps the processes from being saved.
    ns.patch("kept", json!({"state": "Paused"})).await;
    let status = ns.paused("kept").await;
    let persisted = status.persisted.unwrap();
    assert_eq!(persisted.level, PersistenceLevel::Memory, "{persisted:?}");
    for name in ["plain", "kept"] {
        ns.delete::<crds::Sandbox>(name).await;
    }
}

/// Attempts on the volume of another sandbox, made by the command and, with the privileges of the
/// supervisor, by a program of `kubectl exec`.
#[tokio::test]
#[ignore = "needs a real cluster: make test-cluster"]
async fn pod_with_saved_processes_does_not_reach_the_volume_of_another() {
    let ns = TestNamespace::new("other-volume").await;
    let incarnation = beats::start(&ns, "other").await.incarnation;
    ns.exec("other", "echo secret >/workspace/secret");
    let persisted = beats::pause(&ns, "other").await.persisted.unwrap();
    assert_eq!(persisted.level, PersistenceLevel::Memory, "{persisted:?}");
    let other = OtherVolume::new(volume(&ns, "other").await);
    other.assert_outside_works();
    let words = other.words(Path::new("/workspace"));
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    let attempts = [&["perl", "-e"], &words[..]].concat();
    for level in [PersistenceLevel::Workspace, PersistenceLevel::Memory] {
        let name = level.as_str().to_lowercase();
        let script = "\"$@\"; exec sleep infinity";
        let command = [&["sh", "-c", script, "sh"], &attempts[..]].concat();
        let spec = json!({"workspace": {"size": "1Gi"}, "persistence": level, "command": command});
        ns.apply(&name, &spec);
        ns.ready(&name).await;
        ns.reported(&name).await;
        let mut log = String::new();
        for _ in 0..MAX_POLLS {
            log = ns.kubectl(&format!("logs {name}"));
            if log.contains(END) {
                break;
            }
            tokio::time::sleep(POLL).await;
        }
        assert_eq!(worked(&log), Vec::<&str>::new(), "{level:?}");
        let exec = ["exec", "-n", &ns.namespace, &name, "-c", "sandbox", "--"];
        let said = kubectl(&[&exec[..], &attempts].concat());
        assert_eq!(worked(&said), Vec::<&str>::new(), "{level:?}");
    }
    // The Pod is one of level `Memory`, and the other sandbox has all that it had.
    let persisted = beats::pause(&ns, "memory").await.persisted.unwrap();
    assert_eq!(persisted.level, PersistenceLevel::Memory, "{persisted:?}");
    ns.patch("other", json!({"state": "Running"})).await;
    beats::assert_goes_on(&ns, "other", incarnation).await;
}
