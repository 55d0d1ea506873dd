//! Claims while the API server misbehaves, and while controllers die: the invariants of pools hold
//! at every change, and afterwards each sandbox has one Pod and nothing is left over.

use std::time::Duration;

use crds::pool::SandboxPoolStatus;
use crds::sandbox::Phase;
use http::StatusCode;
use kube::api::DeleteParams;
use serde_json::{Value, json};
use tests::fault_injection::{Failure, Outage, RequestInfo, Verb};
use tests::size::full_or;
use tests::test_cluster::{TestCluster, is_controller_write};
use tokio::time::{Instant, sleep};

const REPLICAS: u32 = 4;
const SANDBOXES: [&str; 3] = ["a", "b", "c"];
/// Failures of one kind in a row: more than the quick retries of a reconcile.
const FAILURES: usize = 3;
const SECOND: Duration = Duration::from_secs(1);

/// Form of a pool: the writes of a claim differ.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Form {
    Plain,
    /// A PVC moves with each Pod.
    Workspace,
    /// As `Workspace`, and claimed Pods grow.
    Small,
}

const FORMS: [Form; 3] = [Form::Plain, Form::Workspace, Form::Small];

impl Form {
    fn pool(self, replicas: u32, image: &str) -> Value {
        let mut template = json!({"image": image, "resources": {"limits": {"cpu": "1"}}});
        if self != Self::Plain {
            template["workspace"] = json!({"size": "1Gi"});
        }
        let idle = json!({"limits": {"cpu": "100m"}, "requests": {"cpu": "10m"}});
        let idle = (self == Self::Small).then_some(idle);
        json!({"replicas": replicas, "template": template, "idleResources": idle})
    }

    /// A cluster with a full pool.
    async fn cluster(self, replicas: u32) -> TestCluster {
        let cluster = TestCluster::new();
        cluster.put_pool(&self.pool(replicas, "i")).await;
        cluster.wait_for_pool(10 * SECOND, is_full(replicas)).await;
        cluster
    }
}

fn is_full(replicas: u32) -> impl Fn(&SandboxPoolStatus) -> bool {
    move |status| (status.ready, status.starting, status.outdated) == (replicas, 0, 0)
}

async fn create(cluster: &TestCluster, name: &str) {
    let fields = json!({"pool": "p", "image": null, "workspace": null,
        "env": [{"name": "NAME", "value": name}]});
    cluster.create_with(name, &fields).await;
}

async fn delete(cluster: &TestCluster, name: &str) {
    let (sandboxes, params) = (cluster.sandboxes(), DeleteParams::default());
    sandboxes.delete(name, &params).await.unwrap();
}

/// Waits until all run, and returns how long that took. They claim warm Pods, of which there are
/// enough.
async fn claimed(cluster: &TestCluster, names: &[&str], case: &str) -> Duration {
    let begin = Instant::now();
    for name in names {
        let sandbox = cluster.wait_for_phase(name, Phase::Running).await;
        assert!(sandbox.status.warm, "{case}: {name} started cold");
    }
    begin.elapsed()
}

