//! Every verb that the chart grants is used, and every verb that is used is granted. Scenes that the
//! other tests lack bring rare verbs about; then the audit log is compared with the roles.

use std::collections::BTreeSet;

use client::{Error, Level, LogEnd, LogEvent, LogOptions};
use serde_json::{Value, json};

use crate::audit::record;
use crate::release::{IMAGE, NAME, NAMESPACE, Release, SANDBOXES, api_key};
use tests::audit::deed;
use tests::cli_tools::{apply, get, kubectl_words, manifest, until, wait};
use tests::fork_session::{delete_all, snapshot};
use tests::persistence_session::start_body;
use tests::session::Session;

/// Granted for a race that no test can bring about at will: a deletion by the controller that met a
/// conflict looks whether the object is still the same.
const RARE: &str = "get sandboxes.openhands.dev";

pub(crate) async fn every_verb_has_its_scene(release: &Release) {
    entrypoint_that_pauses();
    name_that_is_taken();
    crash_loop();
    tombstone_that_goes();
    stop_drops_sealed_environment();
    pool_with_warm_pods();
    probe_without_user_namespaces();
    log(release).await;
    snapshots(release).await;
    stranger(release).await;
    first_key_anew(release).await;
}

/// The Secret with its environment is made, and goes with the Pod.
fn entrypoint_that_pauses() {
    let args = json!({"spec": {"containers": [{"name": "sandbox", "args": ["-c", "exec sleep infinity"]}]}});
    let spec = json!({"image": IMAGE, "podTemplate": args, "workspace": {"size": "10Mi"}});
    sandbox("entrypoint", &spec);
    wait(SANDBOXES, "condition=Ready", "entrypoint");
    state("entrypoint", "Paused");
    wait(SANDBOXES, "condition=Paused", "entrypoint");
    state("entrypoint", "Stopped");
    wait(SANDBOXES, "jsonpath={.status.phase}=Stopped", "entrypoint");
}

fn name_that_is_taken() {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "taken"},
        "spec": {"terminationGracePeriodSeconds": 0, "containers": [
            {"name": "c", "image": IMAGE, "imagePullPolicy": "Never", "args": ["-c", "exec sleep infinity"]}
        ]},
    });
    apply(&pod.to_string(), &["-n", SANDBOXES]);
    sandbox("taken", &sleeping(json!({})));
    wait(SANDBOXES, "jsonpath={.status.reason}=NameTaken", "taken");
    kubectl_words(&format!("delete sandbox/taken pod/taken -n {SANDBOXES}"));
}

/// Its log is read before its Pod goes, and its restarts become one series of events.
fn crash_loop() {
    let spec = json!({"image": IMAGE, "command": ["sh", "-c", "echo no; exit 3"]});
    sandbox("crash", &spec);
    wait(SANDBOXES, "jsonpath={.status.reason}=CrashLoop", "crash");
    let log = get(&["sandbox", "crash", "-n", SANDBOXES]);
    assert!(log["status"]["sealedLog"].is_string(), "{log}");
    kubectl_words(&format!("delete sandbox crash -n {SANDBOXES}"));
}

fn tombstone_that_goes() {
    let short = json!({"deleteStoppedAfter": "1s"});
    sandbox(
        "short",
        &sleeping(json!({"state": "Stopped", "lifecycle": short})),
    );
    let named = "--field-selector=metadata.name=short";
    until("the tombstone is gone", || {
        get(&["sandboxes", "-n", SANDBOXES, named])["items"] == json!([])
    });
}

/// kubectl stops it, so the controller removes the sealed environment.
fn stop_drops_sealed_environment() {
    sandbox("sealed", &sleeping(json!({"sealedEnv": "x"})));
    state("sealed", "Stopped");
    until("the environment is dropped", || {
        let sandbox = get(&["sandbox", "sealed", "-n", SANDBOXES]);
        sandbox["status"]["phase"] == "Stopped" && sandbox["spec"].get("sealedEnv").is_none()
    });
}

