//! A real Prometheus reads the metrics of a standalone, and answers every query of the alerts and
//! dashboards with data of what the test has done before. When sandboxes fail, their alert fires.

use std::collections::BTreeSet;
use std::time::Duration;

use client::Level;
use serde_json::{Value, json};
use tests::fork_session::snapshot;
use tests::monitoring::{NAMESPACE, Query, alert_rules, queries, rule_file};
use tests::persistence_session::{pause, start_body};
use tests::prometheus::Prometheus;
use tests::session::Session;

use crate::fixture;
use crate::full_builds::{self, Scene};

/// Rounds of queries until each has data, and the pause between them.
const MAX_ROUNDS: u32 = 120;
const ROUND_INTERVAL: Duration = Duration::from_millis(500);

/// Alert that fires here, and sandboxes that fail for it: more than its threshold of five.
const ALERT: &str = "SandboxOperatorSandboxesFail";
const FAILING: usize = 7;

/// Panels without data here: nothing of the kind happens on one machine, or in this test. Their
/// metrics exist, as `chart/monitoring.rs` checks.
const WITHOUT_DATA: [&str; 5] = [
    "controller.json: Age of the probes",
    "controller.json: Cluster probes",
    "controller.json: Errors",
    "controller.json: Errors per second",
    "sandboxes.json: Builds of clients",
];

#[tokio::test]
async fn every_query_has_data_of_a_live_process() {
    let Some(scene) = full_builds::scene_with(&["--warm-pods", "1"]) else {
        return;
    };
    let fixture = &scene.fixture;
    let target = fixture.api().trim_start_matches("http://").to_owned();
    let labels = json!({"namespace": NAMESPACE, "pod": "standalone"});
    let rules = impatient(alert_rules());
    let prometheus = Prometheus::start(&target, &labels, &rule_file(&rules)).await;
    do_everything(&scene).await;

    let mut missing = queries();
    for place in WITHOUT_DATA {
        assert!(
            missing.iter().any(|query| query.place == place),
            "no panel: {place}"
        );
    }
    for _ in 0..MAX_ROUNDS {
        missing = without_data(&prometheus, missing).await;
        if unexpected(&missing).is_empty() {
            break;
        }
        tokio::time::sleep(ROUND_INTERVAL).await;
    }
    assert_eq!(unexpected(&missing), BTreeSet::new(), "no data");
    rules_are_healthy(&prometheus, rules.len()).await;
    // Nothing is wrong with this process so far: one failed sandbox is not enough.
    assert_eq!(firing(&prometheus).await, Vec::<Value>::new());
    let names: Vec<_> = (0..FAILING)
        .map(|number| format!("failing-{number}"))
        .collect();
    for name in &names {
        fixture.apply(name, &json!({"image": "host", "command": ["false"]}));
    }
    for name in &names {
        fixture.kubectl(&format!(
            "wait --for=condition=Failed sbx/{name} --timeout=120s"
        ));
    }
    failed_sandboxes_fire(&prometheus).await;
}

/// Rules that wait seconds where those of the chart wait minutes. The thresholds are the same.
fn impatient(mut rules: Vec<Value>) -> Vec<Value> {
    for rule in &mut rules {
        if rule["alert"] == ALERT {
            rule["for"] = "2s".into();
        }
    }
    rules
}

async fn firing(prometheus: &Prometheus) -> Vec<Value> {
    let answer = prometheus.get("alerts").await;
    let mut alerts = answer["data"]["alerts"].as_array().unwrap().clone();
    alerts.retain(|alert| alert["state"] == "firing");
    alerts
}

/// Waits for the alert; no other fires.
async fn failed_sandboxes_fire(prometheus: &Prometheus) {
    for _ in 0..MAX_ROUNDS {
        let alerts = firing(prometheus).await;
        if let [alert] = &alerts[..] {
            let labels = json!({"alertname": ALERT, "severity": "warning", "reason": "CrashLoop"});
            assert_eq!(alert["labels"], labels);
            let summary = alert["annotations"]["summary"].as_str().unwrap();
            assert!(summary.ends_with("sandboxes have failed in half an hour: CrashLoop."));
            return;
        }
        assert_eq!(alerts, Vec::<Value>::new());
        tokio::time::sleep(ROUND_INTERVAL).await;
    }
    panic!("no alert: {}", prometheus.get("rules").await);
}

/// Starts, claims, pauses, resumes, a wake, a snapshot, a full build, restarts and failures.
async fn do_everything(scene: &Scene) {
    let fixture = &scene.fixture;
    let build = format!("FROM {}\nRUN true\n", scene.base);
    let id = scene.submit(&build, "built").await;
    fixture.kubectl("wait --for=condition=Ready sbxp/warm --timeout=60s");
    let mut claimed = fixture::start_body("claimed");
    claimed["image"] = "host".into();
    Session::start(fixture.api(), fixture.key(), &claimed).await;
    let body = start_body("created", "host");
    let session = Session::start(fixture.api(), fixture.key(), &body).await;
    snapshot(&session, Level::Workspace).await;
    pause(&session).await;
    session.resume().await;
    session.ready().await;
    let idle = json!({"lifecycle": {"idleTimeout": "1s"}});
    fixture.patch(&session.id, &idle);
    let paused = format!(
        "wait --for=jsonpath={{.status.phase}}=Paused sbx/{}",
        session.id
    );
    fixture.kubectl(&format!("{paused} --timeout=120s"));
    fixture.patch(&session.id, &json!({"lifecycle": {"idleTimeout": "10m"}}));
    session.run("true").await;
    fixture.apply("crashing", &json!({"image": "host", "command": ["false"]}));
    fixture.kubectl("wait --for=condition=Failed sbx/crashing --timeout=120s");
    // An id that the API server is asked for.
    let stranger = fixture.url("/runtime/aaaabbbbccccdddd");
    assert_eq!(fixture.wire().get(&stranger).await.status, 404);
    assert_eq!(scene.end(&id).await.status, "SUCCESS");
}

/// Queries without a result.
async fn without_data(prometheus: &Prometheus, queries: Vec<Query>) -> Vec<Query> {
    let mut missing = Vec::new();
    for query in queries {
        let result = prometheus.query(&query.text).await;
        // An alert has no result while all is well.
        if result.is_empty() && query.place.contains(": ") {
            missing.push(query);
        }
    }
    missing
}

fn unexpected(missing: &[Query]) -> BTreeSet<&str> {
    let places = missing.iter().map(|query| query.place.as_str());
    places
        .filter(|place| !WITHOUT_DATA.contains(place))
        .collect()
}

async fn rules_are_healthy(prometheus: &Prometheus, count: usize) {
    let answer = prometheus.get("rules").await;
    let rules = answer["data"]["groups"][0]["rules"].as_array().unwrap();
    assert_eq!(rules.len(), count);
    for rule in rules {
        assert_eq!(
            (&rule["health"], rule.get("lastError")),
            (&Value::from("ok"), None),
            "{rule}"
        );
    }
}
