//! Readiness is true (design 9, invariant 1): ten thousand sandboxes start at random speed while
//! commands crash, Pods are lost and the controller is replaced, and whoever is told `Ready` by one
//! gateway gets a good answer from the other.
//!
//! A sandbox that has just had an accident may still be called ready. Such answers are counted apart.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use operator::keys::Keys;
use serde_json::{Value, json};
use tests::world::{Dice, Fate, NAMESPACE, ScriptedNode, TestGateway, World};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

/// Four tests of many worlds of this size: they run on several cores, and no world becomes slow from
/// the events that it keeps.
const STARTS: u64 = 100;
const WORLDS: u64 = 25;
/// Sandboxes at the same time.
const CONCURRENCY: usize = 50;
/// The slowest command.
const SLOWEST: Duration = Duration::from_secs(10);
/// The longest pause between two polls.
const POLL: Duration = Duration::from_secs(2);
/// How long after an accident somebody may still believe that there was none.
const NEWS: Duration = Duration::from_secs(10);
/// The longest that anybody waits for a sandbox.
const PATIENCE: Duration = Duration::from_mins(30);

/// What one sandbox lives in.
#[derive(Clone)]
struct Scene {
    gateways: [TestGateway; 2],
    node: Arc<ScriptedNode>,
    keys: Arc<Keys>,
}

/// What came of requests to sandboxes that were said to be ready.
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
struct Life {
    scene: Scene,
    dice: Dice,
    id: String,
    accident: Option<Instant>,
    tally: Tally,
}

impl Life {
    async fn live(scene: Scene, number: u64) -> Tally {
        let session = format!("s{number}");
        let id = scene
            .keys
            .session_runtime_id(NAMESPACE, "default", &session, 0);
        let dice = Dice::new(number.wrapping_mul(0x9e37_79b9));
        let (accident, tally) = (None, Tally::default());
        let mut life = Self {
            scene,
            dice,
            id,
            accident,
            tally,
        };
        life.become_ready_later();
        let body = json!({"session_id": session, "image": "debian:12", "command": ["server"]});
        let begun = life.scene.gateways[0].post("/start", &body).await;
        assert_eq!(begun.status, 201, "{}", begun.body);
        life.see_ready().await;
        // Half of them meet with an accident, and have to become ready again.
        if life.dice.percent(50) {
            life.suffer().await;
            life.see_ready().await;
            sleep(NEWS).await;
            life.see_ready().await;
        }
        let stopped = life
            .gateway()
            .post("/stop", &json!({"runtime_id": life.id}))
            .await;
        assert_eq!(stopped.status, 200, "{}", stopped.body);
        life.tally
    }

    fn gateway(&mut self) -> TestGateway {
        let at = usize::from(self.dice.percent(50));
        self.scene.gateways[at].clone()
    }

    /// The command of its Pod does not answer before a random time.
    fn become_ready_later(&mut self) {
        let (node, id, after) = (
            self.scene.node.clone(),
            self.id.clone(),
            self.dice.time(SLOWEST),
        );
        node.decide(&id, Fate::NeverReady);
        tokio::spawn(async move {
            sleep(after).await;
            node.heal(&id).await;
        });
    }

    async fn suffer(&mut self) {
        let after = self.dice.time(SLOWEST);
        sleep(after).await;
        let (node, id) = (self.scene.node.clone(), self.id.clone());
        self.accident = Some(Instant::now());
        match self.dice.below(3) {
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
    async fn see_ready(&mut self) {
        let end = Instant::now() + PATIENCE;
        let mut info = Value::Null;
        while info["pod_status"] != "Ready" {
            assert!(Instant::now() < end, "never ready: {info}");
            let pause = self.dice.time(POLL);
            sleep(pause).await;
            let answer = self.gateway().get(&format!("/runtime/{}", self.id)).await;
            assert_eq!(answer.status, 200, "{}", answer.body);
            info = answer.body;
            assert_eq!(
                info["pod_status"] == "Ready",
                info["status"] == "running",
                "{info}"
            );
        }
        let recent = self.accident.is_some_and(|at| at.elapsed() < NEWS);
        let path = format!("/{}/runtime/alive", self.id);
        let answer = self.gateway().get(&path).await;
        match answer.status {
            StatusCode::OK => self.tally.good += 1,
            _ if recent => self.tally.excused += 1,
            status => self
                .tally
                .lies
                .push(format!("{status} {}: {info}", answer.body)),
        }
    }
}

/// Lets sandboxes live, and replaces the controller again and again.
async fn starts(seed: u64, count: u64, mut world: World) -> Tally {
    let scene = Scene {
        gateways: [world.gateway().await, world.gateway().await],
        node: world.node.clone(),
        keys: world.keys.clone(),
    };
    let mut dice = Dice::new(seed);
    let (mut lives, mut tally) = (JoinSet::new(), Tally::default());
    let mut next = Instant::now();
    for number in 0..count {
        lives.spawn(Life::live(scene.clone(), seed << 32 | number));
        while lives.len() >= CONCURRENCY {
            tally.add(lives.join_next().await.unwrap().unwrap());
        }
        if Instant::now() > next {
            world.stop_controller();
            let down = dice.time(Duration::from_secs(5));
            sleep(down).await;
            world.start_controller();
            next = Instant::now() + dice.time(Duration::from_mins(2));
        }
    }
    while let Some(ended) = lives.join_next().await {
        tally.add(ended.unwrap());
    }
    world.node.assert_no_doubles();
    tally
}

async fn nobody_lies(seed: u64) {
    let mut tally = Tally::default();
    for world_number in 0..WORLDS {
        let mut world = World::new();
        world.serve().await;
        tally.add(starts(seed * WORLDS + world_number, STARTS, world).await);
    }
    let Tally {
        good,
        excused,
        lies,
    } = tally;
    println!("test {seed}: {good} good, {excused} excused");
    assert!(
        lies.is_empty(),
        "{}: {:#?}",
        lies.len(),
        &lies[..lies.len().min(3)]
    );
    let all = STARTS * WORLDS;
    assert!(good as u64 >= all * 3 / 2, "{good}");
    assert!(excused as u64 * 50 < all, "{excused}");
}

#[tokio::test(start_paused = true)]
async fn nobody_is_told_ready_too_early_1() {
    nobody_lies(1).await;
}

#[tokio::test(start_paused = true)]
async fn nobody_is_told_ready_too_early_2() {
    nobody_lies(2).await;
}

#[tokio::test(start_paused = true)]
async fn nobody_is_told_ready_too_early_3() {
    nobody_lies(3).await;
}

#[tokio::test(start_paused = true)]
async fn nobody_is_told_ready_too_early_4() {
    nobody_lies(4).await;
}

/// The same with nobody behind the ports: it would be noticed.
#[tokio::test(start_paused = true)]
async fn a_lie_would_be_noticed() {
    let world = World::new();
    let tally = starts(0, 20, world).await;
    assert_eq!(tally.good, 0);
    assert!(tally.lies.len() >= 20, "{tally:?}");
}
