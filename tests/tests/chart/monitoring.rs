//! Alerts and dashboards: what the chart installs, with metrics that exist and documents that explain
//! them. `promtool` tries every alert on made-up series. `standalone/monitoring.rs` runs all queries.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use operator::metrics::{ControllerMetrics, GatewayMetrics, Metrics};
use serde::Deserialize;
use serde_json::{Value, json};

use tests::binaries::root;
use tests::cli_tools::{run_checked, text};
use tests::monitoring::{
    DASHBOARDS, NAMESPACE, alert_rules, dashboards, queries, render, rule_file,
};

/// Metrics of every process.
const OF_PROCESSES: [&str; 4] = [
    "ready",
    "kubernetes_requests",
    "kubernetes_request_duration_seconds",
    "trace_spans",
];
const PREFIX: &str = "sandbox_operator_";
const SUFFIXES: [&str; 4] = ["_total", "_bucket", "_sum", "_count"];

#[test]
fn dashboards_are_those_of_the_script() {
    let folder = tempfile::tempdir().unwrap();
    run_checked("hack/dashboards", &[folder.path().to_str().unwrap()]);
    for (name, _) in dashboards() {
        let made = fs::read_to_string(folder.path().join(&name)).unwrap();
        let same = made == text(&format!("{DASHBOARDS}/{name}"));
        assert!(same, "{name} is old: run `make generate`");
    }
}

/// Grafana shows panels without a query as errors, and those in the place of another one not at all.
#[test]
fn dashboards_have_panels_with_distinct_places_and_ids() {
    let all = dashboards();
    assert_eq!(all.len(), 3);
    for (name, dashboard) in all {
        assert!(dashboard["uid"].as_str().unwrap().len() <= 40, "{name}");
        let panels = dashboard["panels"].as_array().unwrap();
        let (mut ids, mut taken) = (Vec::new(), Vec::new());
        for panel in panels {
            ids.push(panel["id"].as_u64().unwrap());
            let [x, y, w, h] =
                ["x", "y", "w", "h"].map(|side| panel["gridPos"][side].as_u64().unwrap());
            assert!(x + w <= 24, "{name}: {panel}");
            taken.extend((x..x + w).flat_map(|x| (y..y + h).map(move |y| (x, y))));
            let has_queries = panel["targets"]
                .as_array()
                .is_some_and(|all| !all.is_empty());
            assert!(has_queries || panel["type"] == "row", "{name}: {panel}");
        }
        let (panels, area) = (ids.len(), taken.len());
        ids.sort_unstable();
        ids.dedup();
        taken.sort_unstable();
        taken.dedup();
        assert_eq!((ids.len(), taken.len()), (panels, area), "{name}");
    }
}

/// By the schema that Grafana publishes, also in the options of panels and queries.
#[test]
fn dashboards_have_only_what_grafana_knows() {
    let program = run_checked("hack/dashboard-schema/build", &[]);
    let check = |path: &str| Command::new(program.trim()).arg(path).output().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let changed = folder.path().join("changed.json");
    for (name, dashboard) in dashboards() {
        let checked = check(root().join(DASHBOARDS).join(&name).to_str().unwrap());
        assert!(checked.status.success(), "{checked:?}");
        let wrong = dashboard.to_string().replace("legendFormat", "legend");
        fs::write(&changed, wrong).unwrap();
        let checked = check(changed.to_str().unwrap());
        let errors = String::from_utf8_lossy(&checked.stderr);
        assert!(errors.contains("unexpected field 'legend'"), "{errors}");
    }
}

#[test]
fn alerts_and_dashboards_are_installed_on_request() {
    let objects = render("metrics.serviceMonitor.enabled=true");
    assert_eq!(objects.len(), 1, "more than was asked for: {objects:?}");
    let objects = render(
        "metrics.dashboards.enabled=true,metrics.dashboards.namespace=grafana,\
         metrics.dashboards.labels.team=a,metrics.dashboards.annotations.grafana_folder=Sandboxes",
    );
    assert_eq!(objects.len(), 3);
    for (object, (name, dashboard)) in objects.iter().zip(dashboards()) {
        let meta = &object["metadata"];
        assert_eq!(meta["namespace"], "grafana");
        assert_eq!(meta["labels"]["grafana_dashboard"], "1");
        assert_eq!(meta["labels"]["team"], "a");
        assert_eq!(meta["annotations"], json!({"grafana_folder": "Sandboxes"}));
        let data: Value = serde_json::from_str(object["data"][&name].as_str().unwrap()).unwrap();
        assert_eq!(data, dashboard);
    }
    let objects = render(
        "metrics.prometheusRule.enabled=true,metrics.prometheusRule.thresholds.queueDepth=7,\
         metrics.prometheusRule.runbookUrl=https://wiki.example.com/alerts",
    );
    let rules = objects[0]["spec"]["groups"][0]["rules"].as_array().unwrap();
    let queue = rules
        .iter()
        .find(|rule| rule["alert"] == "SandboxOperatorQueueGrows");
    let expected = format!("max(sandbox_operator_queue_depth{{namespace=\"{NAMESPACE}\"}}) > 7");
    assert_eq!(queue.unwrap()["expr"], expected);
    let url = "https://wiki.example.com/alerts#sandboxoperatorqueuegrows";
    assert_eq!(queue.unwrap()["annotations"]["runbook_url"], url);
}

/// Names of all metrics, without prefix and suffix.
fn registered() -> Vec<&'static str> {
    let roles = [
        ControllerMetrics::NAMES,
        GatewayMetrics::NAMES,
        &OF_PROCESSES,
    ];
    roles.concat()
}

