//! Memory limits, where this machine lets us make memory groups.

use serde_json::json;

use crate::harness::{Machine, container, ended};

#[tokio::test(flavor = "multi_thread")]
async fn too_much_memory_is_reported_as_such() {
    let machine = Machine::new();
    let node = machine.node();
    let main = json!({
        "name": "main", "image": "any", "command": ["perl", "-e", "my $x = 'x' x (256 << 20); print 'alive'"],
        "resources": {"limits": {"memory": "64Mi"}},
    });
    machine
        .create(
            "pod",
            json!({"restartPolicy": "Never", "containers": [main]}),
        )
        .await;
    let pod = machine.wait("pod", ended).await;
    let end = container(&pod).state.unwrap().terminated.unwrap();
    if machine.path("memory-group").exists() {
        assert_eq!(
            (end.reason.as_deref(), end.exit_code),
            (Some("OOMKilled"), 137)
        );
    } else {
        assert_eq!(machine.log("pod", "main"), "alive");
    }
    node.stop().await;
    assert!(!machine.path("memory-group").exists());
}
