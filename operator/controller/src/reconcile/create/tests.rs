//! Creation in a cluster without a runtime class, and with Secrets that exist already.

use std::convert::Infallible;
use std::sync::Arc;

use crds::sandbox::SandboxSpec;
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::*;
use crate::config::{ControllerConfig, Deadlines};
use crate::facts::Facts;
use crate::tests::{config, context, entry, keys, v1};
use shared::clock::Clock;

/// API server with these runtime classes that records the Pods it receives.
#[derive(Clone, Default)]
struct FakeCluster {
    classes: Vec<&'static str>,
    /// Rejects every Pod with this status.
    rejects_with: Option<(u16, &'static str)>,
    received: Arc<Mutex<Vec<Value>>>,
}

impl FakeCluster {
    fn client(&self) -> Client {
        let cluster = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let cluster = cluster.clone();
            async move { Ok::<_, Infallible>(cluster.respond(request).await) }
        });
        Client::new(service, "ns")
    }

    async fn respond(&self, request: Request<Body>) -> Response<Body> {
        assert_eq!(request.method(), Method::POST);
        let body = request.into_body().collect().await.unwrap().to_bytes();
        let mut pod: Value = serde_json::from_slice(&body).unwrap();
        self.received.lock().push(pod.clone());
        let class = pod["spec"]["runtimeClassName"].as_str().map(str::to_owned);
        let missing = class.filter(|class| !self.classes.contains(&class.as_str()));
        // Text of the admission plug-in of Kubernetes.
        let text = |class| format!("pods \"a\" is forbidden: RuntimeClass \"{class}\" not found");
        let rejection = self
            .rejects_with
            .map(|(code, message)| (code, message.to_owned()));
        let rejection = rejection.or(missing.map(|class| (403, text(class))));
        let (code, respond) = if let Some((code, message)) = rejection {
            let exists = code == 409;
            let reason = if exists { "AlreadyExists" } else { "Refused" };
            let status = json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                "message": message, "reason": reason, "code": code,
            });
            (StatusCode::from_u16(code).unwrap(), status)
        } else {
            pod["metadata"]["uid"] = json!("pod-1");
            pod["metadata"]["resourceVersion"] = json!("1");
            (StatusCode::CREATED, pod)
        };
        let body = Body::from(serde_json::to_vec(&respond).unwrap());
        Response::builder().status(code).body(body).unwrap()
    }

    fn requested_classes(&self) -> Vec<Value> {
        let received = self.received.lock();
        let class = |pod: &Value| pod["spec"]["runtimeClassName"].clone();
        received.iter().map(class).collect()
    }
}

fn context_of(client: Client, config: ControllerConfig) -> Context {
    context(client, config, Clock::wall())
}

fn observed(spec: SandboxSpec) -> Observed {
    Observed {
        entry: Arc::new(entry(spec)),
        facts: Facts::default(),
        deadlines: Deadlines::default(),
        url: "https://abcdefghijklmnop.rt.example.com".into(),
    }
}

#[tokio::test]
async fn missing_runtime_class_falls_back_unless_installation_is_strict() {
    let requested = json!("sysbox-runc");
    for (classes, requests, note) in [
        (vec!["sysbox-runc"], vec![requested.clone()], None),
        (
            vec![],
            vec![requested, Value::Null],
            Some("the runtime class sysbox-runc is not installed; the default is used"),
        ),
    ] {
        let cluster = FakeCluster {
            classes,
            ..FakeCluster::default()
        };
        let context = context_of(cluster.client(), config());
        let observed = observed(v1());
        pod(&context, &observed, 0).await.unwrap();
        assert_eq!(cluster.requested_classes(), requests);
        let made = context.pods.get(&observed.entry.key, "uid").unwrap();
        assert_eq!(made.note.as_deref(), note);
    }
    for (strict, default, terminal, message, requests) in [
        (
            true,
            None,
            true,
            "spec.runtimeClassName: the cluster has no RuntimeClass sysbox-runc",
            1,
        ),
        (
            false,
            Some("runsc"),
            false,
            "RuntimeClass \"runsc\" not found",
            2,
        ),
    ] {
        let mut config = config();
        config.classes.strict = strict;
        config.defaults.runtime_class_name = default.map(str::to_owned);
        let cluster = FakeCluster::default();
        let context = context_of(cluster.client(), config);
        let error = pod(&context, &observed(v1()), 0).await.unwrap_err();
        let rejection = error.rejection().unwrap();
        assert_eq!(rejection.is_terminal, terminal, "{rejection:?}");
        assert!(rejection.message.contains(message), "{rejection:?}");
        assert_eq!(cluster.requested_classes().len(), requests);
    }
}

