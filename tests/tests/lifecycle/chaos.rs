//! A day on which almost every third Pod meets with an accident, and what is left of it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crds::Sandbox;
use crds::sandbox::{DesiredState, Phase};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::api::DeleteParams;
use serde_json::json;
use tests::size::full_or;
use tests::test_cluster::{SeededRng, TestCluster};
use tokio::time::sleep;

const DAY: Duration = Duration::from_hours(24);
/// Interval of the owners' changes.
const WISHES: Duration = Duration::from_secs(100);

/// Desired state by name of the sandbox.
type Wishes = BTreeMap<String, DesiredState>;

async fn begin(cluster: &TestCluster, size: u64) -> Wishes {
    let spec = json!({"lifecycle": {"startTimeout": "10m", "deleteStoppedAfter": "999h"}});
    let mut wishes = Wishes::new();
    for number in 0..size {
        let name = format!("s{number}");
        cluster.create_with(&name, &spec).await;
        wishes.insert(name, DesiredState::Running);
    }
    wishes
}

/// One owner changes their mind; stopped sandboxes are deleted and made anew.
async fn wish(cluster: &TestCluster, rng: &mut SeededRng, wishes: &mut Wishes) {
    use DesiredState::{Paused, Running, Stopped};
    let name = format!("s{}", rng.below(wishes.len() as u64));
    let state = match (wishes[&name], rng.below(8)) {
        (Stopped, _) => {
            let params = DeleteParams::default();
            cluster.sandboxes().delete(&name, &params).await.unwrap();
            while cluster.sandboxes().get_opt(&name).await.unwrap().is_some() {
                sleep(Duration::from_millis(10)).await;
            }
            cluster.create(&name).await;
            Running
        }
        (_, 0) => Stopped,
        (_, 1..4) => Paused,
        _ => Running,
    };
    cluster.set_state(&name, state).await;
    wishes.insert(name, state);
}

/// Restarts failed sandboxes as their owner. Returns their number.
async fn retry_failed(cluster: &TestCluster) -> usize {
    let failed = cluster.index.list(|e| e.status.phase == Phase::Failed);
    for entry in &failed {
        cluster.bring(&entry.key.name, DesiredState::Paused).await;
        cluster
            .set_state(&entry.key.name, DesiredState::Running)
            .await;
    }
    failed.len()
}

fn is_as_wished(phase: Phase, wish: DesiredState) -> bool {
    match wish {
        DesiredState::Running => phase == Phase::Running,
        DesiredState::Paused => phase == Phase::Paused,
        DesiredState::Stopped => phase == Phase::Stopped,
    }
}

/// Nothing is missing, and nothing is left over.
async fn check(cluster: &TestCluster, wishes: &Wishes) {
    let wanted = |states: &[DesiredState], suffix: &str| -> BTreeSet<String> {
        let of = wishes.iter().filter(|(_, wish)| states.contains(wish));
        of.map(|(name, _)| format!("{name}{suffix}")).collect()
    };
    let pods: BTreeSet<_> = cluster.names::<Pod>().await.into_iter().collect();
    assert_eq!(pods, wanted(&[DesiredState::Running], ""));
    let claims = cluster.names::<PersistentVolumeClaim>().await;
    let keep = [DesiredState::Running, DesiredState::Paused];
    let claims: BTreeSet<_> = claims.into_iter().collect();
    assert_eq!(claims, wanted(&keep, "-workspace"));
    assert_eq!(cluster.names::<Sandbox>().await.len(), wishes.len());
    cluster.node.assert_single_pod();
}

async fn live_through(seed: u64, size: u64, lag: Duration) {
    let cluster = TestCluster::new();
    let mut rng = SeededRng::new(seed);
    cluster.faults().set_watch_lag(lag);
    cluster.node.enable_chaos(seed, 30);
    let mut wishes = begin(&cluster, size).await;
    let truth = tokio::spawn(cluster.assert_ready_is_true());
    let evening = tokio::time::Instant::now() + DAY;
    while tokio::time::Instant::now() < evening {
        sleep(WISHES).await;
        wish(&cluster, &mut rng, &mut wishes).await;
    }
    let accidents = cluster.node.disable_chaos();
    cluster.node.heal_all().await;
    sleep(Duration::from_hours(4)).await;
    let failed = retry_failed(&cluster).await;
    let made = cluster.node.created().len();
    println!("seed {seed}: {made} Pods, {accidents} accidents, {failed} given up at the end");
    // Three bad starts in a row are rare: giving up is not how a day is survived.
    let few = failed * 10 < usize::try_from(size).unwrap();
    assert!(few, "{failed} of {size} were given up");
    let reached = cluster.wait_for_all(Duration::from_mins(1), |e| {
        is_as_wished(e.status.phase, wishes[&e.key.name])
    });
    reached.await;
    cluster.wait_until_quiet().await;
    check(&cluster, &wishes).await;
    assert!(accidents * 100 > made * 25, "{accidents} of {made}");
    assert!(!truth.is_finished(), "false ready: {:?}", truth.await);
}

#[tokio::test(start_paused = true)]
async fn sandboxes_reach_desired_state_after_a_day_of_faults() {
    live_through(1, full_or(1000, 30), Duration::ZERO).await;
}

#[tokio::test(start_paused = true)]
async fn sandboxes_reach_desired_state_after_a_day_of_faults_and_lag() {
    live_through(2, full_or(120, 20), Duration::from_secs(2)).await;
}
