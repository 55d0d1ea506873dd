//! A whole installation in one process and in virtual time: the embedded API in memory, a scripted
//! node and scripted supervisors, the real controller and any number of real gateways.

mod api_clients;
mod chaos;
mod controllers;
mod crash;
mod gateways;
mod node;
mod pool_invariants;
mod sandbox_network;
mod seeded_rng;
mod supervisors;

use std::sync::Arc;
use std::time::Duration;

use crds::conditions::Reason;
use crds::sandbox::{DesiredState, Phase, SandboxSpec, SandboxStatus};
use crds::{Sandbox, SandboxPool, names};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use operator::controller::{self, ControllerConfig, PeerClients};
use operator::diagnostics::Diagnostics;
use operator::gateway::{Gateway, GatewayConfig, Tenants};
use operator::index::{Entry, Index, Key};
use operator::keys::Keys;
use operator::kubernetes::watch;
use operator::urls::{Scheme, UrlForm, Urls};
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::fault_injection::{Faults, TestApi};

pub use chaos::PodScript;
pub use controllers::{Link, TestController, run_controller};
pub use crash::is_controller_write;
pub use gateways::TestGateway;
use gateways::{TestGateways, gateway_config};
pub use node::ScriptedNode;
pub use pool_invariants::PoolInvariants;
use sandbox_network::SandboxNetwork;
pub use sandbox_network::SandboxServers;
pub use seeded_rng::SeededRng;
pub use supervisors::ScriptedSupervisors;

/// Namespace of every test.
pub const NAMESPACE: &str = "default";
/// API key of the tenant `default`.
pub const API_KEY: &str = "key-of-default";
/// API key of the tenant `other`.
pub const OTHER_KEY: &str = "key-of-other";

/// The installation. Everything ends when it is dropped.
#[allow(missing_debug_implementations, reason = "kube's client has none")]
pub struct TestCluster {
    pub api: TestApi,
    /// Client of controller and gateways, subject to the injected faults.
    pub client: Client,
    pub keys: Arc<Keys>,
    /// Client that is exempt from faults.
    pub index: Arc<Index>,
    pub node: Arc<ScriptedNode>,
    pub supervisors: Arc<ScriptedSupervisors>,
    pub config: ControllerConfig,
    /// Client of tests and nodes, without faults.
    pub observer: Client,
    /// Controllers that died at a write.
    crashes: u64,
    gateways: Arc<TestGateways>,
    /// Servers at the addresses of Pods, for gateways that are made after a change.
    pub servers: SandboxServers,
    controller: Option<DropGuard>,
    _background: DropGuard,
}

impl TestCluster {
    /// An installation with a running controller.
    pub fn new() -> Self {
        let mut cluster = Self::without_controller();
        cluster.start_controller();
        cluster
    }

    /// An installation whose controller is down.
    pub fn without_controller() -> Self {
        let api = TestApi::new(&crds::schema::all_crds());
        api.faults().exempt(api_clients::OBSERVER);
        let client = api_clients::of(&api, names::CONTROLLER_FIELD_MANAGER);
        let observer = api_clients::of(&api, api_clients::OBSERVER);
        let keys = Arc::new(Keys::derive(&[7; 32]).expect("32 bytes"));
        let shutdown = CancellationToken::new();
        let supervisors = Arc::<ScriptedSupervisors>::default();
        let node = ScriptedNode::new(observer.clone(), api.clock(), supervisors.clone());
        let node = Arc::new(node);
        let run = node.clone().run();
        tokio::spawn(shutdown.clone().run_until_cancelled_owned(run));
        let cluster = Self {
            index: index(&observer, &keys, &shutdown),
            config: ControllerConfig::new(urls()),
            node,
            observer,
            crashes: 0,
            supervisors,
            gateways: Arc::default(),
            servers: SandboxServers::None,
            controller: None,
            _background: shutdown.drop_guard(),
            api,
            client,
            keys,
        };
        cluster.supervisors.ready_by_default();
        cluster
    }

    /// Starts a controller; one that runs is ended first, without ceremony.
    pub fn start_controller(&mut self) {
        self.stop_controller();
        // Each process has vitals of its own.
        self.config.vitals = Arc::default();
        let shutdown = CancellationToken::new();
        let run = controller::run(
            self.client.clone(),
            self.config.clone(),
            self.keys.clone(),
            Arc::new(Index::new(self.keys.clone())),
            self.peers(),
            self.api.clock(),
            shutdown.clone(),
        );
        // Cut off wherever it is, as a crash does.
        let crash = shutdown.clone();
        let run = Box::pin(run);
        tokio::spawn(async move { crash.run_until_cancelled(run).await });
        self.controller = Some(shutdown.drop_guard());
    }

