//! The black-box checklist (`docs/specs/runtime-api.md`, section 8.1) as far as it is about several things at once, against
//! two replicas of the gateway that share nothing but the API server.

use std::collections::HashSet;
use std::time::Duration;

use crds::Sandbox;
use crds::sandbox::Phase;
use futures::future::join_all;
use serde_json::{Value, json};
use tests::clients::text;
use tests::fault_injection::Outage;
use tests::test_cluster::{TestCluster, TestGateway, start_body};
use tokio::time::{Instant, sleep};

/// Lag of the watches, during which the replicas differ.
const LAG: Duration = Duration::from_secs(2);

async fn stage() -> (TestCluster, [TestGateway; 2]) {
    let cluster = TestCluster::new();
    let gateways = [cluster.gateway().await, cluster.gateway().await];
    cluster.faults().set_watch_lag(LAG);
    (cluster, gateways)
}

async fn start(gateway: &TestGateway, session: &str) -> Value {
    gateway.start(&start_body(session)).await
}

#[tokio::test(start_paused = true)]
async fn item_1_start_on_one_replica_is_visible_on_the_other() {
    let (_world, [one, other]) = stage().await;
    let begun = Instant::now();
    let started = start(&one, "s").await;
    assert!(begun.elapsed() <= Duration::from_secs(2));
    let id = started["runtime_id"].as_str().unwrap();
    for path in [format!("/runtime/{id}"), "/sessions/s".into()] {
        let answer = other.get(&path).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        assert!(answer.body["pod_status"].is_string());
    }
    let batch = other.get("/sessions/batch?ids=x&ids=s").await.body;
    assert!(batch[0].is_null());
    assert_eq!(batch[1]["runtime_id"], id);
}

#[tokio::test(start_paused = true)]
async fn item_3_concurrent_starts_of_ten_sessions_make_ten_runtimes() {
    let (cluster, gateways) = stage().await;
    let starts = (0..160).map(|n| {
        let (gateway, session) = (gateways[n % 2].clone(), format!("s{}", n / 16));
        async move {
            let info = start(&gateway, &session).await;
            ["session_id", "runtime_id", "url", "session_api_key"].map(|f| text(&info, f))
        }
    });
    let made: HashSet<_> = join_all(starts).await.into_iter().collect();
    assert_eq!(made.len(), 10, "{made:?}");
    assert_eq!(cluster.names::<Sandbox>().await.len(), 10);
}

#[tokio::test(start_paused = true)]
async fn items_4_and_5_changes_on_one_replica_apply_to_the_other() {
    let (cluster, [one, other]) = stage().await;
    let first = start(&one, "s").await;
    let id = json!({"runtime_id": first["runtime_id"]});
    let name = first["runtime_id"].as_str().unwrap();
    cluster.wait_for_phase(name, Phase::Running).await;
    assert_eq!(one.post("/pause", &id).await.status, 200);
    assert_eq!(one.get("/sessions/s").await.body["status"], "paused");
    // A start through the replica that has not heard of it yet resumes it all the same.
    let resumed = start(&other, "s").await;
    assert_eq!(resumed["runtime_id"], first["runtime_id"]);
    cluster.wait_for_phase(name, Phase::Running).await;
    assert_eq!(other.post("/stop", &id).await.status, 200);
    let second = start(&one, "s").await;
    for field in ["runtime_id", "session_api_key"] {
        assert_ne!(second[field], first[field]);
    }
    for gateway in [&one, &other] {
        assert_eq!(gateway.post("/stop", &id).await.status, 200);
        assert_eq!(gateway.post("/resume", &id).await.status, 404);
    }
    sleep(2 * LAG).await;
    for gateway in [&one, &other] {
        let newest = gateway.get("/sessions/s").await.body;
        assert_eq!(newest["runtime_id"], second["runtime_id"]);
    }
}