#[derive(Clone, Copy, Debug)]
enum Fault {
    /// The next writes of this kind fail.
    Writes(Failure, Verb, &'static str),
    /// Watches break again and again.
    Watches,
    Away(Outage),
}

impl Fault {
    async fn strike(self, cluster: &TestCluster) {
        let faults = cluster.faults();
        match self {
            Self::Writes(failure, verb, resource) => {
                let applies = move |r: &RequestInfo| {
                    is_controller_write(r) && r.verb == verb && r.resource == resource
                };
                faults.fail_next(FAILURES, failure, applies);
            }
            Self::Watches => {
                for _ in 0..10 {
                    faults.drop_watches();
                    sleep(Duration::from_millis(70)).await;
                }
            }
            Self::Away(outage) => {
                // Claims are in flight.
                sleep(Duration::from_millis(7)).await;
                faults.set_outage(outage);
                sleep(20 * SECOND).await;
                faults.set_outage(Outage::None);
            }
        }
    }
}

/// Claims, then a rollout and a deletion, under the same fault.
async fn survives(fault: Fault, form: Form, lag: Duration, limit: Duration) {
    let case = format!("{fault:?} {form:?} {lag:?}");
    println!("{case}");
    let cluster = form.cluster(REPLICAS).await;
    let invariants = cluster.watch_invariants();
    cluster.faults().set_watch_lag(lag);
    cluster.faults().set_latency(Duration::from_millis(5));
    for name in SANDBOXES {
        create(&cluster, name).await;
    }
    fault.strike(&cluster).await;
    let took = claimed(&cluster, &SANDBOXES, &case).await;
    assert!(took <= limit, "{case}: {took:?}");
    cluster.put_pool(&form.pool(REPLICAS, "j")).await;
    delete(&cluster, "a").await;
    fault.strike(&cluster).await;
    let is_done = |status: &SandboxPoolStatus| {
        status.claimed == 2 && status.observed_generation == Some(2) && is_full(REPLICAS)(status)
    };
    // Each step of a rollout is seen after the lag.
    cluster.wait_for_pool(limit + 8 * lag, is_done).await;
    cluster.faults().clear_failures();
    cluster.wait_until_quiet().await;
    invariants.assert_held();
    let left = SANDBOXES[1..].iter().map(ToString::to_string);
    let left: Vec<_> = left.collect();
    cluster.assert_nothing_leaked(&left, 4).await;
}

/// Failures of every kind of write of a claim and of a rollout.
async fn survives_failures(failure: Failure) {
    for (verb, resource, forms, limit) in [
        (Verb::Patch, "pods", &[Form::Plain, Form::Small][..], 5),
        (Verb::Patch, "persistentvolumeclaims", &[Form::Small], 5),
        (Verb::Patch, "sandboxes", &[Form::Plain, Form::Small], 5),
        (Verb::Create, "pods", &[Form::Plain], 15),
        // A PVC whose creation failed is created 15 s after its Pod.
        (Verb::Create, "pods", &[Form::Workspace], 40),
        (
            Verb::Create,
            "persistentvolumeclaims",
            &[Form::Workspace],
            40,
        ),
        (Verb::Delete, "pods", &[Form::Plain, Form::Workspace], 15),
    ] {
        for form in forms {
            for lag in [0, 2] {
                let fault = Fault::Writes(failure, verb, resource);
                survives(fault, *form, lag * SECOND, limit * SECOND).await;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn claims_survive_conflicts() {
    survives_failures(Failure::Code(StatusCode::CONFLICT)).await;
}

#[tokio::test(start_paused = true)]
async fn claims_survive_failed_writes() {
    survives_failures(Failure::Code(StatusCode::INTERNAL_SERVER_ERROR)).await;
}

#[tokio::test(start_paused = true)]
async fn claims_survive_lost_responses() {
    survives_failures(Failure::DropResponse).await;
}

#[tokio::test(start_paused = true)]
async fn claims_survive_broken_and_late_watches() {
    for form in FORMS {
        for lag in [0, 2, 30] {
            survives(Fault::Watches, form, lag * SECOND, (10 + lag) * SECOND).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn claims_survive_short_outages() {
    for form in FORMS {
        for outage in [Outage::Refuse, Outage::Hang] {
            for lag in [0, 2] {
                survives(Fault::Away(outage), form, lag * SECOND, 15 * SECOND).await;
            }
        }
    }
}

/// Sandboxes of the crash tests: their claims have 20 write positions and more.
const BURST: [&str; 7] = ["a", "b", "c", "d", "e", "f", "g"];

/// Claims of a burst, with a controller that dies at its `nth` write. Returns whether it died.
async fn claims_with_crash(nth: usize, form: Form, lag: Duration) -> bool {
    let case = format!("write {nth}, {form:?}, {lag:?}");
    println!("{case}");
    let replicas = BURST.len();
    let mut cluster = form.cluster(7).await;
    let invariants = cluster.watch_invariants();
    cluster.faults().set_watch_lag(lag);
    cluster.arm_crash(nth);
    for name in BURST {
        create(&cluster, name).await;
    }
    let crashed = cluster.await_crash().await;
    if crashed {
        cluster.start_controller();
    }
    claimed(&cluster, &BURST, &case).await;
    cluster.wait_until_quiet().await;
    invariants.assert_held();
    let names = BURST.map(str::to_owned);
    cluster.assert_nothing_leaked(&names, replicas).await;
    crashed
}

/// The controller dies at each write, with watches that are on time and late in turn.
async fn claims_survive_crashes(form: Form) {
    let lags = [0, 2, 30];
    for shift in 0..full_or(lags.len(), 1) {
        let mut nth = 1;
        let lag = |nth: usize| lags[(nth + shift) % lags.len()] * SECOND;
        while nth <= full_or(usize::MAX, 20) && claims_with_crash(nth, form, lag(nth)).await {
            nth += 1;
        }
        assert!(nth > 20, "{nth} writes");
    }
}

#[tokio::test(start_paused = true)]
async fn claims_survive_crash_after_any_write() {
    claims_survive_crashes(Form::Plain).await;
}

#[tokio::test(start_paused = true)]
async fn claims_with_volumes_survive_crash_after_any_write() {
    claims_survive_crashes(Form::Workspace).await;
}

/// The watches of both are behind: each learns of the claims of the other from a list.
#[tokio::test(start_paused = true)]
async fn two_leaders_in_turn_with_late_watches_claim_each_pod_once() {
    for form in [Form::Plain, Form::Workspace] {
        let cluster = TestCluster::without_controller();
        let mut leader = cluster.candidate("candidate-0");
        leader.wait_leading().await;
        cluster.put_pool(&form.pool(REPLICAS, "i")).await;
        cluster.wait_for_pool(10 * SECOND, is_full(REPLICAS)).await;
        let invariants = cluster.watch_invariants();
        cluster.faults().set_watch_lag(30 * SECOND);
        cluster.faults().set_latency(Duration::from_millis(5));
        let mut names = Vec::new();
        for turn in 1..=12 {
            let standby = cluster.candidate(&format!("candidate-{turn}"));
            let is_settled = |status: &SandboxPoolStatus| {
                is_full(REPLICAS)(status) && status.claimed == 3 * (turn - 1)
            };
            cluster.wait_for_pool(300 * SECOND, is_settled).await;
            let burst = ["x", "y", "z"].map(|name| format!("{name}{turn}"));
            for name in &burst {
                create(&cluster, name).await;
            }
            // The event of the Sandboxes, then one more write or so each turn.
            sleep(30 * SECOND + Duration::from_millis(3) * turn).await;
            leader.crash().await;
            leader = standby;
            let burst: Vec<_> = burst.iter().map(String::as_str).collect();
            let took = claimed(&cluster, &burst, &format!("{form:?}, turn {turn}")).await;
            assert!(took < 10 * SECOND, "{form:?}, turn {turn}: {took:?}");
            names.extend(burst.into_iter().map(str::to_owned));
        }
        sleep(300 * SECOND).await;
        invariants.assert_held();
        assert_eq!(cluster.assert_one_leader_at_a_time(), 13);
        cluster.assert_nothing_leaked(&names, 4).await;
    }
}
