//! A tool that applies the same manifests again and again, and the operator: neither undoes the other's work.

use std::collections::BTreeSet;

use crds::Sandbox;
use crds::sandbox::Phase;
use kube::ResourceExt as _;
use serde_json::{Value, json};

use crate::installation::IMAGE;
use crate::test_namespace::TestNamespace;
use tests::cli_tools::try_kubectl;

fn manifest(ns: &TestNamespace) -> Value {
    json!({
        "apiVersion": "openhands.dev/v1alpha1", "kind": "Sandbox",
        "metadata": {"name": "g", "namespace": ns.namespace, "labels": {"team": "a"}},
        "spec": {
            "image": IMAGE, "workspace": {"size": "10Mi"},
            // It can be asked since when nothing has happened.
            "command": ["python", "-m", "openhands.runtime.action_execution_server", "60000",
                "--working-dir", "/workspace"],
            "securityContext": {"runAsUser": 1000},
            "lifecycle": {"idleTimeout": "2s"},
        },
    })
}

/// Applies it, or shows the difference, as a tool does that manages it.
fn sync(ns: &TestNamespace, verb: &str) {
    let args = [verb, "--server-side", "--field-manager=gitops", "-f", "-"];
    try_kubectl(&args, &manifest(ns).to_string()).unwrap();
}

/// Returns the field managers of the spec.
fn owners_of_spec(sandbox: &Sandbox) -> BTreeSet<String> {
    let all = sandbox.managed_fields().iter();
    let of_spec = all.filter(|f| {
        f.fields_v1
            .as_ref()
            .is_some_and(|f| !f.0["f:spec"].is_null())
    });
    of_spec.filter_map(|f| f.manager.clone()).collect()
}

#[tokio::test]
#[ignore = "needs a real cluster: make test-cluster"]
async fn operator_and_gitops_tool_keep_each_others_fields() {
    let ns = TestNamespace::new("gitops").await;
    sync(&ns, "apply");
    ns.ready("g").await;
    let first = ns.get::<Sandbox>("g").await;
    let settled = |sandbox: &Sandbox| {
        assert_eq!(sandbox.metadata.generation, Some(1));
        assert_eq!(sandbox.spec, first.spec);
        assert_eq!(owners_of_spec(sandbox), BTreeSet::from(["gitops".into()]));
    };
    settled(&first);

    let idle = ns
        .until("g", "paused as idle", |s| s.phase == Phase::Paused)
        .await;
    assert_eq!(idle.pause_reason, Some(crds::sandbox::PauseReason::Idle));
    let paused = ns.get::<Sandbox>("g").await;
    settled(&paused);

    // The next rounds of the tool change nothing and wake no sandbox.
    for _ in 0..2 {
        sync(&ns, "apply");
    }
    let again = ns.get::<Sandbox>("g").await;
    assert_eq!(again.resource_version(), paused.resource_version());
    sync(&ns, "diff");

    // A resume is an annotation, which the tool does not own.
    ns.kubectl("annotate sbx g openhands.dev/wake-at=2100-01-01T00:00:00Z");
    ns.ready("g").await;
    let resumed = ns.get::<Sandbox>("g").await;
    settled(&resumed);
    sync(&ns, "apply");
    let after = ns.get::<Sandbox>("g").await;
    assert_eq!(after.annotations().len(), 1, "{:?}", after.annotations());
    settled(&after);
}
