//! A cluster that lacks a runtime class, and a Secret that somebody left behind.

use std::convert::Infallible;
use std::sync::Arc;

use crds::sandbox::SandboxSpec;
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::api::PostParams;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::*;
use crate::clock::Clock;
use crate::controller::Peers;
use crate::controller::build::tests::fixtures::{config, entry, keys, v1};
use crate::controller::config::{ControllerConfig, Deadlines};
use crate::controller::facts::Facts;
use crate::controller::run::context;
use crate::controller::supervisor::HttpSupervisors;
use crate::index::Index;
use crate::kubernetes::fake::FakeApi;
use crate::kubernetes::queue::Queue;
use crate::traffic::NoGateways;

/// An API server whose nodes know only these runtime classes; it keeps what it is sent.
#[derive(Clone, Default)]
struct Cluster {
    classes: Vec<&'static str>,
    /// What every Pod is refused with.
    refuses: Option<(u16, &'static str)>,
    sent: Arc<Mutex<Vec<Value>>>,
}

impl Cluster {
    fn client(&self) -> Client {
        let cluster = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let cluster = cluster.clone();
            async move { Ok::<_, Infallible>(cluster.answer(request).await) }
        });
        Client::new(service, "ns")
    }

    async fn answer(&self, request: Request<Body>) -> Response<Body> {
        assert_eq!(request.method(), Method::POST);
        let body = request.into_body().collect().await.unwrap().to_bytes();
        let mut pod: Value = serde_json::from_slice(&body).unwrap();
        self.sent.lock().push(pod.clone());
        let class = pod["spec"]["runtimeClassName"].as_str().map(str::to_owned);
        let missing = class.filter(|class| !self.classes.contains(&class.as_str()));
        let (code, answer) = if let Some((code, message)) = self.refuses {
            refusal(code, message)
        } else if let Some(class) = missing {
            // As Kubernetes' admission plug-in says it.
            refusal(
                403,
                &format!(
                    "pods \"a\" is forbidden: pod rejected: RuntimeClass \"{class}\" not found"
                ),
            )
        } else {
            pod["metadata"]["uid"] = json!("pod-1");
            pod["metadata"]["resourceVersion"] = json!("1");
            (StatusCode::CREATED, pod)
        };
        let body = Body::from(serde_json::to_vec(&answer).unwrap());
        Response::builder().status(code).body(body).unwrap()
    }

    fn asked_for(&self) -> Vec<Value> {
        let sent = self.sent.lock();
        let class = |pod: &Value| pod["spec"]["runtimeClassName"].clone();
        sent.iter().map(class).collect()
    }
}

fn refusal(code: u16, message: &str) -> (StatusCode, Value) {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": "Refused", "code": code,
    });
    (StatusCode::from_u16(code).unwrap(), status)
}

fn test_context(client: Client, config: ControllerConfig) -> Context {
    let keys = Arc::new(keys());
    let index = Arc::new(Index::new(keys.clone()));
    let peers = Peers {
        supervisors: Arc::new(HttpSupervisors::default()),
        gateways: Arc::new(NoGateways),
    };
    let queue = Arc::new(Queue::default());
    context(client, config, keys, index, peers, Clock::wall(), &queue)
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
async fn a_missing_class_gives_way_to_the_default() {
    let cluster = Cluster::default();
    let context = test_context(cluster.client(), config());
    pod(&context, &observed(v1()), 0).await.unwrap();
    assert_eq!(cluster.asked_for(), [json!("sysbox-runc"), Value::Null]);
    let made = context.pods.get("uid").unwrap();
    let note = made.edition.note.clone().unwrap();
    assert!(note.contains("sysbox-runc is not installed"), "{note}");
}

#[tokio::test]
async fn an_installed_class_stays() {
    let cluster = Cluster {
        classes: vec!["sysbox-runc"],
        ..Cluster::default()
    };
    let context = test_context(cluster.client(), config());
    pod(&context, &observed(v1()), 0).await.unwrap();
    assert_eq!(cluster.asked_for(), [json!("sysbox-runc")]);
    assert_eq!(context.pods.get("uid").unwrap().edition.note, None);
}

#[tokio::test]
async fn a_strict_installation_refuses_a_missing_class() {
    let cluster = Cluster::default();
    let mut config = config();
    config.classes.strict = true;
    let context = test_context(cluster.client(), config);
    let error = pod(&context, &observed(v1()), 0).await.unwrap_err();
    let refusal = error.refusal().unwrap();
    assert!(refusal.fatal);
    let expected = "spec.runtimeClassName: the cluster has no RuntimeClass sysbox-runc";
    assert_eq!(refusal.message, expected);
    assert_eq!(cluster.asked_for().len(), 1);
}

#[tokio::test]
async fn a_missing_default_is_the_administrators_to_mend() {
    let mut config = config();
    config.defaults.runtime_class_name = Some("runsc".into());
    let cluster = Cluster::default();
    let context = test_context(cluster.client(), config);
    let error = pod(&context, &observed(v1()), 0).await.unwrap_err();
    let refusal = error.refusal().unwrap();
    assert!(
        !refusal.fatal && refusal.message.contains("runsc"),
        "{}",
        refusal.message
    );
    assert_eq!(cluster.asked_for().len(), 2);
}

#[tokio::test]
async fn a_secret_of_an_earlier_start_is_replaced() {
    let context = test_context(FakeApi::default().client(), config());
    let start = async |rotation| {
        let spec = SandboxSpec {
            command: None,
            key_rotation: Some(rotation),
            ..v1()
        };
        pod(&context, &observed(spec), 0).await.unwrap();
        let api: Api<Secret> = Api::namespaced(context.client.clone(), "ns");
        let secret = api.get("a-sbx-env").await.unwrap();
        let version = secret.resource_version().unwrap();
        let data = secret.data.unwrap();
        (data["SESSION_API_KEY"].0.clone(), version)
    };
    let (first, second, third) = (start(0).await, start(0).await, start(1).await);
    assert_eq!(first, second);
    assert_eq!(first.0, keys().session_key("uid").into_bytes());
    assert_eq!(third.0, keys().rotated_session_key("uid", 1).into_bytes());
}

#[tokio::test]
async fn a_secret_of_somebody_else_is_left_alone() {
    let context = test_context(FakeApi::default().client(), config());
    let api: Api<Secret> = Api::namespaced(context.client.clone(), "ns");
    let foreign = json!({"metadata": {"name": "a-sbx-env"}});
    let foreign = serde_json::from_value(foreign).unwrap();
    api.create(&PostParams::default(), &foreign).await.unwrap();
    let spec = SandboxSpec {
        command: None,
        ..v1()
    };
    let error = pod(&context, &observed(spec), 0).await.unwrap_err();
    let refusal = error.refusal().unwrap();
    assert!(
        refusal.message.contains("Secret a-sbx-env"),
        "{}",
        refusal.message
    );
    assert_eq!(api.get("a-sbx-env").await.unwrap().data, None);
}

#[tokio::test]
async fn what_is_too_large_is_final_and_what_is_forbidden_is_not() {
    for (code, message, fatal) in [
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
        let cluster = Cluster {
            refuses: Some((code, message)),
            ..Cluster::default()
        };
        let context = test_context(cluster.client(), config());
        let error = pod(&context, &observed(v1()), 0).await.unwrap_err();
        let told = error
            .refusal()
            .map(|refusal| (refusal.fatal, refusal.message));
        assert_eq!(told, fatal.map(|fatal| (fatal, message.to_owned())));
    }
}
