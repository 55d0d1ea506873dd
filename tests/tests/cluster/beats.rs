//! A sandbox of level `Memory` whose command counts, and writes each number to the workspace with a token
//! that it has in memory only. The file tells of every process that ever ran, and in which order.

use std::time::Duration;

use crds::contract::persistence::PersistenceLevel;
use crds::sandbox::SandboxStatus;
use serde_json::json;

use crate::test_namespace::TestNamespace;

const MAX_POLLS: u32 = 300;
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Memory of the process, so that a save and a restore take a while.
const MIB: u32 = 128;

/// Each line is one write.
const BEATS: &str = r#"
import os, sys, time
data = os.urandom(int(sys.argv[1]) << 20)
token, number = os.urandom(8).hex(), 0
while True:
    number += 1
    with open("/workspace/beats", "a") as beats:
        beats.write(f"{token} {number}\n")
    time.sleep(0.05)
"#;

/// Processes that have run so far: the token of each, and its last number.
pub(crate) type Runs = Vec<(String, u64)>;

/// Applies the sandbox, waits until it is ready, and writes files in its workspace and outside of it.
pub(crate) async fn start(ns: &TestNamespace, name: &str) -> SandboxStatus {
    let spec = json!({
        "command": ["python3", "-c", BEATS, MIB.to_string()],
        "workspace": {"size": "1Gi"}, "persistence": "Memory",
        "resources": {"limits": {"memory": "512Mi"}},
        "podTemplate": {"spec": {"terminationGracePeriodSeconds": 1}},
    });
    ns.apply(name, &spec);
    let status = ns.ready(name).await;
    ns.reported(name).await;
    ns.exec(name, "echo kept >/workspace/kept; echo kept >/etc/kept");
    wait_for_beat(ns, name).await;
    status
}

/// Waits until the process has counted on, and returns all that have run. No number is there twice, and
/// none is left out: no state has run twice, and no two processes at a time.
pub(crate) async fn wait_for_beat(ns: &TestNamespace, name: &str) -> Runs {
    let before = runs(ns, name);
    for _ in 0..MAX_POLLS {
        let now = runs(ns, name);
        if now != before {
            return now;
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    panic!("{name} does not count: {before:?}");
}

fn runs(ns: &TestNamespace, name: &str) -> Runs {
    let content = ns.exec(name, "cat /workspace/beats 2>/dev/null || true");
    runs_of(&content)
}

pub(crate) fn runs_of(content: &str) -> Runs {
    let mut runs = Runs::new();
    for (at, line) in content.lines().enumerate() {
        let (token, number) = line.split_once(' ').expect(line);
        let number: u64 = number.parse().expect(line);
        match runs.last_mut() {
            Some((last, before)) if last == token => {
                assert_eq!(number, *before + 1, "line {at}: {line}");
                *before = number;
            }
            _ => {
                assert_eq!(
                    number, 1,
                    "line {at}: a process goes on beside another: {line}"
                );
                runs.push((token.to_owned(), number));
            }
        }
    }
    runs
}

/// Pauses the sandbox, and waits until its Pod is gone.
pub(crate) async fn pause(ns: &TestNamespace, name: &str) -> SandboxStatus {
    ns.patch(name, json!({"state": "Paused"})).await;
    ns.paused(name).await
}

/// Waits until the sandbox is ready after a resume. Its process went on, and its files are there.
pub(crate) async fn assert_goes_on(ns: &TestNamespace, name: &str, incarnation: u32) {
    let status = ns.ready(name).await;
    let restored = status.restored.expect("a report");
    assert_eq!(restored.level, PersistenceLevel::Memory, "{restored:?}");
    assert_eq!(restored.reason, None);
    assert_eq!(status.incarnation, incarnation);
    ns.reported(name).await;
    let runs = wait_for_beat(ns, name).await;
    assert_eq!(runs.len(), 1, "{runs:?}");
    assert_files(ns, name);
}

/// Files of the workspace and outside of it are there.
pub(crate) fn assert_files(ns: &TestNamespace, name: &str) {
    let files = ns.exec(name, "cat /workspace/kept /etc/kept");
    assert_eq!(files, "kept\nkept", "{name}");
}