/// The images are pulled ahead, until the pool no longer wants it; a sandbox claims a warm Pod, which
/// then grows in place.
fn pool_with_warm_pods() {
    let template =
        json!({"image": IMAGE, "imagePullPolicy": "Never", "workspace": {"size": "10Mi"}});
    let idle = json!({"limits": {"cpu": "100m"}});
    let spec = json!({"replicas": 1, "template": template, "idleResources": idle, "imagePulls": "EveryNode"});
    let pool = manifest("SandboxPool", "warm", &spec).to_string();
    apply(&pool, &["-n", SANDBOXES]);
    let waited = |what: &str| {
        kubectl_words(&format!("wait --for={what} -n {SANDBOXES} --timeout=120s"));
    };
    waited("condition=Ready sbxp/warm");
    waited("condition=ImagesPulled sbxp/warm");
    let on_demand = json!({"spec": {"imagePulls": "OnDemand"}});
    kubectl_words(&format!(
        "patch sbxp/warm -n {SANDBOXES} --type=merge -p {on_demand}"
    ));
    waited("delete daemonset/warm-images");
    sandbox("claims", &sleeping(json!({"pool": "warm"})));
    wait(SANDBOXES, "condition=Ready", "claims");
    let status = get(&["sandbox", "claims", "-n", SANDBOXES])["status"].clone();
    assert_eq!(status["warm"], true, "{status}");
    let pod = status["podName"].as_str().unwrap();
    until("the kubelet has raised the limit", || {
        let status = get(&["pod", pod, "-n", SANDBOXES])["status"].clone();
        status["containerStatuses"][0]["resources"]["limits"]["cpu"] == "2"
    });
    kubectl_words(&format!("delete sandbox claims -n {SANDBOXES}"));
    kubectl_words(&format!("delete sbxp warm -n {SANDBOXES}"));
}

/// The container runtime of the cluster has no user namespaces. The result of the probe is recorded.
fn probe_without_user_namespaces() {
    until("the probe has ended", || {
        let named = "--field-selector=metadata.name=sandbox-operator-cluster-probes";
        let found = &get(&["configmaps", "-n", NAMESPACE, named])["items"][0];
        let record = &found["data"]["user_namespaces"];
        record
            .as_str()
            .is_some_and(|record| record.contains("false"))
    });
}

/// The API server sorts the requests of the operator by the schemas of the chart.
pub(crate) fn priority_levels_are_used() {
    let metrics = kubectl_words("get --raw /metrics");
    for schema in ["leases", "hot", "bulk"] {
        let schema = format!("flow_schema=\"{NAMESPACE}-{NAME}-{schema}\"");
        let dispatched = |line: &&str| {
            line.starts_with("apiserver_flowcontrol_dispatched_requests_total{")
                && line.contains(&schema)
        };
        let count = metrics.lines().find(dispatched);
        let count = count.and_then(|line| line.rsplit(' ').next()?.parse().ok());
        assert!(count.is_some_and(|count: f64| count > 5.0), "{schema}");
    }
}

/// The output of a sandbox, by its client.
async fn log(release: &Release) {
    let body = start_body("logs", IMAGE);
    let session = Session::start(&release.url, &api_key(), &body).await;
    let options = LogOptions::default();
    let mut log = session.client.logs(&session.id, options).await.unwrap();
    let end = loop {
        if let LogEvent::End(end) = log.next().await.unwrap() {
            break end;
        }
    };
    assert_eq!(end, LogEnd::Complete);
    session.stop().await;
}

/// One by a client, which deletes it, one that expires, and one that fails and stays.
async fn snapshots(release: &Release) {
    let body = start_body("snapshots", IMAGE);
    let session = Session::start(&release.url, &api_key(), &body).await;
    snapshot(&session, Level::Root).await;
    assert_eq!(delete_all(&session).await, 1);
    let spec = json!({"sandbox": session.id, "deleteAfter": "10s"});
    let short = manifest("SandboxSnapshot", "short", &spec).to_string();
    apply(&short, &["-n", SANDBOXES]);
    until("the snapshot is gone", || {
        get(&["sbxsnap", "-n", SANDBOXES])["items"] == json!([])
    });
    session.stop().await;
    let left = manifest("SandboxSnapshot", "left", &json!({"sandbox": "none"})).to_string();
    apply(&left, &["-n", SANDBOXES]);
    let failed = "--for=jsonpath={.status.phase}=Failed sbxsnap/left";
    kubectl_words(&format!("wait {failed} -n {SANDBOXES} --timeout=60s"));
}

/// An id that the gateway does not know is looked up once.
async fn stranger(release: &Release) {
    let found = release.client().runtime("aaaabbbbccccdddd").await;
    assert!(matches!(found, Err(Error::NotFound(_))), "{found:?}");
}

