use serde_json::json;

use shared::metrics::ControllerMetrics;

use super::*;
use crate::facts::PodFacts;
use crate::tests::key;

/// A Pod with these facts.
pub(in crate::pools) fn warm_pod(shape: &str, facts: Arc<PodFacts>, is_taken: bool) -> WarmPod {
    WarmPod {
        resource_version: "1".into(),
        shape: shape.into(),
        revision: shape.into(),
        facts,
        taken: is_taken.then(|| Taken {
            at: Instant::now(),
            by: None,
        }),
        is_confirmed: true,
        _metered: None,
    }
}

fn index() -> WarmPodIndex {
    let meter = PodMeter::new(ControllerMetrics::default());
    WarmPodIndex::new(Arc::default(), meter)
}

fn pod(name: &str, version: u32, is_ready: bool) -> SlimPod {
    let state = if is_ready { "running" } else { "waiting" };
    let container = json!({"name": "sandbox", "state": {state: {}}});
    serde_json::from_value(json!({
        "metadata": {"namespace": "ns", "name": name, "uid": name,
            "resourceVersion": version.to_string(),
            "annotations": {"openhands.dev/shape": "shape"}},
        "status": {"phase": if is_ready { "Running" } else { "Pending" }, "podIP": "10.0.0.1",
            "containerStatuses": [container]},
    }))
    .unwrap()
}

/// Name of the Pod that a sandbox takes.
fn taken(index: &WarmPodIndex, by: &str) -> Option<String> {
    let pod = index.take_ready(&key("p"), "shape", by)?;
    Some(pod.facts.name.clone())
}

#[test]
fn ready_pod_is_taken_once() {
    let index = index();
    index.apply(key("p"), &pod("starting", 1, false), true);
    index.apply(key("p"), &pod("ready", 2, true), true);
    assert!(index.take_ready(&key("p"), "other", "a").is_none());
    assert!(index.take_ready(&key("q"), "shape", "a").is_none());
    assert!(index.has_ready(&key("p"), "shape", 0, "b"));
    assert_eq!(taken(&index, "a").as_deref(), Some("ready"));
    assert!(!index.has_ready(&key("p"), "shape", 0, "b"));
    assert_eq!(taken(&index, "b"), None);
    // A change of the Pod does not end the claim.
    index.apply(key("p"), &pod("ready", 3, true), true);
    assert_eq!(taken(&index, "b"), None);
    // A claim whose outcome is unknown is repeated with the same Pod, before another one.
    index.apply(key("p"), &pod("second", 1, true), true);
    assert_eq!(taken(&index, "a").as_deref(), Some("ready"));
    index.give_back(&key("p"), "ready");
    assert_eq!(taken(&index, "b").as_deref(), Some("second"));
    assert_eq!(taken(&index, "c").as_deref(), Some("ready"));
    index.remove(key("p"), "ready", "ready");
    index.apply(key("p"), &pod("ready", 4, true), true);
    assert_eq!(taken(&index, "d"), None, "a late event restored it");
}

#[test]
fn list_removes_only_pods_that_it_could_have() {
    let index = index();
    index.apply(key("p"), &pod("created", 2, true), false);
    index.apply(key("p"), &pod("listed", 1, true), true);
    index.retain(&HashSet::new());
    let left = || {
        index
            .of(&key("p"))
            .into_iter()
            .map(|pod| pod.facts.name.clone())
    };
    assert_eq!(left().collect::<Vec<_>>(), ["created"]);
    index.apply(key("p"), &pod("created", 2, true), true);
    index.retain(&HashSet::new());
    assert_eq!(left().count(), 0);
    assert!(index.pools().is_empty());
}
