//! A Pod waits for the resume of a paused sandbox of level `Memory`, and its processes go on there.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::runtime::wait::await_condition;
use operator::controller::facts::PAUSE_ANNOTATION;
use serde_json::json;
use tokio::time::timeout;

use crate::beats;
use crate::test_namespace::TestNamespace;

/// Time in which a Pod is created and starts.
const START_LIMIT: Duration = Duration::from_mins(1);

/// Waits for the Pod that was created in the pause and whose supervisor waits.
async fn waiting_pod(ns: &TestNamespace, name: &str) -> Pod {
    let waits = |pod: Option<&Pod>| {
        pod.is_some_and(|pod| {
            let phase = pod.status.as_ref().and_then(|it| it.phase.as_deref());
            let ends = pod.metadata.deletion_timestamp.is_some();
            phase == Some("Running") && !ends && pod.annotations().contains_key(PAUSE_ANNOTATION)
        })
    };
    let found = timeout(START_LIMIT, await_condition(ns.pods(), name, waits)).await;
    found.expect("a Pod waits").unwrap().unwrap()
}

#[tokio::test]
#[ignore = "needs a real cluster: make test-cluster"]
async fn processes_go_on_in_the_pod_that_waits_for_the_resume() {
    let ns = TestNamespace::new("warm-resume").await;
    let name = "counts";
    let fields = json!({"lifecycle": {"warmResumeFor": "1h"}});
    let first = beats::start_with(&ns, name, &fields).await;
    let mut used = vec![first.pod_uid];
    for _ in 0..2 {
        beats::pause(&ns, name).await;
        let waiting = waiting_pod(&ns, name).await;
        assert!(!used.contains(&waiting.uid()), "{used:?}");
        ns.patch(name, json!({"state": "Running"})).await;
        beats::assert_goes_on(&ns, name, first.incarnation).await;
        let status = ns.ready(name).await;
        assert_eq!(status.pod_uid, waiting.uid());
        assert_eq!(status.restarts.count, 0);
        used.push(status.pod_uid);
    }
}
