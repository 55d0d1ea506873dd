//! Columns of Pods. STATUS follows the real server (`CrashLoopBackOff`, `OOMKilled`,
//! `Terminating`).

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Column, age, builtin};

pub(crate) fn columns() -> Vec<Column> {
    vec![
        builtin::name(),
        Column::computed("Ready", |pod, _| ready(pod)),
        Column::computed("Status", |pod, _| json!(status(pod))),
        Column::computed("Restarts", restarts),
        builtin::age_column(),
        Column::wide("IP", |pod, _| or_none(&pod["status"]["podIP"])),
        Column::wide("Node", |pod, _| or_none(&pod["spec"]["nodeName"])),
        Column::wide("Nominated Node", |pod, _| {
            or_none(&pod["status"]["nominatedNodeName"])
        }),
        Column::wide("Readiness Gates", |_, _| json!("<none>")),
    ]
}

fn or_none(value: &Value) -> Value {
    json!(
        value
            .as_str()
            .filter(|text| !text.is_empty())
            .unwrap_or("<none>")
    )
}

fn list<'a>(pod: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> {
    pod["status"][field].as_array().into_iter().flatten()
}

fn ready(pod: &Value) -> Value {
    let all = pod["spec"]["containers"].as_array().map_or(0, Vec::len);
    let ready = list(pod, "containerStatuses")
        .filter(|container| container["ready"] == true)
        .count();
    json!(format!("{ready}/{all}"))
}

fn status(pod: &Value) -> String {
    let text = |value: &Value| {
        value
            .as_str()
            .filter(|text| !text.is_empty())
            .map(str::to_owned)
    };
    let deleting = pod["metadata"]["deletionTimestamp"].is_string();
    if deleting && pod["status"]["reason"] == "NodeLost" {
        return "Unknown".to_owned();
    }
    if deleting
        && !matches!(
            pod["status"]["phase"].as_str(),
            Some("Succeeded" | "Failed")
        )
    {
        return "Terminating".to_owned();
    }
    let overall = || text(&pod["status"]["reason"]).or_else(|| text(&pod["status"]["phase"]));
    initializing(pod)
        .or_else(|| containers(pod))
        .or_else(overall)
        .unwrap_or_else(|| "Unknown".to_owned())
}

fn initializing(pod: &Value) -> Option<String> {
    let total = pod["spec"]["initContainers"].as_array().map_or(0, Vec::len);
    let done = |container: &Value| {
        container["state"]["terminated"]["exitCode"] == 0 || container["started"] == true
    };
    let (index, container) = list(pod, "initContainerStatuses")
        .enumerate()
        .find(|(_, container)| !done(container))?;
    let state = &container["state"];
    if state["terminated"].is_object() {
        return Some(format!("Init:{}", termination(&state["terminated"])));
    }
    match state["waiting"]["reason"].as_str() {
        Some(reason) if reason != "PodInitializing" => Some(format!("Init:{reason}")),
        _ => Some(format!("Init:{index}/{total}")),
    }
}

fn containers(pod: &Value) -> Option<String> {
    let reason = |container: &Value| {
        let state = &container["state"];
        let waiting = state["waiting"]["reason"].as_str().map(str::to_owned);
        waiting.or_else(|| {
            state["terminated"]
                .is_object()
                .then(|| termination(&state["terminated"]))
        })
    };
    let reason = list(pod, "containerStatuses").find_map(reason)?;
    let running = list(pod, "containerStatuses").any(|container| container["ready"] == true);
    Some(if reason == "Completed" && running {
        "Running".to_owned()
    } else {
        reason
    })
}

fn termination(state: &Value) -> String {
    match (state["reason"].as_str(), state["signal"].as_i64()) {
        (Some(reason), _) if !reason.is_empty() => reason.to_owned(),
        (_, Some(signal)) if signal != 0 => format!("Signal:{signal}"),
        _ => format!("ExitCode:{}", state["exitCode"].as_i64().unwrap_or(0)),
    }
}

fn restarts(pod: &Value, now: Timestamp) -> Value {
    let count: i64 = list(pod, "containerStatuses")
        .filter_map(|container| container["restartCount"].as_i64())
        .sum();
    let ends = list(pod, "containerStatuses")
        .filter_map(|container| container["lastState"]["terminated"]["finishedAt"].as_str());
    match ends.max().filter(|_| count > 0) {
        Some(last) => json!(format!("{count} ({} ago)", age::since(Some(last), now))),
        None => json!(count.to_string()),
    }
}
