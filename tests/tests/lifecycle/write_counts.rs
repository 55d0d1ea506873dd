//! Number of writes to the API server (`docs/architecture.md`, invariant 4).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crds::names;
use crds::sandbox::{DesiredState, Phase};
use kube::api::{Patch, PatchParams};
use serde_json::json;
use tests::fault_injection::{Failure, Verb};
use tests::size::full_or;
use tests::test_cluster::{PodScript, TestCluster};
use tokio::time::sleep;

/// Write requests of the controller since the last call, in order, failed ones included. Events
/// are counted by a test of their own.
fn taken(cluster: &TestCluster) -> Vec<String> {
    let writes = cluster.controller_writes();
    cluster.faults().clear_writes();
    let writes = writes.iter().filter(|w| w.request.resource != "events");
    let texts = writes.map(|write| {
        let request = &write.request;
        let (verb, resource) = (request.verb, &request.resource);
        let sub = request.subresource.as_ref().map(|sub| format!("/{sub}"));
        format!("{verb:?} {resource}{}", sub.unwrap_or_default())
    });
    texts.collect()
}

const CLAIM: &str = "Create persistentvolumeclaims";
const POD: &str = "Create pods";
const STATUS: &str = "Patch sandboxes/status";
const END: &str = "Delete pods";

#[tokio::test(start_paused = true)]
async fn lifecycle_steps_take_expected_writes() {
    let cluster = TestCluster::new();
    let spec = json!({"lifecycle": {"idleTimeout": "10m"}});
    cluster.running_with("a", &spec).await;
    cluster.wait_until_quiet().await;
    assert_eq!(taken(&cluster), [CLAIM, POD, STATUS], "cold start");

    cluster.bring("a", DesiredState::Paused).await;
    assert_eq!(taken(&cluster), [END, STATUS, STATUS], "pause");
    cluster.bring("a", DesiredState::Running).await;
    assert_eq!(taken(&cluster), [CLAIM, POD, STATUS, STATUS], "resume");

    let idle = Some(Duration::from_hours(1));
    cluster.supervisors.all_idle_for(idle);
    cluster.wait_for_phase("a", Phase::Paused).await;
    assert_eq!(taken(&cluster), [STATUS, END, STATUS], "idle pause");
    cluster.supervisors.all_idle_for(None);
    cluster.wake("a").await;
    cluster.wait_for_phase("a", Phase::Running).await;
    assert_eq!(taken(&cluster), [CLAIM, POD, STATUS, STATUS], "wake");

    cluster.node.restart("a", "OOMKilled").await;
    cluster.wait_until_quiet().await;
    assert_eq!(taken(&cluster), [STATUS, STATUS], "container restart");
    cluster.delete_pod_now("a").await;
    cluster.wait_until_quiet().await;
    assert_eq!(taken(&cluster), [CLAIM, POD, STATUS, STATUS], "lost Pod");

    cluster.set_state("a", DesiredState::Stopped).await;
    cluster.wait_until_quiet().await;
    let claim = "Delete persistentvolumeclaims";
    assert_eq!(taken(&cluster), [END, claim, STATUS], "stop");
}

#[tokio::test(start_paused = true)]
async fn progress_of_a_pull_is_shown_in_a_bounded_number_of_writes() {
    let cluster = TestCluster::new();
    cluster.node.script_next_pod("a", PodScript::Pulls);
    cluster.create("a").await;
    let told = "node scripted is mounting volumes, pulling images or creating containers";
    let shows = |text: &str| {
        cluster
            .index
            .list(|e| e.status.message.as_deref() == Some(text))
    };
    cluster
        .wait("a", |e| e.status.message.as_deref() == Some(told))
        .await
        .unwrap();
    cluster.wait_until_quiet().await;
    taken(&cluster);
    for second in 1..=60 {
        let progress = format!("{second} of 60 MB");
        cluster.node.report_progress("a", &progress).await;
        sleep(Duration::from_secs(1)).await;
    }
    cluster.wait_until_quiet().await;
    assert_eq!(shows("60 of 60 MB").len(), 1);
    let writes = taken(&cluster);
    assert!((15..=21).contains(&writes.len()), "{writes:?}");
    assert!(writes.iter().all(|write| write == STATUS), "{writes:?}");

    cluster.node.heal("a").await;
    cluster.wait_for_phase("a", Phase::Running).await;
    cluster.wait_until_quiet().await;
    assert_eq!(taken(&cluster), [STATUS]);
}