/// As the document on operation says: an upgrade makes another key, and the old one works beside it.
async fn first_key_anew(release: &Release) {
    let old = release.client();
    let before = api_key();
    let secret = "sandbox-operator-default-key";
    kubectl_words(&format!("delete secret {secret} -n {NAMESPACE}"));
    release.helm("upgrade", &[]);
    assert_ne!(api_key(), before);
    let new = release.client();
    old.list().await.unwrap();
    for _ in 0..100 {
        if new.list().await.is_ok() {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    panic!("the new key does not work");
}

pub(crate) fn granted_is_what_is_used() {
    for component in ["controller", "gateway", "keys"] {
        let account = format!("{NAME}-{component}");
        let user = format!("system:serviceaccount:{NAMESPACE}:{account}");
        let of_the_cluster = record(&user, None);
        assert_eq!(of_the_cluster.done, BTreeSet::new(), "{account}");
        assert_eq!(of_the_cluster.refused, BTreeSet::new(), "{account}");
        for namespace in [NAMESPACE, SANDBOXES] {
            let granted = granted(&account, namespace);
            let record = record(&user, Some(namespace));
            println!("{account} in {namespace}: {} verbs", granted.len());
            assert_eq!(record.refused, BTreeSet::new(), "{account} in {namespace}");
            let unused = granted.difference(&record.done);
            let unused: Vec<_> = unused.filter(|deed| *deed != RARE).collect();
            assert!(
                unused.is_empty(),
                "{account} in {namespace} never does {unused:?}"
            );
        }
    }
}

/// The same for the account that is gone by then.
pub(crate) fn purge_uses_its_rights() {
    let user = format!("system:serviceaccount:{NAMESPACE}:{NAME}-purge");
    let own = "delete configmaps, delete leases.coordination.k8s.io, delete secrets";
    let of_sandboxes = "delete imagebuilds.openhands.dev, delete sandboxes.openhands.dev, \
        delete sandboxpools.openhands.dev, delete sandboxsnapshots.openhands.dev, \
        list imagebuilds.openhands.dev, list sandboxes.openhands.dev, list sandboxpools.openhands.dev, \
        list sandboxsnapshots.openhands.dev";
    for (namespace, deeds) in [(NAMESPACE, own), (SANDBOXES, of_sandboxes)] {
        let record = record(&user, Some(namespace));
        assert_eq!(record.refused, BTreeSet::new());
        assert!(
            record.done.iter().eq(deeds.split(", ")),
            "{:?}",
            record.done
        );
    }
}

/// Returns the permissions of a service account in a namespace.
fn granted(account: &str, namespace: &str) -> BTreeSet<String> {
    let list = |kind: &str| get(&[kind, "-n", namespace])["items"].clone();
    let (bindings, all) = (list("rolebindings"), list("roles"));
    let is_bound = |role: &Value| {
        bindings.as_array().unwrap().iter().any(|binding| {
            binding["roleRef"]["name"] == role["metadata"]["name"]
                && binding["subjects"][0]["name"] == account
        })
    };
    let bound = all.as_array().unwrap().iter().filter(|role| is_bound(role));
    let rules = bound.flat_map(|role| role["rules"].as_array().unwrap());
    rules.flat_map(deeds).collect()
}

fn deeds(rule: &Value) -> Vec<String> {
    let texts = |field: &str| {
        let all = rule[field].as_array().unwrap().iter();
        all.map(|text| text.as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    let mut deeds = Vec::new();
    for group in texts("apiGroups") {
        for resource in texts("resources") {
            for verb in texts("verbs") {
                deeds.push(deed(&verb, &group, &resource));
            }
        }
    }
    deeds
}

pub(crate) fn sandbox(name: &str, spec: &Value) {
    let mut spec = spec.clone();
    spec["imagePullPolicy"] = "Never".into();
    let sandbox = manifest("Sandbox", name, &spec).to_string();
    apply(&sandbox, &["-n", SANDBOXES]);
}

fn state(name: &str, state: &str) {
    let patch = json!({"spec": {"state": state}});
    let place = format!("sandbox/{name} -n {SANDBOXES}");
    kubectl_words(&format!("patch {place} --type=merge -p {patch}"));
}

/// A spec that does nothing, with more fields.
fn sleeping(more: Value) -> Value {
    let mut spec = more;
    spec["image"] = IMAGE.into();
    spec["command"] = json!(["sleep", "infinity"]);
    spec
}
