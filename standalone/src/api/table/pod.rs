//! Columns of Pods. STATUS follows the real server (`CrashLoopBackOff`, `OOMKilled`,
//! `Terminating`).

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    AGE,
    Cell::{self, Computed},
    NAME, NONE, age,
};
use crate::api::object::items;

pub(super) const COLUMNS: &[(&str, i32, Cell)] = &[
    NAME,
    ("Ready", 0, Computed(ready)),
    ("Status", 0, Computed(|pod, _| json!(status(pod)))),
    ("Restarts", 0, Computed(restarts)),
    AGE,
    ("IP", 1, Computed(|pod, _| or_none(&pod["status"]["podIP"]))),
    (
        "Node",
        1,
        Computed(|pod, _| or_none(&pod["spec"]["nodeName"])),
    ),
    (
        "Nominated Node",
        1,
        Computed(|pod, _| or_none(&pod["status"]["nominatedNodeName"])),
    ),
    ("Readiness Gates", 1, NONE),
];

fn or_none(value: &Value) -> Value {
    json!(text(value).unwrap_or("<none>"))
}

/// A text that is not empty.
fn text(value: &Value) -> Option<&str> {
    value.as_str().filter(|text| !text.is_empty())
}

fn containers(pod: &Value) -> &[Value] {
    items(&pod["status"]["containerStatuses"])
}

fn ready(pod: &Value, _: Timestamp) -> Value {
    let all = items(&pod["spec"]["containers"]).len();
    let ready = containers(pod)
        .iter()
        .filter(|container| container["ready"] == true);
    json!(format!("{}/{all}", ready.count()))
}

fn status(pod: &Value) -> String {
    let status = &pod["status"];
    if pod["metadata"]["deletionTimestamp"].is_string() {
        if status["reason"] == "NodeLost" {
            return "Unknown".to_owned();
        }
        if !matches!(status["phase"].as_str(), Some("Succeeded" | "Failed")) {
            return "Terminating".to_owned();
        }
    }
    let overall = || text(&status["reason"]).or_else(|| text(&status["phase"]));
    let detailed = initializing(pod).or_else(|| running(pod));
    detailed.unwrap_or_else(|| overall().unwrap_or("Unknown").to_owned())
}

fn initializing(pod: &Value) -> Option<String> {
    let total = items(&pod["spec"]["initContainers"]).len();
    let done = |container: &Value| {
        container["state"]["terminated"]["exitCode"] == 0 || container["started"] == true
    };
    let containers = items(&pod["status"]["initContainerStatuses"]);
    let index = containers.iter().position(|container| !done(container))?;
    let state = &containers[index]["state"];
    if state["terminated"].is_object() {
        return Some(format!("Init:{}", termination(&state["terminated"])));
    }
    match state["waiting"]["reason"].as_str() {
        Some(reason) if reason != "PodInitializing" => Some(format!("Init:{reason}")),
        _ => Some(format!("Init:{index}/{total}")),
    }
}

fn running(pod: &Value) -> Option<String> {
    let reason = |container: &Value| {
        let state = &container["state"];
        let waiting = state["waiting"]["reason"].as_str().map(str::to_owned);
        let terminated = Some(&state["terminated"]).filter(|state| state.is_object());
        waiting.or_else(|| terminated.map(termination))
    };
    let reason = containers(pod).iter().find_map(reason)?;
    let is_ready = containers(pod)
        .iter()
        .any(|container| container["ready"] == true);
    if reason == "Completed" && is_ready {
        return Some("Running".to_owned());
    }
    Some(reason)
}

fn termination(state: &Value) -> String {
    match (text(&state["reason"]), state["signal"].as_i64()) {
        (Some(reason), _) => reason.to_owned(),
        (_, Some(signal)) if signal != 0 => format!("Signal:{signal}"),
        _ => format!("ExitCode:{}", state["exitCode"].as_i64().unwrap_or(0)),
    }
}

fn restarts(pod: &Value, now: Timestamp) -> Value {
    let counts = containers(pod)
        .iter()
        .filter_map(|status| status["restartCount"].as_i64());
    let ends = containers(pod).iter();
    let ends = ends.filter_map(|status| status["lastState"]["terminated"]["finishedAt"].as_str());
    match (counts.sum::<i64>(), ends.max()) {
        (count, Some(last)) if count > 0 => {
            json!(format!("{count} ({} ago)", age(Some(last), now)))
        }
        (count, _) => json!(count.to_string()),
    }
}
