//! Event streams of two replicas of the gateway with a real controller. A client that follows them
//! knows what the API server knows, on either replica and after any time away.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use axum::body::Body;
use crds::Sandbox;
use crds::sandbox::Phase;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use testing::{EventReader, ReceivedEvent};
use tests::test_cluster::{
    API_KEY, OTHER_KEY, PodScript, SeededRng, TestCluster, TestGateway, start_body,
};
use tokio::time::{Instant, sleep, timeout_at};

/// Time in which everything settles: nodes heal and lost Pods are replaced.
const SETTLED: Duration = Duration::from_mins(30);
const LAG: Duration = Duration::from_secs(2);

/// A client with its knowledge of the sandboxes of a key.
struct Follower {
    events: EventReader<Body>,
    known: BTreeMap<String, Value>,
    /// Sandboxes of a list in progress.
    listed: HashSet<String>,
    lists: usize,
}

impl Follower {
    async fn new(gateway: &TestGateway) -> Self {
        let events = gateway.events(API_KEY, None).await;
        Self {
            events,
            known: BTreeMap::new(),
            listed: HashSet::new(),
            lists: 0,
        }
    }

    /// Continues on a replica.
    async fn move_to(&mut self, gateway: &TestGateway) {
        let cursor = self.events.cursor.take();
        self.events = gateway.events(API_KEY, cursor.as_deref()).await;
        self.events.cursor = cursor;
        self.listed.clear();
    }

    /// Follows for a time, and returns the events.
    async fn follow(&mut self, time: Duration) -> Vec<ReceivedEvent> {
        let end = Instant::now() + time;
        let mut seen = Vec::new();
        while let Ok(event) = timeout_at(end, self.events.next()).await {
            let event = event.expect("the stream is open");
            self.note(&event);
            seen.push(event);
        }
        seen
    }