/// Sandboxes in every state that lasts.
async fn every_state() -> TestCluster {
    use Phase::{Failed, Paused, Pending, Running, Starting, Stopped};
    let cluster = TestCluster::new();
    let lasting = json!({"lifecycle": {"startTimeout": "99999h", "deleteStoppedAfter": "99999h"}});
    for name in "runs runs-too restarted replaced paused stopped".split(' ') {
        cluster.running_with(name, &lasting).await;
    }
    cluster.node.restart("restarted", "OOMKilled").await;
    cluster.delete_pod_now("replaced").await;
    cluster.set_state("paused", DesiredState::Paused).await;
    cluster.set_state("stopped", DesiredState::Stopped).await;
    for (name, script) in [
        ("starts", PodScript::NeverReady),
        ("pending", PodScript::Unschedulable),
        ("failed", PodScript::CannotPull),
    ] {
        cluster.node.script_next_pod(name, script);
        cluster.create_with(name, &lasting).await;
    }
    let unknown = json!({"pool": "unknown"});
    cluster.create_with("waits", &unknown).await;
    cluster.wait_until_quiet().await;
    let count = |phase| cluster.index.list(|e| e.status.phase == phase).len();
    let counts = [Running, Paused, Stopped, Starting, Failed, Pending].map(count);
    assert_eq!(counts, [4, 1, 1, 2, 1, 1]);
    cluster
}

/// Counts the lists of Sandboxes that the controller asks for.
fn count_lists(cluster: &TestCluster) -> Arc<AtomicUsize> {
    let lists = Arc::new(AtomicUsize::new(0));
    let counter = lists.clone();
    // A rule that looks at every request and applies to none.
    cluster
        .faults()
        .fail_next(1, Failure::Refuse, move |request| {
            let ours = request.user_agent == names::CONTROLLER_FIELD_MANAGER;
            if ours && request.verb == Verb::List && request.resource == "sandboxes" {
                counter.fetch_add(1, Ordering::Relaxed);
            }
            false
        });
    lists
}

/// Forces a relist of all clients: the history is compacted and watches break.
async fn resync(cluster: &TestCluster, round: usize) {
    let patch = json!({"metadata": {"annotations": {"round": round.to_string()}}});
    let spaces: kube::Api<k8s_openapi::api::core::v1::Namespace> =
        kube::Api::all(cluster.observer.clone());
    let params = PatchParams::default();
    spaces
        .patch("default", &params, &Patch::Merge(patch))
        .await
        .unwrap();
    cluster.api.compact();
    cluster.faults().drop_watches();
    sleep(Duration::from_secs(35)).await;
}

#[tokio::test(start_paused = true)]
async fn relists_of_unchanged_sandboxes_write_nothing() {
    let cluster = every_state().await;
    cluster.faults().clear_writes();
    let lists = count_lists(&cluster);
    let rounds = full_or(1000, 100);
    for round in 0..rounds {
        resync(&cluster, round).await;
    }
    // Ten sandboxes, each of which a list has looked at.
    assert!(lists.load(Ordering::Relaxed) >= rounds, "{lists:?}");
    assert_eq!(taken(&cluster), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn nothing_is_written_while_nothing_changes() {
    let mut cluster = every_state().await;
    // Events come a moment later.
    sleep(Duration::from_mins(1)).await;
    let before = cluster.api.revision();
    sleep(Duration::from_hours(6)).await;
    assert_eq!(cluster.api.revision(), before, "{:#?}", taken(&cluster));

    // Neither by controllers that come back and remember nothing.
    for _ in 0..full_or(50, 10) {
        cluster.start_controller();
        sleep(Duration::from_mins(5)).await;
    }
    assert_eq!(cluster.api.revision(), before, "{:#?}", taken(&cluster));
}
