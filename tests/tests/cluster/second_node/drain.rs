//! A drain of the node with a sandbox of level `Memory`: its processes go on on the other one.

use serde_json::json;

use super::{Cordoned, FIRST, SECOND, drain};
use crate::beats;
use crate::test_namespace::TestNamespace;

#[tokio::test]
#[ignore = "needs a cluster with two nodes: make test-cluster"]
async fn processes_of_drained_node_go_on_on_the_other() {
    let ns = TestNamespace::new("drained-memory").await;
    let name = "counts";
    let cordoned = Cordoned::new(SECOND);
    // The supervisor saves within the grace period.
    let fields = json!({"podTemplate": {"spec": {"terminationGracePeriodSeconds": 30}}});
    let status = beats::start_with(&ns, name, &fields).await;
    assert_eq!(status.node_name.as_deref(), Some(FIRST));
    drop(cordoned);
    let selector = format!("--pod-selector=openhands.dev/sandbox={name}");
    let _drained = drain(&selector);
    let moved = ns.ready_again(name, 1).await;
    assert_eq!(moved.node_name.as_deref(), Some(SECOND));
    assert_eq!(moved.restarts.reasons, ["EvictionByEvictionAPI"]);
    beats::assert_goes_on(&ns, name, status.incarnation).await;
}