    fn peers(&self) -> PeerClients {
        PeerClients {
            supervisors: self.supervisors.clone(),
            gateways: self.gateways.clone(),
        }
    }

    /// Ends the controller as a crash does.
    pub fn stop_controller(&mut self) {
        self.controller = None;
    }

    /// Another replica of the gateway, with an index of its own.
    pub async fn gateway(&self) -> TestGateway {
        self.gateway_with(Arc::default()).await
    }

    /// As [`TestCluster::gateway`], with these diagnostics.
    pub async fn gateway_with(&self, vitals: Arc<Diagnostics>) -> TestGateway {
        let mut config = gateway_config();
        config.vitals = vitals;
        let network = SandboxNetwork {
            servers: self.servers,
            node: self.node.clone(),
            supervisors: self.supervisors.clone(),
            keys: self.keys.clone(),
        };
        config.pod_network = Some(network.into());
        let gateway = start_gateway(&self.client, config, self.keys.clone()).await;
        self.gateways.0.lock().push(gateway.gateway.clone());
        gateway
    }

    /// Faults that the clients of the API meet.
    pub fn faults(&self) -> &Faults {
        self.api.faults()
    }

    pub fn sandboxes(&self) -> Api<Sandbox> {
        self.api_of()
    }

    /// Creates a Sandbox with a command and a workspace.
    pub async fn create(&self, name: &str) -> Sandbox {
        self.create_with(name, &json!({})).await
    }

    /// As [`TestCluster::create`], and waits until it runs.
    pub async fn running(&self, name: &str) -> Arc<Entry> {
        self.running_with(name, &json!({})).await
    }

    /// As [`TestCluster::running`], with more fields of the spec.
    pub async fn running_with(&self, name: &str, more: &Value) -> Arc<Entry> {
        self.create_with(name, more).await;
        self.wait_for_phase(name, Phase::Running).await
    }

    /// Creates or changes the pool `p`.
    pub async fn put_pool(&self, spec: &Value) {
        let pool = json!({"apiVersion": "openhands.dev/v1alpha1", "kind": "SandboxPool",
            "metadata": {"name": "p"}, "spec": spec});
        let params = PatchParams::apply("test").force();
        let pools = self.api_of::<SandboxPool>();
        let patched = pools.patch("p", &params, &Patch::Apply(&pool)).await;
        patched.expect("a valid pool");
    }

    /// As [`TestCluster::create`], with more fields of the spec.
    pub async fn create_with(&self, name: &str, more: &Value) -> Sandbox {
        let mut spec = json!({
            "image": "debian:12", "command": ["sleep", "infinity"], "workspace": {"size": "1Gi"},
        });
        for (field, value) in more.as_object().expect("an object") {
            spec[field] = value.clone();
        }
        let spec: SandboxSpec = serde_json::from_value(spec).expect("a spec");
        let sandbox = Sandbox::new(name, spec);
        let (sandboxes, params) = (self.sandboxes(), PostParams::default());
        let created = sandboxes.create(&params, &sandbox).await;
        created.expect("a valid sandbox")
    }

    /// Asks for a sandbox to be awake, as gateways do.
    pub async fn wake(&self, name: &str) {
        let now = self.api.clock().now().to_string();
        let patch = json!({"metadata": {"annotations": {names::WAKE_ANNOTATION: now}}});
        self.patch(name, patch).await;
    }

    /// Changes a Sandbox by a merge patch.
    pub async fn patch(&self, name: &str, patch: Value) {
        let (sandboxes, params) = (self.sandboxes(), PatchParams::default());
        let patched = sandboxes.patch(name, &params, &Patch::Merge(patch)).await;
        patched.expect("a sandbox");
    }

