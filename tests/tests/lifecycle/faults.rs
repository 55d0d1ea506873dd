//! The API server misbehaves: it lags, refuses, forgets, loses answers and goes away. Sandboxes
//! get where they shall be all the same, within seconds, and with one Pod each.

use std::time::Duration;

use crds::sandbox::{DesiredState, Phase};
use http::StatusCode;
use k8s_openapi::api::core::v1::Pod;
use tests::fault_injection::{Failure, Outage, RequestInfo, Verb};
use tests::test_cluster::{PodScript, TestCluster, is_controller_write};
use tokio::time::Instant;

const LAG: Duration = Duration::from_secs(2);
/// The longest a sandbox may take to what it shall be once the trouble is over.
const CONVERGENCE_TIMEOUT: Duration = Duration::from_secs(10);

/// Five sandboxes in the middle of five different things, and what becomes of them.
const GOALS: [(&str, Phase); 6] = [
    ("stays", Phase::Running),
    ("starts", Phase::Running),
    ("pauses", Phase::Paused),
    ("resumes", Phase::Running),
    ("stops", Phase::Stopped),
    ("loses", Phase::Running),
];

/// All of them just before their thing happens.
async fn prepare() -> TestCluster {
    let cluster = TestCluster::new();
    for name in ["stays", "pauses", "resumes", "stops", "loses"] {
        cluster.running(name).await;
    }
    cluster.bring("resumes", DesiredState::Paused).await;
    cluster.wait_until_quiet().await;
    cluster
}

async fn happen(cluster: &TestCluster) {
    cluster.create("starts").await;
    cluster.set_state("pauses", DesiredState::Paused).await;
    cluster.set_state("resumes", DesiredState::Running).await;
    cluster.set_state("stops", DesiredState::Stopped).await;
    cluster.delete_pod_now("loses").await;
}

/// Waits for all of them. How long it took.
async fn arrive(cluster: &TestCluster) -> Duration {
    let begin = Instant::now();
    for (name, phase) in GOALS {
        let settled = |e: &operator::index::Entry| {
            let observed = e.status.observed_generation == Some(e.generation);
            let replaced = name != "loses" || e.status.restarts.count == 1;
            observed && replaced && e.status.phase == phase
        };
        let entry = cluster.wait(name, settled).await.unwrap();
        assert!(settled(&entry), "{name}: {:?}", entry.status);
    }
    begin.elapsed()
}

/// Asserts that nothing is left over or doubled, and that writes have ended.
async fn check(cluster: &TestCluster) {
    cluster.wait_until_quiet().await;
    cluster.assert_unchanged_for(Duration::from_mins(30)).await;
    cluster.node.assert_single_pod();
    let created = cluster.node.created();
    assert_eq!(created.len(), 5 + 3, "unneeded Pods: {created:?}");
    let mut pods = cluster.names::<Pod>().await;
    pods.sort();
    assert_eq!(pods, ["loses", "resumes", "starts", "stays"]);
}

/// Everything happens while watches lag, break or have to list again: no second Pod and no write.
async fn costs_nothing_but_time(lag: Duration, trouble: impl AsyncFn(&TestCluster)) {
    let cluster = prepare().await;
    cluster.faults().set_watch_lag(lag);
    happen(&cluster).await;
    trouble(&cluster).await;
    let took = arrive(&cluster).await;
    assert!(took <= CONVERGENCE_TIMEOUT, "{took:?}");
    check(&cluster).await;
    let idle = cluster.no_op_writes();
    assert!(idle.is_empty(), "{idle:#?}");
}

