//! A thousand sandboxes at once, through everything that can be asked of them.

use std::time::Duration;

use crds::sandbox::{DesiredState, PauseReason, Phase};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use serde_json::json;
use tests::size::full_or;
use tests::test_cluster::TestCluster;

/// Number of sandboxes.
fn size() -> usize {
    full_or(1000, 80)
}
/// The longest a step may take for all of them, with [`LATENCY`] for every request.
const CONVERGENCE_TIMEOUT: Duration = Duration::from_secs(10);
const LATENCY: Duration = Duration::from_millis(5);

/// Does something for each of them, many at a time.
async fn each<F: Future<Output = ()>>(each: impl Fn(String) -> F) {
    let all = futures::stream::iter((0..size()).map(|n| format!("s{n}")));
    all.for_each_concurrent(64, each).await;
}

async fn reach(cluster: &TestCluster, phase: Phase) {
    let took = cluster
        .wait_for_all(CONVERGENCE_TIMEOUT, |e| e.status.phase == phase)
        .await;
    println!("{phase:?} after {took:?}");
}

async fn counts(cluster: &TestCluster) -> (usize, usize) {
    let pods = cluster.names::<Pod>().await.len();
    (pods, cluster.names::<PersistentVolumeClaim>().await.len())
}

/// That many sandboxes that run.
async fn fleet() -> TestCluster {
    let cluster = TestCluster::new();
    cluster.faults().set_latency(LATENCY);
    let spec = json!({"lifecycle": {"idleTimeout": "30m"}});
    each(async |name| drop(cluster.create_with(&name, &spec).await)).await;
    reach(&cluster, Phase::Running).await;
    assert_eq!(counts(&cluster).await, (size(), size()));
    cluster
}

/// Every Pod was needed, and every write.
fn check(cluster: &TestCluster, pods: usize) {
    assert_eq!(cluster.node.created().len(), pods);
    cluster.node.assert_single_pod();
    let idle = cluster.no_op_writes();
    assert!(idle.is_empty(), "{idle:?}");
}

#[tokio::test(start_paused = true)]
async fn thousand_sandboxes_start_pause_resume_and_stop() {
    let cluster = fleet().await;
    each(async |name| cluster.set_state(&name, DesiredState::Paused).await).await;
    reach(&cluster, Phase::Paused).await;
    assert_eq!(counts(&cluster).await, (0, size()));

    each(async |name| cluster.set_state(&name, DesiredState::Running).await).await;
    reach(&cluster, Phase::Running).await;
    each(async |name| cluster.set_state(&name, DesiredState::Stopped).await).await;
    reach(&cluster, Phase::Stopped).await;
    cluster.wait_until_quiet().await;
    assert_eq!(counts(&cluster).await, (0, 0));
    check(&cluster, 2 * size());
}

#[tokio::test(start_paused = true)]
async fn thousand_sandboxes_are_idle_paused_and_wake() {
    let cluster = fleet().await;
    let idle_since = Some(Duration::from_hours(1));
    cluster.supervisors.all_idle_for(idle_since);
    tokio::time::sleep(Duration::from_mins(30)).await;
    reach(&cluster, Phase::Paused).await;
    let idle = |e: &operator::index::Entry| e.status.pause_reason == Some(PauseReason::Idle);
    assert_eq!(cluster.index.list(idle).len(), size());
    assert_eq!(counts(&cluster).await, (0, size()));

    cluster.supervisors.all_idle_for(None);
    each(async |name| cluster.wake(&name).await).await;
    reach(&cluster, Phase::Running).await;
    check(&cluster, 2 * size());
}
