//! The alerts and dashboards of the chart, as Prometheus gets them.

use std::collections::BTreeSet;
use std::fs;

use serde_json::{Value, json};

use crate::cli_tools::{CHART, file, helm};

/// Namespace of the rendered release.
pub const NAMESPACE: &str = "operator";
/// Dashboards, from the root of the checkout.
pub const DASHBOARDS: &str = "charts/sandbox-operator/files/dashboards";

/// Query of a panel or of an alert.
#[derive(Debug, Clone)]
pub struct Query {
    /// Dashboard and panel, or alert.
    pub place: String,
    pub text: String,
}

/// Objects of `templates/metrics.yaml` with these values.
pub fn render(values: &str) -> Vec<Value> {
    let values = format!("--set=baseUrl=https://rt.example.com,{values}");
    let output = helm(&[
        "template",
        "release",
        CHART,
        "--namespace",
        NAMESPACE,
        "--show-only=templates/metrics.yaml",
        &values,
    ]);
    let documents = output.split("\n---\n");
    let objects = documents.map(|text| serde_yaml::from_str(text.trim_start_matches("---\n")));
    objects.map(|object| object.unwrap()).collect()
}

/// Rules of the alerts with the default thresholds.
pub fn alert_rules() -> Vec<Value> {
    let objects = render("metrics.prometheusRule.enabled=true");
    let rules = objects[0]["spec"]["groups"][0]["rules"].as_array();
    rules.expect("rules").clone()
}

/// A rule file for Prometheus with these rules.
pub fn rule_file(rules: &[Value]) -> String {
    json!({"groups": [{"name": "sandbox-operator", "rules": rules}]}).to_string()
}

/// All dashboards with the names of their files.
pub fn dashboards() -> Vec<(String, Value)> {
    let files = fs::read_dir(file(DASHBOARDS)).unwrap();
    let files = files.map(|file| file.unwrap().path());
    let read = |path: std::path::PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let text = fs::read_to_string(path).unwrap();
        (name, serde_json::from_str(&text).unwrap())
    };
    let mut all: Vec<(String, Value)> = files.map(read).collect();
    all.sort_by(|a, b| a.0.cmp(&b.0));
    all
}

/// Queries of all panels and alerts, with values for the variables of Grafana.
pub fn queries() -> Vec<Query> {
    let of_dashboards = dashboards().into_iter().flat_map(|(name, dashboard)| {
        let panels = dashboard["panels"].as_array().unwrap().clone();
        panels.into_iter().flat_map(move |panel| {
            let place = format!("{name}: {}", panel["title"].as_str().unwrap());
            let targets = panel["targets"].as_array().cloned().unwrap_or_default();
            targets.into_iter().map(move |target| Query {
                place: place.clone(),
                text: with_values(target["expr"].as_str().unwrap()),
            })
        })
    });
    let of_alerts = alert_rules().into_iter().map(|rule| Query {
        place: rule["alert"].as_str().unwrap().to_owned(),
        text: rule["expr"].as_str().unwrap().to_owned(),
    });
    of_dashboards.chain(of_alerts).collect()
}

/// Metrics and labels whose values the variables of the dashboards can have: each is queried as
/// `label_values(METRIC, LABEL)`.
pub fn variables() -> BTreeSet<(String, String)> {
    let all = dashboards().into_iter().flat_map(|(_, dashboard)| {
        let variables = dashboard["templating"]["list"].as_array().unwrap().clone();
        variables.into_iter().filter(|one| one["type"] == "query")
    });
    let parts = |variable: Value| {
        let query = variable["query"]["query"].as_str().unwrap();
        let inner = query.strip_prefix("label_values(").unwrap();
        let (metric, label) = inner.trim_end_matches(')').split_once(", ").unwrap();
        (metric.to_owned(), label.to_owned())
    };
    all.map(parts).collect()
}

/// Replaces the variables of Grafana; those that nothing replaces are invalid.
fn with_values(query: &str) -> String {
    let query = query.replace("$namespace", NAMESPACE);
    let query = query.replace("$__rate_interval", "20s");
    query.replace("$__range", "1m")
}
