//! Sandboxes that nobody uses are paused, and come back with the first request.

use std::time::Duration;

use crds::Sandbox;
use crds::sandbox::{DesiredState, PauseReason, Phase};
use http::StatusCode;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use tests::world::World;

/// A running sandbox with an idle timeout of ten minutes, whose server says that it has been idle
/// for ever.
async fn lazy(world: &World) -> (String, String) {
    world.create("a").await;
    let patch = json!({"spec": {"lifecycle": {"idleTimeout": "10m"}}});
    let (sandboxes, params) = (world.sandboxes(), PatchParams::default());
    let patched = sandboxes.patch("a", &params, &Patch::Merge(patch)).await;
    patched.unwrap();
    let entry = world.phase("a", Phase::Running).await;
    let ip = entry.status.pod_ip.clone().unwrap();
    world.supervisors.idle_for(&ip, Duration::from_hours(9));
    (entry.runtime_id.clone(), ip)
}

async fn sandbox(world: &World) -> Sandbox {
    world.sandboxes().get("a").await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn an_idle_sandbox_is_paused_at_its_deadline_without_a_change_of_its_spec() {
    let world = World::new();
    lazy(&world).await;
    let before = sandbox(&world).await;
    tokio::time::sleep(Duration::from_secs(595)).await;
    assert_eq!(sandbox(&world).await.status.unwrap().phase, Phase::Running);
    tokio::time::sleep(Duration::from_secs(10)).await;
    let paused = world.phase("a", Phase::Paused).await;
    assert_eq!(paused.status.pause_reason, Some(PauseReason::Idle));
    let after = sandbox(&world).await;
    assert_eq!(after.metadata.generation, before.metadata.generation);
    assert_eq!(after.spec.state, DesiredState::Running);
}

#[tokio::test(start_paused = true)]
async fn what_is_busy_is_never_paused() {
    let world = World::new();
    let (_, ip) = lazy(&world).await;
    world.supervisors.idle_for(&ip, Duration::ZERO);
    tokio::time::sleep(Duration::from_hours(12)).await;
    assert_eq!(sandbox(&world).await.status.unwrap().phase, Phase::Running);
}

#[tokio::test(start_paused = true)]
async fn a_thousand_requests_wake_it_with_one_write() {
    let world = World::new();
    let (id, _) = lazy(&world).await;
    let gateway = world.gateway().await;
    world.phase("a", Phase::Paused).await;
    let before = wishes(&world);
    let requests = (0..1000).map(|_| {
        let (gateway, id) = (gateway.clone(), id.clone());
        tokio::spawn(async move {
            gateway
                .get(&format!("/{id}/runtime/execute_action"))
                .await
                .status
        })
    });
    for request in requests.collect::<Vec<_>>() {
        // The scripted address belongs to nobody, so what was let through cannot be answered.
        assert_eq!(request.await.unwrap(), StatusCode::BAD_GATEWAY);
    }
    assert_eq!(sandbox(&world).await.status.unwrap().phase, Phase::Running);
    assert_eq!(wishes(&world) - before, 1);
}

/// Writes of gateways so far.
fn wishes(world: &World) -> usize {
    let writes = world.api.faults().writes();
    let ours = writes
        .iter()
        .filter(|w| w.request.manager == "sandbox-gateway");
    ours.count()
}
