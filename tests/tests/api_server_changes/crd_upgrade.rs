//! The resources of an earlier release give way to today's while objects are stored and the controller
//! runs: what is stored stays usable, even where today's rules refuse it, and new mistakes are refused.

use crds::conditions::Reason;
use crds::sandbox::{Phase, SandboxSpec};
use crds::{Sandbox, SandboxPool};
use futures::future::join_all;
use kube::runtime::wait::await_condition;
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use tests::cli_tools::{CRDS_CHART, established, helm, try_kubectl};
use tokio::time::{Duration, Instant, sleep, timeout};

use crate::controller::Controller;
use crate::fixture::{WAIT_TIMEOUT, deeds, forget_resources, pools, sandboxes, settled, until};
use crate::older_crds;

const SANDBOXES: [&str; 3] = ["sound", "odd", "huge"];
const BAD_SIZE: &str = "must be a quantity such as 10Gi";

/// Amounts that are none, which earlier releases took, and an explicit null.
const STORED: &str = r"
apiVersion: openhands.dev/v1alpha1
kind: Sandbox
metadata: {name: sound}
spec: {image: 'debian:12', command: [sleep, infinity], runtimeClassName: null, workspace: {size: 1Gi}}
---
apiVersion: openhands.dev/v1alpha1
kind: Sandbox
metadata: {name: odd}
spec: {image: 'debian:12', command: [sleep, infinity], resources: {limits: {cpu: much}}}
---
apiVersion: openhands.dev/v1alpha1
kind: Sandbox
metadata: {name: huge}
spec: {image: 'debian:12', command: [sleep, infinity], workspace: {size: 10GB}}
---
apiVersion: openhands.dev/v1alpha1
kind: SandboxPool
metadata: {name: pool}
spec:
  replicas: 0
  template: {image: 'debian:12', resources: {requests: {memory: lots}}, workspace: {size: 10GB}}
";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs an API server of its own: make test-cluster"]
async fn newer_crds_keep_stored_objects_usable() {
    forget_resources();
    let older = older_crds::chart();
    let chart = older.path().to_str().unwrap();
    helm(&["install", "crds", chart, "--wait"]);
    established();
    store(STORED).unwrap();
    let unknown = store(&with_template_of_pod("early")).unwrap_err();
    let field = "unknown field \"spec.podTemplate\"";
    assert!(unknown.contains(field), "{unknown}");
    let controller = Controller::start();
    settled("sound").await;
    for name in ["odd", "huge"] {
        until(name, |status| status.reason == Some(Reason::InvalidSpec)).await;
    }
    let before = (specs().await, deeds("sound"));

    helm(&["upgrade", "crds", CRDS_CHART, "--wait"]);
    todays_rules_hold().await;
    assert_eq!(specs().await, before.0);
    valid_fields_of_an_old_sandbox_can_be_changed().await;
    new_mistakes_are_refused();
    assert_eq!(deeds("sound"), before.1, "nothing has happened to it");
    valid_repaired_and_new_sandboxes_work().await;
    let (status, said) = controller.readyz().await;
    assert_eq!(status, 200, "{said}\n{}", controller.log());
}

/// The API server takes up new rules some time after it was told of them.
async fn todays_rules_hold() {
    let end = Instant::now() + WAIT_TIMEOUT;
    let (huge, pool) = (one_of(STORED, "huge"), one_of(STORED, "pool"));
    for object in [huge.replace("huge", "late"), pool.replace("pool", "late")] {
        while try_kubectl(&["create", "--dry-run=server", "-f", "-"], &object).is_ok() {
            assert!(Instant::now() < end, "the older rules still hold");
            sleep(Duration::from_millis(50)).await;
        }
    }
}

/// And the controller may say so.
async fn valid_fields_of_an_old_sandbox_can_be_changed() {
    for name in ["odd", "huge"] {
        patch(&format!("sandbox/{name}"), &json!({"state": "Paused"})).unwrap();
        until(name, |status| status.phase == Phase::Paused).await;
    }
    patch("sandboxpool/pool", &json!({"replicas": 2})).unwrap();
    let said = |pool: Option<&SandboxPool>| {
        let status = pool.and_then(|pool| pool.status.as_ref());
        status.is_some_and(|status| !status.conditions.is_empty())
    };
    let reported = await_condition(pools().await, "pool", said);
    let reported = timeout(WAIT_TIMEOUT, reported).await;
    reported.expect("the pool waits in vain").unwrap();
}

fn new_mistakes_are_refused() {
    let size = json!({"template": {"workspace": {"size": "20GB"}}});
    let requests = json!({"resources": {"requests": {"memory": "more"}}});
    let template = json!({"template": requests});
    for (object, change, refusal) in [
        ("sandboxpool/pool", size, BAD_SIZE),
        ("sandboxpool/pool", template, "requests.memory"),
        ("sandbox/odd", requests, "requests.memory"),
    ] {
        let refused = patch(object, &change).unwrap_err();
        assert!(refused.contains(refusal), "{object}: {refused}");
    }
    for (name, refusals) in [
        ("odd", &["limits.cpu"][..]),
        ("huge", &[BAD_SIZE]),
        ("pool", &["requests.memory", BAD_SIZE]),
    ] {
        let copy = one_of(STORED, name).replace(&format!("name: {name}"), "name: copy");
        let refused = store(&copy).unwrap_err();
        assert!(refusals.iter().all(|r| refused.contains(r)), "{refused}");
    }
}

async fn valid_repaired_and_new_sandboxes_work() {
    let mended = json!({"state": "Running", "resources": {"limits": {"cpu": 1}}});
    patch("sandbox/odd", &mended).unwrap();
    settled("odd").await;
    store(&with_template_of_pod("late")).unwrap();
    settled("late").await;
    let late = sandboxes().await.get("late").await.unwrap();
    assert!(late.spec.pod_template.is_some());
    // Its null is stored, and none is allowed any more.
    patch("sandbox/sound", &json!({"state": "Paused"})).unwrap();
    until("sound", |status| status.phase == Phase::Paused).await;
}

/// Requested state, by object.
async fn specs() -> Vec<(Option<String>, SandboxSpec)> {
    let api: Api<Sandbox> = sandboxes().await;
    let objects = SANDBOXES.map(async |name| api.get(name).await.unwrap());
    let objects = join_all(objects).await.into_iter();
    objects.map(|object| (object.uid(), object.spec)).collect()
}

/// The object of this name.
fn one_of<'a>(objects: &'a str, name: &str) -> &'a str {
    let named = format!("metadata: {{name: {name}}}");
    let mut objects = objects.split("---\n");
    objects.find(|object| object.contains(&named)).unwrap()
}

fn with_template_of_pod(name: &str) -> String {
    let sound = one_of(STORED, "sound").replace("sound", name);
    sound.replace(
        "runtimeClassName: null",
        "podTemplate: {metadata: {labels: {team: blue}}}",
    )
}

fn store(objects: &str) -> Result<String, String> {
    try_kubectl(&["create", "--validate=strict", "-f", "-"], objects)
}

/// Changes the specification.
fn patch(object: &str, spec: &Value) -> Result<String, String> {
    let change = json!({"spec": spec}).to_string();
    try_kubectl(&["patch", object, "--type=merge", "--patch", &change], "")
}
