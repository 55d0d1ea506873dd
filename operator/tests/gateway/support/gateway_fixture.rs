//! A gateway on a fake Kubernetes API, called without a socket or over loopback.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use crds::Sandbox;
use crds::conditions::Reason;
use crds::sandbox::{Phase, PodStatus, SandboxSpec, SandboxStatus, Session};
use futures::future::join_all;
use http::{Request, Response};
use http_body_util::BodyExt as _;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use operator::gateway::{ApiSettings, Gateway, GatewayConfig, Tenants};
use operator::index::{Index, Key};
use operator::keys::Keys;
use operator::urls::{Scheme, UrlForm, Urls};
use serde_json::{Value, json};

use testing::FakeApi;

pub(crate) const KEY: &str = "tenant-key";
pub(crate) const OTHER_KEY: &str = "other-key";

pub(crate) struct GatewayFixture {
    pub(crate) api: FakeApi,
    pub(crate) index: Arc<Index>,
    pub(crate) keys: Arc<Keys>,
    pub(crate) gateway: Gateway,
}

pub(crate) fn config() -> GatewayConfig {
    GatewayConfig {
        namespace: "sandboxes".into(),
        urls: Urls {
            scheme: Scheme::Https,
            base: "rt.example.com".into(),
            form: UrlForm::Nested,
        },
        drain_delay: Duration::ZERO,
        drain_limit: Duration::from_millis(50),
        max_connections: 1024,
        max_connections_per_address: 0,
        loopback_pods: true,
        ..GatewayConfig::default()
    }
}

pub(crate) fn tenants() -> Tenants {
    Tenants::fixed([("default", KEY), ("other", OTHER_KEY)])
}

/// A gateway with tenants of the two keys; `fields` extend the record of the first.
pub(crate) fn limited(fields: &Value) -> GatewayFixture {
    GatewayFixture::synced(&FakeApi::default(), config(), recorded_tenants(fields))
}

/// The same tenants, whose keys can be revoked.
pub(crate) fn recorded_tenants(fields: &Value) -> Tenants {
    let hash = |key: &str| {
        let hash = ring::digest::digest(&ring::digest::SHA256, key.as_bytes());
        data_encoding::HEXLOWER.encode(hash.as_ref())
    };
    let mut first = fields.clone();
    first["name"] = "default".into();
    first["sha256"] = hash(KEY).into();
    let second = json!({"name": "other", "sha256": hash(OTHER_KEY)});
    let tenants = Tenants::pending();
    let records = json!([first, second]).to_string();
    tenants.replace(records.as_bytes()).unwrap();
    tenants
}

impl GatewayFixture {
    pub(crate) fn new() -> Self {
        Self::beside(&FakeApi::default(), config())
    }

    /// One more replica on the same API, with its own index.
    pub(crate) fn beside(api: &FakeApi, config: GatewayConfig) -> Self {
        Self::synced(api, config, tenants())
    }

    /// With these settings.
    pub(crate) fn of(api: &FakeApi, settings: ApiSettings) -> Self {
        let config = GatewayConfig {
            settings,
            ..config()
        };
        Self::beside(api, config)
    }

    pub(crate) fn synced(api: &FakeApi, config: GatewayConfig, tenants: Tenants) -> Self {
        let fixture = Self::unsynced(api, config, tenants);
        fixture.index.retain(&HashSet::new());
        fixture
    }

    /// A replica that has just started.
    pub(crate) fn unsynced(api: &FakeApi, config: GatewayConfig, tenants: Tenants) -> Self {
        let keys = Arc::new(Keys::derive(&[7; 32]).unwrap());
        let index = Arc::new(Index::new(keys.clone()));
        let (of, known) = (keys.clone(), index.clone());
        Self {
            api: api.clone(),
            index,
            keys,
            gateway: Gateway::new(&api.client(), config, of, known, tenants),
        }
    }

    /// The Sandbox as it is stored.
    pub(crate) fn stored(&self, name: &str) -> Sandbox {
        serde_json::from_value(self.api.object(&sandbox_path(name))).unwrap()
    }

    /// Stores an object, as kubectl would.
    pub(crate) fn put(&self, sandbox: &Sandbox) -> Sandbox {
        let path = sandbox_path(sandbox.metadata.name.as_ref().unwrap());
        let stored = self.api.put(&path, serde_json::to_value(sandbox).unwrap());
        serde_json::from_value(stored).unwrap()
    }

    /// Writes a status, as the controller would.
    pub(crate) fn set_status(&self, name: &str, status: &SandboxStatus) -> Sandbox {
        let mut object = self.stored(name);
        object.status = Some(status.clone());
        self.put(&object)
    }

    pub(crate) fn delete(&self, name: &str) {
        self.api.delete(&sandbox_path(name));
    }

    /// Adds the sandbox of the session `s1` with this port and status, and returns its id.
    pub(crate) fn add(&self, runtime_port: u16, status: &SandboxStatus) -> String {
        self.add_session("s1", runtime_port, status)
    }