/// Breaks all watches again and again.
async fn break_watches(cluster: &TestCluster, times: u32, and: impl Fn()) {
    for _ in 0..times {
        and();
        cluster.faults().drop_watches();
        tokio::time::sleep(Duration::from_millis(700)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn lagging_watches_cause_no_extra_pods_and_writes() {
    // One lag to hear of the wish, one of the Pod's address, one of its end.
    costs_nothing_but_time(LAG, async |_| {}).await;
}

#[tokio::test(start_paused = true)]
async fn broken_watches_cause_no_extra_pods_and_writes() {
    for lag in [Duration::ZERO, LAG] {
        costs_nothing_but_time(lag, async |c| break_watches(c, 20, || {}).await).await;
    }
}

#[tokio::test(start_paused = true)]
async fn compacted_history_causes_relists_without_writes() {
    for lag in [Duration::ZERO, LAG] {
        let compact = async |c: &TestCluster| break_watches(c, 5, || c.api.compact()).await;
        costs_nothing_but_time(lag, compact).await;
    }
}

#[tokio::test(start_paused = true)]
async fn sandboxes_converge_after_many_failed_writes() {
    for code in [
        StatusCode::CONFLICT,
        StatusCode::TOO_MANY_REQUESTS,
        StatusCode::INTERNAL_SERVER_ERROR,
        StatusCode::SERVICE_UNAVAILABLE,
    ] {
        let cluster = prepare().await;
        let faults = cluster.faults();
        faults.fail_next(60, Failure::Code(code), is_controller_write);
        happen(&cluster).await;
        let took = arrive(&cluster).await;
        assert!(took <= Duration::from_mins(2), "{code}: {took:?}");
        check(&cluster).await;
    }
}

#[tokio::test(start_paused = true)]
async fn lost_responses_are_recovered() {
    for lag in [Duration::ZERO, LAG] {
        for verb in [Verb::Create, Verb::Patch, Verb::Delete] {
            let cluster = prepare().await;
            cluster.faults().set_watch_lag(lag);
            let mine = move |r: &RequestInfo| is_controller_write(r) && r.verb == verb;
            let faults = cluster.faults();
            faults.fail_next(12, Failure::DropResponse, mine);
            happen(&cluster).await;
            let took = arrive(&cluster).await;
            assert!(took <= Duration::from_mins(1), "{verb:?}: {took:?}");
            check(&cluster).await;
        }
    }
}

/// The trouble begins while everything is under way, at different moments of it.
async fn survives_outage(outage: Outage, length: Duration, after: Duration) {
    let cluster = prepare().await;
    let faults = cluster.faults();
    faults.set_watch_lag(Duration::from_millis(50));
    let script = PodScript::NeverReady;
    cluster.node.script_next_pod("starts", script);
    happen(&cluster).await;
    tokio::time::sleep(after).await;
    faults.set_outage(outage);
    tokio::time::sleep(length / 2).await;
    // No watch will report it: only the sandbox itself can.
    cluster.node.heal("starts").await;
    back_at_once(&cluster, outage, length).await;
}

/// Everything happens while the server is away.
async fn learns_of_outage(outage: Outage, length: Duration) {
    let cluster = prepare().await;
    cluster.faults().set_outage(outage);
    tokio::time::sleep(length / 2).await;
    happen(&cluster).await;
    back_at_once(&cluster, outage, length).await;
}

/// The second half of an outage, and its end.
async fn back_at_once(cluster: &TestCluster, outage: Outage, length: Duration) {
    tokio::time::sleep(length / 2).await;
    cluster.faults().set_outage(Outage::None);
    let took = arrive(cluster).await;
    let in_time = took <= CONVERGENCE_TIMEOUT;
    assert!(in_time, "{outage:?} of {length:?}: {took:?}");
    check(cluster).await;
}

async fn is_back_at_once_after(outage: Outage) {
    for length in [Duration::from_secs(30), Duration::from_mins(5)] {
        for after in [0, 49, 51, 120].map(Duration::from_millis) {
            survives_outage(outage, length, after).await;
        }
        learns_of_outage(outage, length).await;
    }
}

#[tokio::test(start_paused = true)]
async fn sandboxes_converge_after_api_server_refuses() {
    is_back_at_once_after(Outage::Refuse).await;
}

#[tokio::test(start_paused = true)]
async fn sandboxes_converge_after_api_server_hangs() {
    is_back_at_once_after(Outage::Hang).await;
}