    /// Waits until every entry of the index is as wanted, at most for `limit` of virtual time.
    /// How long it took.
    pub async fn wait_for_all(&self, limit: Duration, done: impl Fn(&Entry) -> bool) -> Duration {
        let begin = Instant::now();
        loop {
            let open = self.index.list(|e| !done(e));
            if open.is_empty() {
                return begin.elapsed();
            }
            let first = &open[0];
            let (count, key, status) = (open.len(), &first.key, &first.status);
            assert!(begin.elapsed() < limit, "{count} wait, {key}: {status:?}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Asks for a state, as `kubectl patch` does.
    pub async fn set_state(&self, name: &str, state: DesiredState) {
        self.patch(name, json!({"spec": {"state": state}})).await;
    }

    /// As [`TestCluster::set_state`], and waits until the sandbox is in it.
    pub async fn bring(&self, name: &str, state: DesiredState) -> Arc<Entry> {
        self.set_state(name, state).await;
        let phase = match state {
            DesiredState::Running => Phase::Running,
            DesiredState::Paused => Phase::Paused,
            DesiredState::Stopped => Phase::Stopped,
        };
        self.wait_for_phase(name, phase).await
    }

    /// Waits for a phase, within an hour of virtual time.
    pub async fn wait_for_phase(&self, name: &str, phase: Phase) -> Arc<Entry> {
        let seen = self.wait(name, |e| e.status.phase == phase).await;
        let entry = seen.unwrap_or_else(|| panic!("{name} is gone while {phase:?} was awaited"));
        assert_eq!(entry.status.phase, phase, "{:?}", entry.status);
        entry
    }

    /// Waits until the status has this reason, within an hour of virtual time.
    pub async fn wait_for_reason(&self, name: &str, reason: Reason) -> Arc<Entry> {
        let seen = self.wait(name, |e| e.status.reason == Some(reason)).await;
        let entry = seen.unwrap_or_else(|| panic!("{name} is gone while {reason:?} was awaited"));
        assert_eq!(entry.status.reason, Some(reason), "{:?}", entry.status);
        entry
    }

    /// Lets time pass, and fails if an object changes meanwhile.
    pub async fn assert_unchanged_for(&self, time: Duration) {
        let before = self.api.revision();
        tokio::time::sleep(time).await;
        assert_eq!(self.api.revision(), before, "writes without a reason");
    }

    /// Waits until the index shows what is wanted, within an hour of virtual time.
    pub async fn wait(&self, name: &str, done: impl Fn(&Entry) -> bool) -> Option<Arc<Entry>> {
        let key = key(name);
        // The object may not have reached the index yet.
        let mut changes = self.index.changes();
        while self.index.get(&key).is_none() && self.sandboxes().get_opt(name).await.ok()?.is_some()
        {
            changes.recv().await.ok()?;
        }
        self.index.wait(&key, Duration::from_hours(1), done).await
    }

    /// All objects of a kind, without faults.
    pub fn api_of<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Api::namespaced(self.observer.clone(), NAMESPACE)
    }

    /// The status of a Sandbox as it is stored.
    pub async fn status(&self, name: &str) -> SandboxStatus {
        let sandbox = self.sandboxes().get(name).await.expect("a sandbox");
        sandbox.status.unwrap_or_default()
    }

    /// Names of all objects of a kind.
    pub async fn names<K>(&self) -> Vec<String>
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + serde::de::DeserializeOwned,
    {
        let (api, params) = (self.api_of::<K>(), ListParams::default());
        let list = api.list_metadata(&params).await.expect("a list");
        list.items.iter().map(kube::ResourceExt::name_any).collect()
    }

    /// Deletes a Pod as `kubectl delete --now` does.
    pub async fn delete_pod_now(&self, name: &str) {
        let now = DeleteParams::default().grace_period(0);
        let deleted = self.api_of::<Pod>().delete(name, &now).await;
        deleted.expect("a pod");
    }
}

impl Default for TestCluster {
    fn default() -> Self {
        Self::new()
    }
}

/// Body of a `/start` for this session.
pub fn start_body(session: &str) -> Value {
    json!({"session_id": session, "image": "debian:12", "command": ["server"]})
}

/// The key of a Sandbox of these tests.
pub fn key(name: &str) -> Key {
    Key {
        namespace: NAMESPACE.into(),
        name: name.into(),
    }
}

fn index(client: &Client, keys: &Arc<Keys>, shutdown: &CancellationToken) -> Arc<Index> {
    let index = Arc::new(Index::new(keys.clone()));
    let (api, shutdown) = (watch::api(client, None), shutdown.clone());
    let feed = watch::run::<Sandbox>(api, None, index.clone(), Arc::default(), shutdown);
    tokio::spawn(feed);
    index
}

/// Starts a gateway without a socket, with the keys of [`run_controller`].
pub async fn run_gateway(client: &Client) -> TestGateway {
    let keys = Arc::new(Keys::derive(&[7; 32]).expect("32 bytes"));
    start_gateway(client, gateway_config(), keys).await
}

async fn start_gateway(client: &Client, config: GatewayConfig, keys: Arc<Keys>) -> TestGateway {
    let shutdown = CancellationToken::new();
    let index = index(client, &keys, &shutdown);
    assert!(index.wait_synced(Duration::from_secs(10)).await);
    let tenants = Tenants::fixed([("default", API_KEY), ("other", OTHER_KEY)]);
    TestGateway {
        gateway: Gateway::new(client, config, keys, index, tenants),
        _shutdown: Arc::new(shutdown.drop_guard()),
    }
}

fn urls() -> Urls {
    Urls {
        scheme: Scheme::Http,
        base: "localhost:5000".into(),
        form: UrlForm::Nested,
    }
}