/// A replica answers once its own watch has delivered the write, which is when the others know.
#[tokio::test(start_paused = true)]
async fn item_4_answered_pause_and_resume_are_visible_on_every_replica() {
    let (cluster, [one, other]) = stage().await;
    let first = start(&one, "s").await;
    let id = json!({"runtime_id": first["runtime_id"]});
    let name = first["runtime_id"].as_str().unwrap();
    cluster.wait_for_phase(name, Phase::Running).await;
    sleep(2 * LAG).await;
    let said =
        async |gateway: &TestGateway| gateway.get("/sessions/s").await.body["status"].clone();
    for (verb, before, after) in [
        ("/pause", "running", "paused"),
        ("/resume", "paused", "running"),
    ] {
        assert_eq!(one.post(verb, &id).await.status, 200);
        assert_ne!(said(&one).await, before, "{verb}");
        assert_ne!(said(&other).await, before, "{verb}");
        // The controller does its part, and both hear of it.
        sleep(Duration::from_mins(1)).await;
        for gateway in [&one, &other] {
            assert_eq!(said(gateway).await, after, "{verb}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn concurrent_state_changes_on_both_replicas_are_answered() {
    let (cluster, gateways) = stage().await;
    for session in ["a", "b", "c"] {
        let started = start(&gateways[0], session).await;
        let id = json!({"runtime_id": started["runtime_id"]});
        let calls = (0..30).map(|n| {
            let (gateway, id) = (gateways[n % 2].clone(), id.clone());
            let verb = ["/pause", "/resume", "/start"][n % 3];
            let sent = if verb == "/start" {
                start_body(session)
            } else {
                id
            };
            async move { (verb, gateway.post(verb, &sent).await) }
        });
        for (verb, answer) in join_all(calls).await {
            let expected = if verb == "/start" { 201 } else { 200 };
            assert_eq!(answer.status, expected, "{verb}: {}", answer.body);
            assert_eq!(answer.body["runtime_id"], started["runtime_id"]);
        }
        let stops = gateways.iter().map(|gateway| gateway.post("/stop", &id));
        for answer in join_all(stops).await {
            assert_eq!(answer.status, 200, "{}", answer.body);
        }
    }
    sleep(2 * LAG).await;
    assert_eq!(cluster.names::<Sandbox>().await.len(), 3);
    for gateway in &gateways {
        assert_eq!(gateway.get("/list").await.body["total"], 0);
    }
}

#[tokio::test(start_paused = true)]
async fn item_8_bursts_of_starts_and_stops_are_all_accepted() {
    let (cluster, gateways) = stage().await;
    cluster.faults().set_latency(Duration::from_millis(5));
    let sessions: Vec<_> = (0..64).map(|n| format!("s{n}")).collect();
    let starts = sessions
        .iter()
        .enumerate()
        .map(|(n, s)| start(&gateways[n % 2], s));
    let limit = Duration::from_secs(10);
    let started = tokio::time::timeout(limit, join_all(starts)).await.unwrap();
    for some in started.chunks(16) {
        let stops = some.iter().enumerate().map(|(n, info)| {
            let (gateway, id) = (&gateways[n % 2], json!({"runtime_id": info["runtime_id"]}));
            async move { gateway.post("/stop", &id).await.status }
        });
        let stopped = tokio::time::timeout(limit, join_all(stops)).await.unwrap();
        assert!(stopped.iter().all(|status| *status == 200), "{stopped:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn item_13_poll_endpoints_survive_outages_and_controller_restarts() {
    let (mut cluster, gateways) = stage().await;
    let started = start(&gateways[0], "s").await;
    let id = json!({"runtime_id": started["runtime_id"]});
    let pollers = gateways.clone().map(|gateway| {
        let path = format!("/runtime/{}", started["runtime_id"].as_str().unwrap());
        tokio::spawn(async move {
            loop {
                for path in ["/sessions/s", "/list", "/sessions/batch?ids=s", &path] {
                    let answer = gateway.get(path).await;
                    assert_eq!(answer.status, 200, "{path}: {}", answer.body);
                }
                sleep(Duration::from_millis(250)).await;
            }
        })
    });
    // By now both have heard of it.
    sleep(2 * LAG).await;
    for (verb, status) in [("/pause", "paused"), ("/resume", "running")] {
        assert_eq!(gateways[1].post(verb, &id).await.status, 200);
        cluster.faults().set_outage(Outage::Refuse);
        cluster.stop_controller();
        sleep(Duration::from_mins(1)).await;
        cluster.faults().set_outage(Outage::None);
        cluster.start_controller();
        sleep(Duration::from_mins(3)).await;
        for gateway in &gateways {
            assert_eq!(gateway.get("/sessions/s").await.body["status"], status);
        }
    }
    for poller in pollers {
        assert!(!poller.is_finished(), "{:?}", poller.await);
    }
}
