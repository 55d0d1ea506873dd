//! Start and stop cycles: the bytes in the API server and in a gateway stay bounded, although every
//! tombstone lives for a day.

use std::time::Duration;

use kube::api::ListParams;
use serde_json::json;
use tests::size::full_or;
use tests::test_cluster::{TestCluster, start_body};
use tokio::time::sleep;

/// More than the number of tombstones that a tenant may have.
const CYCLES: usize = 240;
/// Number of cycles in `make test-long`.
const FULL_CYCLES: usize = 5000;
/// Tombstones of a tenant, and those whose deletion is in progress.
const MAX_OBJECTS: usize = 200 + 20;
/// A tombstone with its status and conditions.
const MAX_OBJECT_BYTES: usize = 4096;

#[tokio::test(start_paused = true)]
async fn start_stop_cycles_leave_bounded_objects() {
    let cycles = full_or(FULL_CYCLES, CYCLES);
    let world = TestCluster::new();
    let gateway = world.gateway().await;
    for n in 0..cycles {
        let mut body = start_body(&format!("s{}", n % 7));
        body["environment"] = json!({"LARGE": "x".repeat(20_000)});
        let started = gateway.start(&body).await;
        let id = json!({"runtime_id": started["runtime_id"]});
        assert_eq!(gateway.post("/stop", &id).await.status, 200);
        if n % 50 == 49 {
            sleep(Duration::from_mins(1)).await;
        }
    }
    sleep(Duration::from_mins(1)).await;
    let stored = world.sandboxes().list(&ListParams::default()).await;
    let stored = stored.unwrap().items;
    let bytes = serde_json::to_vec(&stored).unwrap().len();
    let count = stored.len();
    assert!((200..=MAX_OBJECTS).contains(&count), "{count} objects");
    assert!(bytes <= MAX_OBJECTS * MAX_OBJECT_BYTES, "{bytes} bytes");
}
