//! Readiness is true (`docs/architecture.md`, invariant 1): up to ten thousand sandboxes start at
//! random speed while commands crash, Pods are lost and the controller is replaced. If one gateway
//! reports `Ready`, a request through the other succeeds.
//!
//! A sandbox that has just had a fault may still be reported ready. Such requests are counted apart.

use std::sync::Arc;
use std::time::Duration;

use operator::keys::Keys;
use serde_json::{Value, json};
use tests::size::full_or;
use tests::test_cluster::{
    NAMESPACE, PodScript, SandboxServers, ScriptedNode, SeededRng, TestCluster, TestGateway,
    start_body,
};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

/// Starts in one cluster. Many small clusters are faster than one, whose kept events would slow it down.
const STARTS: u64 = 100;
/// Sandboxes at the same time.
const CONCURRENCY: usize = 50;
/// The slowest command.
const SLOWEST: Duration = Duration::from_secs(10);
/// The longest pause between two polls.
const POLL: Duration = Duration::from_secs(2);
/// Time after a fault in which `Ready` may still be reported.
const STALE_READY_GRACE: Duration = Duration::from_secs(10);
/// Longest wait for a sandbox.
const WAIT_TIMEOUT: Duration = Duration::from_mins(30);

/// Gateways, node and keys of one test cluster.
#[derive(Clone)]
struct Scenario {
    gateways: [TestGateway; 2],
    node: Arc<ScriptedNode>,
    keys: Arc<Keys>,
}

/// Outcomes of requests to sandboxes that were reported ready.
#[derive(Debug, Default)]
struct Tally {
    good: usize,
    /// Not answered well, after an accident.
    excused: usize,
    lies: Vec<String>,
}

impl Tally {
    fn add(&mut self, other: Self) {
        self.good += other.good;
        self.excused += other.excused;
        self.lies.extend(other.lies);
    }
}

/// One sandbox, from its start to its end.
struct SandboxRun {
    scene: Scenario,
    rng: SeededRng,
    id: String,
    accident: Option<Instant>,
    tally: Tally,
}

impl SandboxRun {
    async fn run(scene: Scenario, number: u64) -> Tally {
        let session = format!("s{number}");
        let id = scene
            .keys
            .session_runtime_id(NAMESPACE, "default", &session, 0);
        let rng = SeededRng::new(number.wrapping_mul(0x9e37_79b9));
        let tally = Tally::default();
        let mut life = Self {
            scene,
            rng,
            id,
            accident: None,
            tally,
        };
        life.become_ready_later();
        let body = start_body(&session);
        life.scene.gateways[0].start(&body).await;
        life.check_ready().await;
        // Half of them meet with an accident, and have to become ready again.
        if life.rng.percent(50) {
            life.suffer().await;
            life.check_ready().await;
            sleep(STALE_READY_GRACE).await;
            life.check_ready().await;
        }
        let id = json!({"runtime_id": life.id});
        let stopped = life.gateway().post("/stop", &id).await;
        assert_eq!(stopped.status, 200, "{}", stopped.body);
        life.tally
    }

    fn gateway(&mut self) -> TestGateway {
        let at = usize::from(self.rng.percent(50));
        self.scene.gateways[at].clone()
    }

    /// The command of its Pod does not answer before a random time.
    fn become_ready_later(&mut self) {
        let (node, id) = (self.scene.node.clone(), self.id.clone());
        let after = self.rng.time(SLOWEST);
        node.script_next_pod(&id, PodScript::NeverReady);
        tokio::spawn(async move {
            sleep(after).await;
            node.heal(&id).await;
        });
    }

    async fn suffer(&mut self) {
        let after = self.rng.time(SLOWEST);
        sleep(after).await;
        let (node, id) = (self.scene.node.clone(), self.id.clone());
        self.accident = Some(Instant::now());
        match self.rng.below(3) {
            0 => node.crash(&id).await,
            1 => {
                node.close(&id);
                node.evict(&id).await;
            }
            _ => node.remove(&id).await,
        }
        self.become_ready_later();
    }