#[test]
fn every_query_names_metrics_that_exist() {
    let known = registered();
    for query in queries() {
        let words = query
            .text
            .split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let named: Vec<_> = words.filter_map(|word| word.strip_prefix(PREFIX)).collect();
        assert!(!named.is_empty(), "{query:?}");
        for name in named {
            let bare = SUFFIXES.iter().find_map(|suffix| name.strip_suffix(suffix));
            assert!(known.contains(&bare.unwrap_or(name)), "{name} of {query:?}");
        }
    }
}

/// Prometheus does not count the first value of a series as an increase.
#[test]
fn counters_whose_increase_is_an_alert_begin_at_zero() {
    let metrics = Metrics::default();
    metrics.add(|registry| ControllerMetrics::with_series().register(registry));
    let text = metrics.encode().unwrap();
    let rules = alert_rules();
    let increases = rules.iter().flat_map(|rule| {
        let parts = rule["expr"].as_str().unwrap().split("increase(").skip(1);
        parts.map(|part| part.split('{').next().unwrap())
    });
    let increases: Vec<_> = increases.collect();
    assert!(!increases.is_empty());
    for name in increases {
        let series = format!("{name}{{");
        assert!(
            text.lines().any(|line| line.starts_with(&series)),
            "{name} has no series before its first event"
        );
    }
}

#[test]
fn every_metric_is_documented() {
    let document = text("docs/observability.md");
    let (of_controllers, of_gateways) = document.split_once("\n## Gateway\n").unwrap();
    for name in registered() {
        let (table, name) = match name.strip_prefix("gateway_") {
            Some(name) => (of_gateways, name),
            None => (of_controllers, name),
        };
        let is_named = [PREFIX, "…_", ""].iter().any(|prefix| {
            let name = format!("`{prefix}{name}");
            table.contains(&format!("{name}`")) || table.contains(&format!("{name}_total`"))
        });
        assert!(is_named, "docs/observability.md does not know {name}");
    }
}

#[test]
fn every_alert_has_a_summary_and_a_section() {
    let document = text("docs/alerts.md");
    let sections: Vec<_> = document
        .lines()
        .filter_map(|line| line.strip_prefix("## Sandbox"))
        .collect();
    let rules = alert_rules();
    assert_eq!(sections.len(), rules.len());
    for rule in rules {
        let name = rule["alert"].as_str().unwrap();
        assert!(
            document.contains(&format!("\n## {name}\n")),
            "docs/alerts.md lacks {name}"
        );
        let annotations = rule["annotations"].as_object().unwrap();
        let names: Vec<_> = annotations.keys().collect();
        assert_eq!(names, ["runbook_url", "summary"], "{rule}");
        let runbook = format!("docs/alerts.md#{}", name.to_lowercase());
        assert_eq!(annotations["runbook_url"], runbook);
        assert!(
            annotations["summary"].as_str().unwrap().ends_with('.'),
            "{rule}"
        );
        let severity = rule["labels"]["severity"].as_str().unwrap();
        assert!(
            ["critical", "warning", "info"].contains(&severity),
            "{rule}"
        );
    }
}

/// Series on which an alert is silent at one minute and fires at another.
#[derive(Debug, Deserialize)]
struct Example {
    silent: u32,
    fires: u32,
    /// Name without prefix and labels, with values in the notation of `promtool`.
    series: BTreeMap<String, String>,
}

#[test]
fn every_alert_is_silent_and_fires_when_it_should() {
    let examples: BTreeMap<String, Example> =
        serde_yaml::from_str(include_str!("alerts.yaml")).unwrap();
    let rules = alert_rules();
    let names: Vec<_> = rules
        .iter()
        .map(|rule| rule["alert"].as_str().unwrap())
        .collect();
    for name in &names {
        assert!(examples.contains_key(*name), "no example of {name}");
    }
    let tests: Vec<_> = examples
        .iter()
        .map(|(name, example)| unit_test(name, example))
        .collect();
    assert_eq!(tests.len(), names.len(), "an example of no alert");
    let tests = json!({"rule_files": ["rules.json"], "evaluation_interval": "1m", "tests": tests});
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: String| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let rules = write("rules.json", rule_file(&rules));
    promtool(&["check", "rules"], &rules);
    promtool(&["test", "rules"], &write("tests.json", tests.to_string()));
}

fn promtool(words: &[&str], file: &Path) {
    let file = file.to_str().unwrap();
    run_checked("promtool", &[words, &[file]].concat());
}

fn unit_test(alert: &str, example: &Example) -> Value {
    let series = example.series.iter().map(|(series, values)| {
        let (name, labels) = series.split_once('{').unwrap();
        let more = format!("namespace=\"{NAMESPACE}\",pod=\"a\"");
        let comma = if labels == "}" { "" } else { "," };
        json!({"series": format!("{PREFIX}{name}{{{more}{comma}{labels}"), "values": values})
    });
    let firing =
        format!("count by (alertname) (ALERTS{{alertname=\"{alert}\",alertstate=\"firing\"}})");
    let sample = json!({"labels": format!("{{alertname=\"{alert}\"}}"), "value": 1});
    let look = |minute: u32, samples: &[Value]| json!({"expr": firing, "eval_time": format!("{minute}m"), "exp_samples": samples});
    json!({
        "name": alert, "interval": "1m", "input_series": series.collect::<Vec<_>>(),
        "promql_expr_test": [look(example.silent, &[]), look(example.fires, &[sample])],
    })
}
