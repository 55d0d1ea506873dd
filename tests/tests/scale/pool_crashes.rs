//! A controller that crashes at each of its first twenty writes while sandboxes claim warm Pods: no
//! Pod is claimed twice, no sandbox has two, and none of the pool is lost.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crds::{Sandbox, SandboxPool};
use http::{Method, Request};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::client::Body;
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;
use tests::cli_tools::define_resources;
use tests::test_cluster::{ScriptedSupervisors, run_controller};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::operator::{client, start};

const CRASHES: usize = 20;
const REPLICAS: usize = 8;
const MAX_SURGE: usize = 2;
/// Sandboxes that start while a controller is to crash.
const STARTS: usize = 8;
const TIME_LIMIT: Duration = Duration::from_mins(1);

/// A controller that stops right after the API server has carried out its `nth` write.
struct Doomed {
    controller: tokio::task::JoinHandle<()>,
    crashed: Arc<Notify>,
}

impl Doomed {
    async fn start(nth: usize) -> Self {
        let crashed = Arc::<Notify>::default();
        let client = crashing(
            &client("the-crashing-controller").await,
            nth,
            crashed.clone(),
        );
        let supervisors = ScriptedSupervisors::of_ready_commands(false);
        let run = run_controller(client, supervisors, CancellationToken::new());
        Self {
            controller: tokio::spawn(run),
            crashed,
        }
    }

    /// Waits for the crash and ends the process, so to speak.
    async fn end(self) {
        let crashed = timeout(TIME_LIMIT, self.crashed.notified()).await;
        crashed.expect("so many writes");
        self.controller.abort();
        let _ = self.controller.await;
    }
}

/// A client whose answers end with the one to its `nth` write.
fn crashing(client: &Client, nth: usize, crashed: Arc<Notify>) -> Client {
    let (client, writes) = (client.clone(), Arc::new(AtomicUsize::new(0)));
    let namespace = client.default_namespace().to_owned();
    let service = tower::service_fn(move |request: Request<Body>| {
        let (client, writes, crashed) = (client.clone(), writes.clone(), crashed.clone());
        async move {
            let is_event = request.uri().path().contains("/events");
            let is_write = *request.method() != Method::GET && !is_event;
            let number = writes.fetch_add(usize::from(is_write), Ordering::Relaxed);
            if number >= nth {
                // It is down.
                std::future::pending::<()>().await;
            }
            let answer = client.send(request).await;
            if is_write && number + 1 == nth {
                crashed.notify_one();
                std::future::pending::<()>().await;
            }
            answer
        }
    });
    Client::new(service, namespace)
}

struct Cluster {
    sandboxes: Api<Sandbox>,
    pools: Api<SandboxPool>,
    pods: Api<Pod>,
}

impl Cluster {
    async fn create_pool(&self) {
        let spec = json!({"metadata": {"name": "p"}, "spec": {
            "replicas": REPLICAS, "rollout": {"maxSurge": MAX_SURGE}, "template": {"image": "debian:12"},
        }});
        let pool = serde_json::from_value(spec).unwrap();
        self.pools
            .create(&PostParams::default(), &pool)
            .await
            .unwrap();
    }

    async fn create(&self, name: &str) {
        let sandbox = json!({"metadata": {"name": name},
            "spec": {"pool": "p", "command": ["sleep", "infinity"]}});
        let sandbox = serde_json::from_value(sandbox).unwrap();
        self.sandboxes
            .create(&PostParams::default(), &sandbox)
            .await
            .unwrap();
    }

    /// Waits until all sandboxes are ready and the pool is complete, and checks who owns which Pod.
    async fn settles(&self) {
        let limit = Instant::now() + TIME_LIMIT;
        while !self.is_settled().await {
            assert!(Instant::now() < limit, "{:#?}", self.pools.get("p").await);
            sleep(Duration::from_millis(100)).await;
        }
        let mut owners = BTreeMap::<String, usize>::new();
        for pod in self.pods.list(&ListParams::default()).await.unwrap() {
            let owner = &pod.owner_references()[0];
            *owners
                .entry(format!("{}/{}", owner.kind, owner.name))
                .or_default() += 1;
        }
        for sandbox in self.sandboxes.list(&ListParams::default()).await.unwrap() {
            let name = sandbox.name_any();
            assert_eq!(owners.remove(&format!("Sandbox/{name}")), Some(1), "{name}");
        }
        let warm = owners.remove("SandboxPool/p").unwrap_or_default();
        assert_eq!(owners, BTreeMap::new(), "Pods without a sandbox");
        assert_eq!(warm, REPLICAS);
    }

    async fn is_settled(&self) -> bool {
        let which = ListParams::default();
        let sandboxes = self.sandboxes.list(&which).await.unwrap();
        let is_ready = |s: &Sandbox| s.status.as_ref().is_some_and(|s| s.ready_at.is_some());
        let pods = self.pods.list(&which).await.unwrap().items;
        let warm = pods.iter().filter(|pod| {
            assert_eq!(pod.owner_references().len(), 1);
            pod.owner_references()[0].kind == "SandboxPool"
        });
        let warm = warm.count();
        assert!(warm <= REPLICAS + MAX_SURGE, "{warm} warm Pods");
        let status = self
            .pools
            .get("p")
            .await
            .unwrap()
            .status
            .unwrap_or_default();
        let ready = usize::try_from(status.ready).unwrap();
        sandboxes.iter().all(is_ready) && ready == REPLICAS && warm == REPLICAS
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a cluster with fake nodes: make test-cluster"]
async fn claims_survive_twenty_crashes_of_the_controller() {
    define_resources();
    let user = client("the-user").await;
    let cluster = Cluster {
        sandboxes: Api::namespaced(user.clone(), "default"),
        pools: Api::namespaced(user.clone(), "default"),
        pods: Api::namespaced(user, "default"),
    };
    cluster.create_pool().await;
    let mut warm = 0;
    for nth in 1..=CRASHES {
        let doomed = Doomed::start(nth).await;
        for number in 0..STARTS {
            cluster.create(&format!("s{nth}-{number}")).await;
        }
        doomed.end().await;
        let shutdown = CancellationToken::new();
        let controller = start("the-second-controller", shutdown.clone());
        cluster.settles().await;
        shutdown.cancel();
        controller.await.unwrap();
        let (how, which) = (DeleteParams::default(), ListParams::default());
        for sandbox in cluster.sandboxes.list(&which).await.unwrap() {
            warm += usize::from(sandbox.status.is_some_and(|status| status.warm));
        }
        let deleted = cluster.sandboxes.delete_collection(&how, &which).await;
        deleted.unwrap();
        // Kubernetes deletes their Pods.
        while cluster
            .pods
            .list_metadata(&which)
            .await
            .unwrap()
            .items
            .len()
            > REPLICAS
        {
            sleep(Duration::from_millis(100)).await;
        }
    }
    let (pools, params) = (&cluster.pools, DeleteParams::default());
    pools.delete("p", &params).await.unwrap();
    println!(
        "{warm} of {} sandboxes claimed a warm Pod",
        CRASHES * STARTS
    );
    assert!(warm * 2 > CRASHES * STARTS, "{warm}");
}
