//! The resources of an earlier release give way to today's while objects are stored and the controller
//! runs: what is stored stays usable, even where today's rules refuse it, and new mistakes are refused.

use crds::Sandbox;
use crds::conditions::Reason;
use crds::sandbox::{Phase, SandboxSpec};
use futures::future::join_all;
use kube::runtime::wait::await_condition;
use kube::{Api, ResourceExt as _};
use serde_json::{Value as Json, json};
use serde_yaml::Value;
use tests::tools::{CRDS_CHART, Scratch, established, helm, run, text};
use tokio::time::timeout;

use crate::controller::Controller;
use crate::scene::{LIMIT, deeds, forget_resources, pools, sandboxes, settled, until};

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
metadata: {name: odd}
spec:
  replicas: 0
  template: {image: 'debian:12', resources: {requests: {memory: lots}}, workspace: {size: 10GB}}
";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs an API server of its own: make test-cluster"]
async fn newer_resources_over_older_ones_keep_what_is_stored_usable() {
    forget_resources();
    let older = older_chart();
    let older = older.path().to_str().unwrap();
    helm(&["install", "crds", older, "--wait"]);
    established();
    store(STORED).unwrap();
    let unknown = store(&with_template_of_pod("early")).unwrap_err();
    assert!(
        unknown.contains("unknown field \"spec.podTemplate\""),
        "{unknown}"
    );
    let controller = Controller::start();
    settled("sound").await;
    for name in ["odd", "huge"] {
        until(name, |status| status.reason == Some(Reason::InvalidSpec)).await;
    }
    let api = sandboxes().await;
    let names = ["sound", "odd", "huge"];
    let stored = specs(&api, names).await;
    let before = deeds("sound");

    helm(&["upgrade", "crds", CRDS_CHART, "--wait"]);
    established();

    assert_eq!(specs(&api, names).await, stored);

    // Its owner may pause it and the controller say so, as long as nobody touches what is wrong.
    for name in ["odd", "huge"] {
        patch(&format!("sandbox/{name}"), &json!({"state": "Paused"})).unwrap();
        until(name, |status| status.phase == Phase::Paused).await;
    }
    patch("sandboxpool/odd", &json!({"replicas": 2})).unwrap();
    let said = |pool: Option<&crds::SandboxPool>| {
        let status = pool.and_then(|pool| pool.status.as_ref());
        status.is_some_and(|status| !status.conditions.is_empty())
    };
    let reported = await_condition(pools().await, "odd", said);
    timeout(LIMIT, reported)
        .await
        .expect("the pool waits in vain")
        .unwrap();

    // A new mistake is none that was stored.
    let size = json!({"template": {"workspace": {"size": "20GB"}}});
    let requests = json!({"resources": {"requests": {"memory": "more"}}});
    for (object, change, refusal) in [
        ("sandboxpool/odd", size, "must be a size, such as 10Gi"),
        (
            "sandboxpool/odd",
            json!({"template": requests}),
            "requests.memory",
        ),
        ("sandbox/odd", requests, "requests.memory"),
    ] {
        let refused = patch(object, &change).unwrap_err();
        assert!(refused.contains(refusal), "{object}: {refused}");
    }
    let copy = STORED.replace("metadata: {name: ", "metadata: {name: copy-");
    let refused = store(&copy).unwrap_err();
    for (name, refusal) in [
        ("copy-odd", "limits.cpu"),
        ("copy-huge", "must be a size, such as 10Gi"),
    ] {
        let line = refused.lines().find(|line| line.contains(name));
        let line = line.unwrap_or_else(|| panic!("{name} is taken: {refused}"));
        assert!(line.contains(refusal), "{line}");
    }

    // Whoever mends it has a sandbox that starts; and what is new can be used.
    let mended = json!({"state": "Running", "resources": {"limits": {"cpu": 1}}});
    patch("sandbox/odd", &mended).unwrap();
    settled("odd").await;
    store(&with_template_of_pod("late")).unwrap();
    settled("late").await;
    let late = api.get("late").await.unwrap();
    assert!(late.spec.pod_template.is_some());

    assert_eq!(deeds("sound"), before, "nothing has happened to it");
    let (status, said) = controller.readyz().await;
    assert_eq!(status, 200, "{said}\n{}", controller.log());
}

/// What is asked for, and of which objects.
async fn specs<const N: usize>(
    api: &Api<Sandbox>,
    names: [&str; N],
) -> Vec<(Option<String>, SandboxSpec)> {
    let objects = names.map(async |name| api.get(name).await.unwrap());
    let objects = join_all(objects).await.into_iter();
    objects.map(|object| (object.uid(), object.spec)).collect()
}

fn with_template_of_pod(name: &str) -> String {
    format!(
        "apiVersion: openhands.dev/v1alpha1
kind: Sandbox
metadata: {{name: {name}}}
spec:
  image: debian:12
  command: [sleep, infinity]
  podTemplate: {{metadata: {{labels: {{team: blue}}}}}}"
    )
}

/// What kubectl complains of, if it does.
fn store(objects: &str) -> Result<(), String> {
    let file = Scratch::new(objects);
    attempt(&["create", "--validate=strict", "-f", file.path()])
}

/// Changes the specification.
fn patch(object: &str, spec: &Json) -> Result<(), String> {
    let change = json!({"spec": spec}).to_string();
    attempt(&["patch", object, "--type=merge", "--patch", &change])
}

fn attempt(args: &[&str]) -> Result<(), String> {
    let output = run("kubectl", args);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() {
        Ok(())
    } else {
        Err(said)
    }
}

/// The chart as an earlier release had it: without rules for amounts and without templates of Pods, and
/// with explicit nulls.
fn older_chart() -> tempfile::TempDir {
    let chart = tempfile::tempdir().unwrap();
    let folder = chart.path();
    let copied = ["-r", &format!("{CRDS_CHART}/."), folder.to_str().unwrap()];
    assert!(run("cp", &copied).status.success());
    let about = text(&format!("{CRDS_CHART}/Chart.yaml"));
    let earlier = about.replace("0.1.0", "0.0.1");
    std::fs::write(folder.join("Chart.yaml"), earlier).unwrap();
    for file in ["sandboxes.yaml", "sandboxpools.yaml"] {
        let path = folder.join("files").join(file);
        let mut crd = serde_yaml::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        make_older(&mut crd);
        std::fs::write(&path, serde_yaml::to_string(&crd).unwrap()).unwrap();
    }
    chart
}

fn make_older(schema: &mut Value) {
    match schema {
        Value::Mapping(fields) => {
            if fields.contains_key("x-kubernetes-int-or-string") {
                for rule in ["x-kubernetes-validations", "pattern", "minimum"] {
                    fields.remove(rule);
                }
            }
            if let Some(properties) = fields.get_mut("properties").and_then(Value::as_mapping_mut) {
                properties.remove("podTemplate");
                if let Some(Value::Mapping(class)) = properties.get_mut("runtimeClassName") {
                    class.insert("nullable".into(), true.into());
                }
            }
            fields.values_mut().for_each(make_older);
        }
        Value::Sequence(entries) => entries.iter_mut().for_each(make_older),
        _ => {}
    }
}