#[tokio::test]
async fn environment_secret_belongs_to_its_pod_and_is_created_again_if_missing() {
    let cluster = FakeCluster {
        classes: vec!["sysbox-runc"],
        ..FakeCluster::default()
    };
    let context = context_of(cluster.client(), config());
    let spec = SandboxSpec {
        command: None,
        key_rotation: Some(1),
        ..v1()
    };
    let mut observed = observed(spec);
    pod(&context, &observed, 0).await.unwrap();
    let made = context.pods.get(&observed.entry.key, "uid").unwrap();
    observed.facts.pod = Some(Arc::unwrap_or_clone(made));
    missing_secret(&context, &observed).await.unwrap();
    let [pod, first, second] = &cluster.received.lock().clone()[..] else {
        panic!("a Pod and two Secrets");
    };
    let container = &pod["spec"]["containers"][0];
    let named = &container["envFrom"][0]["secretRef"]["name"];
    assert_eq!(first["metadata"]["name"], *named);
    let owner = &first["metadata"]["ownerReferences"][0];
    assert_eq!(
        (&owner["kind"], &owner["uid"]),
        (&json!("Pod"), &json!("pod-1"))
    );
    let secret: Secret = serde_json::from_value(first.clone()).unwrap();
    let key = keys().of(None).rotated_session_key("uid", 1);
    assert_eq!(secret.data.unwrap()["SESSION_API_KEY"].0, key.into_bytes());
    assert_eq!(first, second);

    for (code, is_ok) in [(409, true), (403, false)] {
        let cluster = FakeCluster {
            rejects_with: Some((code, "no")),
            ..FakeCluster::default()
        };
        let context = context_of(cluster.client(), config());
        let repeated = missing_secret(&context, &observed).await;
        assert_eq!(repeated.is_ok(), is_ok, "{code}");
    }
}

#[tokio::test]
async fn oversized_object_is_terminal_and_forbidden_is_retried() {
    for (code, message, terminal) in [
        (
            413,
            "Request entity too large: limit is 3145728",
            Some(true),
        ),
        (500, "etcdserver: request is too large", Some(true)),
        (
            422,
            "Pod \"a\" is invalid: spec.containers[0].env[0].name",
            Some(true),
        ),
        (403, "exceeded quota: compute", Some(false)),
        (500, "etcdserver: leader changed", None),
    ] {
        let cluster = FakeCluster {
            rejects_with: Some((code, message)),
            ..FakeCluster::default()
        };
        let context = context_of(cluster.client(), config());
        let error = pod(&context, &observed(v1()), 0).await.unwrap_err();
        let rejected = error.rejection().map(|it| (it.is_terminal, it.message));
        assert_eq!(
            rejected,
            terminal.map(|terminal| (terminal, message.to_owned()))
        );
    }
}

#[tokio::test]
async fn pod_has_a_grace_period_even_if_none_is_configured() {
    let cluster = FakeCluster {
        classes: vec!["sysbox-runc"],
        ..FakeCluster::default()
    };
    let mut config = config();
    config.pods.grace_seconds = 0;
    let context = context_of(cluster.client(), config);
    pod(&context, &observed(v1()), 0).await.unwrap();
    let received = cluster.received.lock();
    assert_eq!(received[0]["spec"]["terminationGracePeriodSeconds"], 1);
}