    pub(crate) fn add_session(&self, id: &str, port: u16, status: &SandboxStatus) -> String {
        let made = self.put(&sandbox(&self.keys, id, port));
        self.index.apply(&made).unwrap();
        let id = made.metadata.name.unwrap();
        self.report(&id, status);
        id
    }

    pub(crate) async fn send(&self, request: Request<Body>) -> Response<Body> {
        let peer = SocketAddr::from(([192, 0, 2, 1], 4711));
        self.gateway.respond(request, peer).await
    }

    /// Calls the API with a tenant's key.
    pub(crate) async fn call_as(
        &self,
        key: &str,
        method: &str,
        path: &str,
        body: &str,
    ) -> (u16, Value) {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "api.example.com")
            .header("x-api-key", key)
            .body(Body::from(body.to_owned()))
            .unwrap();
        read(self.send(request).await).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        self.call_as(KEY, "POST", path, &body.to_string()).await
    }

    /// Requests a state change: `/stop`, `/pause` or `/resume`.
    pub(crate) async fn change(&self, verb: &str, id: &str) -> (u16, Value) {
        self.post(verb, &json!({"runtime_id": id})).await
    }

    pub(crate) async fn get(&self, path: &str) -> (u16, Value) {
        self.call_as(KEY, "GET", path, "").await
    }

    /// Reads what must be there.
    pub(crate) async fn found(&self, path: &str) -> Value {
        let (code, info) = self.get(path).await;
        assert_eq!(code, 200, "{path}: {info}");
        info
    }

    /// Starts the session `s1`; `fields` replace and extend those of the request.
    pub(crate) async fn start(&self, fields: Value) -> (u16, Value) {
        let mut body = json!({"image": "i", "session_id": "s1", "command": ["a", "b"]});
        body.as_object_mut()
            .unwrap()
            .extend(fields.as_object().unwrap().clone());
        self.post("/start", &body).await
    }

    /// Starts a session and returns the runtime id.
    pub(crate) async fn started(&self, session: &str) -> String {
        let (code, info) = self.start(json!({"session_id": session})).await;
        assert_eq!(code, 201, "{info}");
        info["runtime_id"].as_str().unwrap().to_owned()
    }

    /// Concurrent calls of these paths.
    pub(crate) async fn get_all(&self, paths: &[String]) -> Vec<(u16, Value)> {
        join_all(paths.iter().map(|path| self.get(path))).await
    }

    /// Deletes an object and updates the index.
    pub(crate) fn forget(&self, name: &str) {
        let known = self.index.get(&key(name)).unwrap();
        self.delete(name);
        self.index.remove(&key(name), &known.uid);
    }

    /// Writes a status and updates the index, as controller and watch would.
    pub(crate) fn report(&self, name: &str, status: &SandboxStatus) {
        self.index.apply(&self.set_status(name, status)).unwrap();
    }
}

fn sandbox_path(name: &str) -> String {
    format!("/apis/openhands.dev/v1alpha1/namespaces/sandboxes/sandboxes/{name}")
}

/// Index key of a sandbox.
pub(crate) fn key(name: &str) -> Key {
    Key {
        namespace: "sandboxes".into(),
        name: name.to_owned(),
    }
}

/// Status code and JSON of a response.
pub(crate) async fn read(response: Response<Body>) -> (u16, Value) {
    let code = response.status().as_u16();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    if bytes.is_empty() {
        return (code, Value::Null);
    }
    (code, serde_json::from_slice(&bytes).unwrap())
}

/// Status of a sandbox whose Pod is ready at `ip`.
pub(crate) fn ready(ip: &str) -> SandboxStatus {
    SandboxStatus {
        phase: Phase::Running,
        reason: Some(Reason::Ready),
        pod_status: Some(PodStatus::Ready),
        pod_ip: Some(ip.into()),
        ready_at: Some(Time(Timestamp::UNIX_EPOCH)),
        ..SandboxStatus::default()
    }
}

/// Status of a sandbox that has failed.
pub(crate) fn failed(pod: PodStatus) -> SandboxStatus {
    SandboxStatus {
        phase: Phase::Failed,
        pod_status: Some(pod),
        ..SandboxStatus::default()
    }
}

/// Status of a sandbox whose Pod is being created.
pub(crate) fn starting(was_ready: bool) -> SandboxStatus {
    SandboxStatus {
        phase: Phase::Starting,
        reason: Some(Reason::CreatingPod),
        pod_status: Some(PodStatus::Pending),
        ready_at: was_ready.then_some(Time(Timestamp::UNIX_EPOCH)),
        ..SandboxStatus::default()
    }
}

/// A sandbox of this session with a `runtime` port.
fn sandbox(keys: &Keys, session: &str, runtime_port: u16) -> Sandbox {
    let name = keys.session_runtime_id("sandboxes", "default", session, 0);
    let spec = SandboxSpec {
        image: Some("image".into()),
        ports: serde_json::from_value(json!([
            {"name": "runtime", "port": runtime_port},
            {"name": "work-1", "port": runtime_port},
        ]))
        .unwrap(),
        session: Some(Session {
            tenant: "default".into(),
            id: session.into(),
            ..Session::default()
        }),
        ..SandboxSpec::default()
    };
    Sandbox::new(&name, spec)
}
