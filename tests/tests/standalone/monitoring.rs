//! A real Prometheus reads the metrics of a standalone, and answers every query of the alerts and
//! dashboards with data of what the test has done before. When sandboxes fail, their alert fires.
//! Probes are for clusters: their panels have data of a controller whose node is scripted.

use std::collections::BTreeSet;
use std::time::Duration;

use client::Level;
use operator::admin_server;
use operator::controller::UserNamespaces;
use serde_json::{Value, json};
use tests::fork_session::snapshot;
use tests::monitoring::{NAMESPACE, Query, alert_rules, queries, rule_file, variables};
use tests::persistence_session::{pause, start_body};
use tests::prometheus::Prometheus;
use tests::session::Session;
use tests::test_cluster::{PodScript, TestCluster};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::fixture::{self, Fixture};
use crate::full_builds::{self, Scene};

/// Rounds of queries until each has data, and the pause between them.
const MAX_ROUNDS: u32 = 120;
const ROUND_INTERVAL: Duration = Duration::from_millis(500);

/// Alert that fires here, and sandboxes that fail for it: more than its threshold of five.
const ALERT: &str = "SandboxOperatorSandboxesFail";
const FAILING: usize = 7;

/// Panels without data of a standalone, which runs no probes.
const OF_PROBES: [&str; 2] = [
    "controller.json: Age of the probes",
    "controller.json: Cluster probes",
];
/// Pod of a probe.
const PROBE_POD: &str = "sandbox-user-namespace-probe";

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

    let (of_probes, others): (Vec<_>, Vec<_>) = queries().into_iter().partition(is_of_probes);
    wait_for_data(&prometheus, others).await;
    variables_have_values(&prometheus).await;
    let missing = without_data(&prometheus, of_probes).await;
    assert_eq!(missing.len(), OF_PROBES.len(), "not only of clusters");
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

#[tokio::test]
async fn panels_of_probes_have_data_of_a_controller() {
    let mut cluster = TestCluster::without_controller();
    cluster.config.pods.user_namespaces = UserNamespaces::Auto;
    cluster.node.script_next_pod(PROBE_POD, PodScript::Succeeds);
    cluster.start_controller();
    let target = serve_metrics(&cluster).await;
    let labels = json!({"namespace": NAMESPACE, "pod": "controller"});
    let prometheus = Prometheus::start(&target, &labels, &rule_file(&[])).await;
    let panels: Vec<_> = queries().into_iter().filter(is_of_probes).collect();
    assert_eq!(panels.len(), OF_PROBES.len(), "a panel is missing");
    wait_for_data(&prometheus, panels).await;
    let query = r#"sandbox_operator_cluster_probe_works{probe="user_namespaces"}"#;
    let works = prometheus.query(query).await;
    assert_eq!(works.len(), 1, "{works:?}");
    assert_eq!(works[0]["value"][1], "1");
}

/// Serves the metrics of the controller until the test ends. Returns the address.
async fn serve_metrics(cluster: &TestCluster) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let vitals = cluster.config.vitals.clone();
    let serving = admin_server::serve(listener, vitals, CancellationToken::new());
    tokio::spawn(serving);
    address.to_string()
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

/// Starts, claims, pauses, resumes, a wake, a snapshot, a full build, restarts, failures and errors.
async fn do_everything(scene: &Scene) {
    let fixture = &scene.fixture;
    let build = format!("FROM {}\nRUN true\n", scene.base);
    let id = scene.submit(&build, "built").await;
    // The gateway counts the builds that it ends. The first one ends in the controller, and this one
    // at once, because it exists.
    assert_eq!(scene.submit(&build, "built").await, id);
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
    apply_with_taken_name(fixture);
    // An id that the API server is asked for.
    let stranger = fixture.url("/runtime/aaaabbbbccccdddd");
    assert_eq!(fixture.wire().get(&stranger).await.status, 404);
    assert_eq!(scene.end(&id).await.status, "SUCCESS");
}

/// A sandbox whose Pod cannot be created, because another one has its name: its reconciles fail. No
/// alert names this error, which only the user can end.
fn apply_with_taken_name(fixture: &Fixture) {
    fixture.kubectl("run taken --image=host --restart=Never -- true");
    fixture.apply("taken", &json!({"image": "host", "command": ["true"]}));
    fixture.kubectl("wait --for=jsonpath={.status.reason}=NameTaken sbx/taken --timeout=60s");
}

fn is_of_probes(query: &Query) -> bool {
    OF_PROBES.contains(&query.place.as_str())
}

/// Waits until every query has data.
async fn wait_for_data(prometheus: &Prometheus, mut missing: Vec<Query>) {
    for _ in 0..MAX_ROUNDS {
        missing = without_data(prometheus, missing).await;
        if missing.is_empty() {
            return;
        }
        tokio::time::sleep(ROUND_INTERVAL).await;
    }
    let places: BTreeSet<_> = missing.iter().map(|query| &query.place).collect();
    panic!("no data: {places:?}");
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

/// Asserts that each variable of the dashboards offers the namespace of this process.
async fn variables_have_values(prometheus: &Prometheus) {
    let all = variables();
    assert!(!all.is_empty(), "dashboards without variables");
    for (metric, label) in all {
        let path = format!("label/{label}/values?match%5B%5D={metric}");
        let answer = prometheus.get(&path).await;
        assert_eq!(answer["data"], json!([NAMESPACE]), "{metric}: {answer}");
    }
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