    fn note(&mut self, event: &ReceivedEvent) {
        let id = event.data["runtime_id"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        match &*event.name {
            "runtime" => {
                self.listed.insert(id.clone());
                self.known.insert(id, event.data["status"].clone());
            }
            "deleted" => drop(self.known.remove(&id)),
            "synced" => {
                let listed = std::mem::take(&mut self.listed);
                self.known.retain(|id, _| listed.contains(id));
                self.lists += 1;
            }
            name => assert_eq!(name, "resumed"),
        }
    }
}

/// State of all sandboxes of the cluster as a read describes it.
async fn present(cluster: &TestCluster, gateway: &TestGateway) -> BTreeMap<String, Value> {
    let mut all = BTreeMap::new();
    for id in cluster.names::<Sandbox>().await {
        let read = gateway.get(&format!("/runtime/{id}")).await;
        assert_eq!(read.status, 200, "{}", read.body);
        all.insert(id, read.body["status"].clone());
    }
    all
}

fn statuses(events: &[ReceivedEvent]) -> Vec<&str> {
    let mut all: Vec<_> = events
        .iter()
        .filter_map(|e| e.data["status"].as_str())
        .collect();
    all.dedup();
    all
}

#[tokio::test(start_paused = true)]
async fn life_of_a_sandbox_is_a_sequence_of_events() {
    let cluster = TestCluster::new();
    let gateway = cluster.gateway().await;
    let mut client = Follower::new(&gateway).await;
    client.follow(LAG).await;
    let mut of_other = gateway.events(OTHER_KEY, None).await;
    of_other.until("synced").await;
    let id = gateway.start(&start_body("s")).await["runtime_id"]
        .as_str()
        .unwrap()
        .to_owned();
    let body = json!({"runtime_id": id});
    assert_eq!(
        statuses(&client.follow(SETTLED).await),
        ["starting", "running"]
    );
    for (verb, expected) in [
        ("/pause", &["paused"][..]),
        ("/resume", &["starting", "running"]),
        ("/stop", &["stopped"]),
    ] {
        assert_eq!(gateway.post(verb, &body).await.status, 200);
        assert_eq!(statuses(&client.follow(SETTLED).await), expected, "{verb}");
    }
    let sandboxes = cluster.sandboxes();
    sandboxes
        .delete(&id, &DeleteParams::default())
        .await
        .unwrap();
    let events = client.follow(SETTLED).await;
    let last = events.last().unwrap();
    assert_eq!(
        (&*last.name, &last.data),
        ("deleted", &json!({"runtime_id": id, "session_id": "s"}))
    );
    assert!(client.known.is_empty());
    of_other.assert_quiet_for(SETTLED).await;
}

#[tokio::test(start_paused = true)]
async fn restart_and_idle_pause_are_told() {
    let cluster = TestCluster::new();
    let gateway = cluster.gateway().await;
    let mut client = Follower::new(&gateway).await;
    let started = gateway.start(&start_body("s")).await;
    let id = started["runtime_id"].as_str().unwrap();
    client.follow(SETTLED).await;
    cluster.node.restart(id, "OOMKilled").await;
    let events = client.follow(SETTLED).await;
    let last = &events.last().unwrap().data;
    assert_eq!(last["restart_count"], 1, "{last}");
    assert_eq!(last["restart_reasons"], json!(["OOMKilled"]));
    assert_eq!(last["status"], "running");
    let timeout = json!({"spec": {"lifecycle": {"idleTimeout": "10m"}}});
    let (sandboxes, params) = (cluster.sandboxes(), PatchParams::default());
    let patched = sandboxes.patch(id, &params, &Patch::Merge(timeout)).await;
    patched.unwrap();
    let day = Duration::from_hours(24);
    cluster.supervisors.all_idle_for(Some(day));
    let events = client.follow(SETTLED).await;
    assert_eq!(statuses(&events).last(), Some(&"paused"));
}

#[tokio::test(start_paused = true)]
async fn progress_of_a_slow_start_is_told() {
    let cluster = TestCluster::new();
    let gateway = cluster.gateway().await;
    let mut client = Follower::new(&gateway).await;
    // The name of the Pod is the id, which depends on the session alone.
    let id = gateway.start(&start_body("s")).await["runtime_id"]
        .as_str()
        .unwrap()
        .to_owned();
    gateway.post("/pause", &json!({"runtime_id": id})).await;
    cluster.wait_for_phase(&id, Phase::Paused).await;
    client.follow(SETTLED).await;
    cluster.node.script_next_pod(&id, PodScript::Pulls);
    gateway.post("/resume", &json!({"runtime_id": id})).await;
    let mut events = client.follow(Duration::from_mins(1)).await;
    cluster.node.heal_all().await;
    events.extend(client.follow(SETTLED).await);
    assert_eq!(statuses(&events), ["starting", "running"]);
    let details = events
        .iter()
        .filter_map(|event| event.data["status_detail"].as_str());
    let details: Vec<_> = details.collect();
    assert!(
        details.iter().any(|text| text.contains("pulling image")),
        "{details:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn client_that_moves_between_replicas_misses_nothing() {
    const STEPS: usize = 150;
    let mut cluster = TestCluster::new();
    let gateways = [cluster.gateway().await, cluster.gateway().await];
    cluster.faults().set_watch_lag(LAG);
    cluster.node.enable_chaos(7, 20);
    let mut rng = SeededRng::new(11);
    let mut client = Follower::new(&gateways[0]).await;
    client.follow(Duration::from_secs(1)).await;
    for step in 0..STEPS {
        let gateway = rng.one_of(&[0, 1]);
        let session = format!("s{}", rng.one_of(&[0, 1, 2, 3, 4, 5]));
        let verb = rng.one_of(&["/start", "/pause", "/resume", "/stop", "/start"]);
        let found = gateways[gateway]
            .get(&format!("/sessions/{session}"))
            .await
            .body;
        let body = match verb {
            "/start" => start_body(&session),
            _ => json!({"runtime_id": found["runtime_id"]}),
        };
        gateways[gateway].post(verb, &body).await;
        if rng.percent(10) {
            cluster.faults().drop_watches();
        }
        if rng.percent(5) {
            cluster.start_controller();
        }
        if rng.percent(10) {
            let names = cluster.names::<Sandbox>().await;
            if let Some(name) = names.first() {
                let sandboxes = cluster.sandboxes();
                let deleted = sandboxes.delete(name, &DeleteParams::default()).await;
                deleted.unwrap();
            }
        }
        if rng.percent(40) {
            // Away for a while, and back on either replica.
            sleep(rng.time(Duration::from_mins(2))).await;
            client.move_to(&gateways[rng.one_of(&[0, 1])]).await;
        }
        client.follow(rng.time(Duration::from_secs(20))).await;
        assert!(client.lists <= step + 1);
    }
    cluster.node.disable_chaos();
    cluster.node.heal_all().await;
    client.follow(SETTLED).await;
    for gateway in &gateways {
        assert_eq!(client.known, present(&cluster, gateway).await);
    }
    assert!(client.known.len() > 3, "{:?}", client.known);
    let continued = client.lists;
    assert!(
        continued < STEPS / 4,
        "most streams continue: {continued} lists"
    );
}
