//! Objects that a load creates, and when they count as ready.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, PostParams};
use kube::core::GroupVersionKind;
use kube::runtime::watcher::{Config, Event, watcher};
use kube::{Api, Client, ResourceExt as _};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tests::test_cluster::{TestGateway, run_gateway};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use crate::agent_sandbox;

const IMAGE: &str = "debian:12";
const POOL: &str = "bench";
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Requests that wait for their object, by its name.
type Waiting = Arc<Mutex<HashMap<String, oneshot::Sender<Instant>>>>;

/// A way to get a sandbox.
pub(crate) struct Adapter {
    kind: Kind,
    objects: Api<DynamicObject>,
    resource: ApiResource,
    pools: Api<DynamicObject>,
    pool_resource: ApiResource,
    waiting: Waiting,
    watch: JoinHandle<()>,
}

enum Kind {
    /// A Pod, which the scheduler places and kwok runs.
    BarePod,
    /// A Sandbox that names the pool.
    Sandbox,
    /// `POST /start`.
    Start(Box<TestGateway>),
    /// A `SandboxClaim` of kubernetes-sigs/agent-sandbox.
    AgentSandbox,
}

impl Adapter {
    pub(crate) async fn new(name: &str, client: &Client) -> Self {
        let (kind, group, version, resource) = match name {
            "bare-pod" => (Kind::BarePod, "", "v1", "Pod"),
            "sandbox" => (Kind::Sandbox, "openhands.dev", "v1alpha1", "Sandbox"),
            "start" => {
                let gateway = Box::new(run_gateway(client).await);
                (Kind::Start(gateway), "openhands.dev", "v1alpha1", "Sandbox")
            }
            _ => {
                let group = agent_sandbox::GROUP;
                (
                    Kind::AgentSandbox,
                    group,
                    agent_sandbox::VERSION,
                    "SandboxClaim",
                )
            }
        };
        let pool = match kind {
            Kind::AgentSandbox => agent_sandbox::resource("SandboxWarmPool"),
            _ => ApiResource::erase::<crds::SandboxPool>(&()),
        };
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, resource));
        let objects = Api::namespaced_with(client.clone(), "default", &resource);
        let waiting = Waiting::default();
        Self {
            kind,
            pools: Api::namespaced_with(client.clone(), "default", &pool),
            pool_resource: pool,
            watch: tokio::spawn(watch(objects.clone(), waiting.clone())),
            objects,
            resource,
            waiting,
        }
    }

    /// Makes a pool with this number of ready Pods.
    pub(crate) async fn prepare(&self, members: u32) {
        let spec = match self.kind {
            Kind::BarePod => return,
            Kind::AgentSandbox => {
                let client = self.objects.clone().into_client();
                agent_sandbox::put_template(&client, POOL, IMAGE).await;
                json!({"replicas": members, "sandboxTemplateRef": {"name": POOL}})
            }
            Kind::Sandbox | Kind::Start(_) => json!({
                "replicas": members,
                "claimedBy": if matches!(self.kind, Kind::Sandbox) { "Named" } else { "Matching" },
                "template": {"image": IMAGE, "workspace": self.workspace()},
            }),
        };
        let pool = DynamicObject::new(POOL, &self.pool_resource).data(json!({"spec": spec}));
        self.pools
            .create(&PostParams::default(), &pool)
            .await
            .unwrap();
        let ready = |pool: &DynamicObject| {
            let status = &pool.data["status"];
            let ready = status["ready"]
                .as_u64()
                .or(status["readyReplicas"].as_u64());
            ready == Some(members.into())
        };
        while !ready(&self.pools.get(POOL).await.unwrap()) {
            sleep(POLL_INTERVAL).await;
        }
    }

    fn workspace(&self) -> Value {
        match self.kind {
            Kind::Start(_) => json!({"size": "1Gi"}),
            _ => Value::Null,
        }
    }

    /// Asks for a sandbox. Returns when it was seen ready.
    pub(crate) async fn start(&self, name: &str) -> Instant {
        if let Kind::Start(gateway) = &self.kind {
            let body = json!({
                "session_id": name, "image": IMAGE, "command": ["sleep", "infinity"],
                "environment": {"SESSION": name}, "working_dir": "/workspace",
            });
            let started = gateway.start(&body).await;
            let answered = Instant::now();
            let object = started["runtime_id"].as_str().unwrap();
            if started["pod_status"] == "Ready" {
                return answered;
            }
            let seen = self.seen(object);
            // It may have become ready before anyone waited for it.
            if is_ready(&self.objects.get(object).await.unwrap()) {
                return Instant::now();
            }
            return seen.await.unwrap();
        }
        let seen = self.seen(name);
        let object = self.object(name);
        self.objects
            .create(&PostParams::default(), &object)
            .await
            .unwrap();
        seen.await.unwrap()
    }

    fn seen(&self, name: &str) -> oneshot::Receiver<Instant> {
        let (sender, receiver) = oneshot::channel();
        self.waiting.lock().insert(name.to_owned(), sender);
        receiver
    }

    fn object(&self, name: &str) -> DynamicObject {
        let spec = match self.kind {
            Kind::BarePod => json!({"containers": [{"name": "sandbox", "image": IMAGE}]}),
            Kind::AgentSandbox => json!({"warmPoolRef": {"name": POOL}}),
            Kind::Sandbox | Kind::Start(_) => json!({
                "pool": POOL, "command": ["sleep", "infinity"],
                "env": [{"name": "SESSION", "value": name}],
            }),
        };
        DynamicObject::new(name, &self.resource).data(json!({"spec": spec}))
    }

    pub(crate) async fn delete(&self, name: &str) {
        let _ = self.objects.delete(name, &DeleteParams::default()).await;
    }

    /// Removes everything, and waits until it is gone.
    pub(crate) async fn clean(&self) {
        self.watch.abort();
        let (how, which) = (DeleteParams::default(), ListParams::default());
        if !matches!(self.kind, Kind::BarePod) {
            let _ = self.pools.delete(POOL, &how).await;
        }
        let pods: Api<k8s_openapi::api::core::v1::Pod> =
            Api::namespaced(self.objects.clone().into_client(), "default");
        loop {
            let _ = self.objects.delete_collection(&how, &which).await;
            let left = self.objects.list(&which).await.unwrap().items.len();
            if left == 0 && pods.list_metadata(&which).await.unwrap().items.is_empty() {
                return;
            }
            sleep(POLL_INTERVAL).await;
        }
    }
}

/// Notes when each object is ready.
async fn watch(objects: Api<DynamicObject>, waiting: Waiting) {
    let mut events = std::pin::pin!(watcher(objects, Config::default()));
    while let Some(event) = events.next().await {
        if let Ok(Event::Apply(object) | Event::InitApply(object)) = event
            && is_ready(&object)
            && let Some(sender) = waiting.lock().remove(&object.name_any())
        {
            let _ = sender.send(Instant::now());
        }
    }
}

fn is_ready(object: &DynamicObject) -> bool {
    let conditions = object.data["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}