    /// Polls until it is said to be ready, and then sends a request at once.
    async fn check_ready(&mut self) {
        let end = Instant::now() + WAIT_TIMEOUT;
        let mut info = Value::Null;
        while info["pod_status"] != "Ready" {
            assert!(Instant::now() < end, "never ready: {info}");
            let pause = self.rng.time(POLL);
            sleep(pause).await;
            let answer = self.gateway().get(&format!("/runtime/{}", self.id)).await;
            assert_eq!(answer.status, 200, "{}", answer.body);
            info = answer.body;
            let (ready, runs) = (info["pod_status"] == "Ready", info["status"] == "running");
            assert_eq!(ready, runs, "{info}");
        }
        let recent = self
            .accident
            .is_some_and(|at| at.elapsed() < STALE_READY_GRACE);
        let path = format!("/{}/runtime/alive", self.id);
        let answer = self.gateway().get(&path).await;
        match answer.status {
            200 => self.tally.good += 1,
            _ if recent => self.tally.excused += 1,
            _ => self.tally.lies.push(format!("{answer:?}: {info}")),
        }
    }
}

/// Lets sandboxes live, and replaces the controller again and again.
async fn starts(seed: u64, count: u64, mut cluster: TestCluster) -> Tally {
    let scene = Scenario {
        gateways: [cluster.gateway().await, cluster.gateway().await],
        node: cluster.node.clone(),
        keys: cluster.keys.clone(),
    };
    let mut rng = SeededRng::new(seed);
    let (mut lives, mut tally) = (JoinSet::new(), Tally::default());
    let mut next = Instant::now();
    for number in 0..count {
        lives.spawn(SandboxRun::run(scene.clone(), seed << 32 | number));
        while lives.len() >= CONCURRENCY {
            tally.add(lives.join_next().await.unwrap().unwrap());
        }
        if Instant::now() > next {
            cluster.stop_controller();
            let down = rng.time(Duration::from_secs(5));
            sleep(down).await;
            cluster.start_controller();
            next = Instant::now() + rng.time(Duration::from_mins(2));
        }
    }
    while let Some(ended) = lives.join_next().await {
        tally.add(ended.unwrap());
    }
    cluster.node.assert_single_pod();
    tally
}

async fn check_ready_is_true(seed: u64) {
    let mut tally = Tally::default();
    let clusters = full_or(25, 1);
    for world_number in 0..clusters {
        let mut cluster = TestCluster::new();
        cluster.servers = SandboxServers::Responding;
        tally.add(starts(seed * clusters + world_number, STARTS, cluster).await);
    }
    let Tally {
        good,
        excused,
        lies,
    } = tally;
    println!("test {seed}: {good} good, {excused} excused");
    let first = &lies[..lies.len().min(3)];
    assert!(lies.is_empty(), "{}: {first:#?}", lies.len());
    let all = STARTS * clusters;
    assert!(good as u64 >= all * 3 / 2, "{good}");
    assert!(excused as u64 * 50 < all, "{excused}");
}

#[tokio::test(start_paused = true)]
async fn ready_is_true_seed_1() {
    check_ready_is_true(1).await;
}

#[tokio::test(start_paused = true)]
async fn ready_is_true_seed_2() {
    check_ready_is_true(2).await;
}

#[tokio::test(start_paused = true)]
async fn ready_is_true_seed_3() {
    check_ready_is_true(3).await;
}

#[tokio::test(start_paused = true)]
async fn ready_is_true_seed_4() {
    check_ready_is_true(4).await;
}

/// Positive control: without servers behind the ports, false readiness is detected.
#[tokio::test(start_paused = true)]
async fn test_detects_false_ready() {
    let cluster = TestCluster::new();
    let tally = starts(0, 20, cluster).await;
    assert_eq!(tally.good, 0);
    assert!(tally.lies.len() >= 20, "{tally:?}");
}
