//! A sandbox of level `Memory` whose command counts.

use std::time::Duration;

use crds::contract::persistence::PersistenceLevel;
use crds::sandbox::SandboxStatus;
use serde_json::{Value, json};
use tests::persistence_session::beats::{BEATS, Runs, runs_of};

use crate::test_namespace::TestNamespace;

const MAX_POLLS: u32 = 300;
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Memory of the process, so that a save and a restore take a while.
const MIB: u32 = 128;

/// Applies the sandbox, waits until it is ready, and writes files in its workspace and outside of it.
pub(crate) async fn start(ns: &TestNamespace, name: &str) -> SandboxStatus {
    start_with(ns, name, &json!({})).await
}

/// As [`start`], with these fields of the spec.
pub(crate) async fn start_with(ns: &TestNamespace, name: &str, fields: &Value) -> SandboxStatus {
    let mut spec = json!({
        "command": ["python3", "-c", BEATS, MIB.to_string()],
        "workspace": {"size": "1Gi"}, "persistence": "Memory",
        "resources": {"limits": {"memory": "512Mi"}},
        "podTemplate": {"spec": {"terminationGracePeriodSeconds": 1}},
    });
    let fields = fields.as_object().unwrap().clone();
    spec.as_object_mut().unwrap().extend(fields);
    ns.apply(name, &spec);
    let status = ns.ready(name).await;
    ns.reported(name).await;
    ns.exec(name, "echo kept >/workspace/kept; echo kept >/etc/kept");
    wait_for_beat(ns, name).await;
    status
}

/// Waits until the process has counted on, and returns all that have run.
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
