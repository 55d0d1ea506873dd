//! The two processes that are measured.

use std::sync::Arc;
use std::time::Duration;

use crds::contract::control::{ReadyReport, SupervisorState};
use futures::StreamExt as _;
use futures::future::BoxFuture;
use kube::api::{ListParams, PostParams};
use kube::{Api, Client};
use operator::controller::{
    self, ControllerConfig, PeerClients, SupervisorAddress, SupervisorError, Supervisors,
};
use operator::index::Index;
use operator::keys::Keys;
use operator::traffic::NoGateways;
use operator::urls::{Scheme, UrlForm, Urls};
use serde_json::json;
use standalone::api::{Clock, EmbeddedApi};
use tests::test_cluster::{ScriptedNode, ScriptedSupervisors};
use tokio_util::sync::CancellationToken;

/// Serves an API that holds this many Sandboxes, and plays their node. Says when all run.
pub(crate) async fn api(count: u32) {
    let api = EmbeddedApi::in_memory(&crds::schema::all_crds(), Clock::wall());
    let client = api.client();
    let node = ScriptedNode::new(client.clone(), api.clock(), Arc::default());
    let node = Arc::new(node);
    tokio::spawn(node.run());
    fill(&client, count).await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    eprintln!("listening on http://{}", listener.local_addr().unwrap());
    let router = api.router();
    tokio::spawn(async move { axum::serve(listener, router).await });
    wait_for_all(&client, count).await;
    eprintln!("all run");
    std::future::pending::<()>().await;
}

/// Waits until so many Sandboxes have become ready, and looks at each page of them only until all
/// of it has.
async fn wait_for_all(client: &Client, count: u32) {
    let sandboxes: Api<crds::Sandbox> = Api::namespaced(client.clone(), "default");
    let mut params = ListParams::default().limit(500);
    let mut seen = 0;
    while seen < count as usize {
        let page = sandboxes.list(&params).await.unwrap();
        let ready = |s: &crds::Sandbox| s.status.as_ref().is_some_and(|s| s.ready_at.is_some());
        if !page.items.iter().all(ready) {
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        }
        seen += page.items.len();
        if let Some(next) = page.metadata.continue_ {
            params = params.continue_token(&next);
        }
    }
    if count == 0 {
        std::future::pending::<()>().await;
    }
}

async fn fill(client: &Client, count: u32) {
    let pools: Api<crds::SandboxPool> = Api::namespaced(client.clone(), "default");
    let pool = json!({"metadata": {"name": "bench"}, "spec": {"template": {"image": "debian:12"}}});
    let pool = serde_json::from_value(pool).unwrap();
    pools.create(&PostParams::default(), &pool).await.unwrap();
    let sandboxes: Api<crds::Sandbox> = Api::namespaced(client.clone(), "default");
    futures::stream::iter(0..count)
        .for_each_concurrent(64, async |number| {
            let sandbox = json!({
                "metadata": {"name": format!("bench-{number}")},
                "spec": {"pool": "bench", "command": ["sleep", "infinity"],
                    "env": [{"name": "LANG", "value": "C.UTF-8"}], "workspace": {"size": "1Gi"},
                    "lifecycle": {"idleTimeout": "20m"}},
            });
            let sandbox = serde_json::from_value(sandbox).unwrap();
            let created = sandboxes.create(&PostParams::default(), &sandbox).await;
            created.unwrap();
        })
        .await;
}

/// Runs a controller for the API at this URL. Supervisors are dormant, or ready since long.
pub(crate) async fn controller(url: &str, ready: bool) {
    operator::logging::init(None);
    let client = Client::try_from(kube::Config::new(url.parse().unwrap())).unwrap();
    let keys = Arc::new(Keys::derive(&[7; 32]).unwrap());
    let dormant = ScriptedSupervisors::default();
    dormant.ready_by_default();
    let supervisors: Arc<dyn Supervisors> = if ready {
        Arc::new(ReadySupervisors)
    } else {
        Arc::new(dormant)
    };
    let urls = Urls {
        scheme: Scheme::Https,
        base: "sandboxes.example.com".into(),
        form: UrlForm::Nested,
    };
    let peers = PeerClients {
        supervisors,
        gateways: Arc::new(NoGateways),
    };
    let ended = controller::run(
        client,
        ControllerConfig::new(urls),
        keys.clone(),
        Arc::new(Index::new(keys)),
        peers,
        operator::clock::Clock::wall(),
        CancellationToken::new(),
    );
    ended.await.unwrap();
}

/// Supervisors that were initialised before this process began.
#[derive(Debug)]
struct ReadySupervisors;

impl Supervisors for ReadySupervisors {
    fn init<'a>(
        &'a self,
        _: &'a SupervisorAddress,
        _: String,
    ) -> BoxFuture<'a, Result<(), SupervisorError>> {
        Box::pin(async { Ok(()) })
    }

    fn ready<'a>(
        &'a self,
        _: &'a SupervisorAddress,
        _: String,
        _: Duration,
    ) -> BoxFuture<'a, Result<ReadyReport, SupervisorError>> {
        Box::pin(async { Ok(SupervisorState::Ready.into()) })
    }

    fn accepts_connections<'a>(&'a self, _: &'a str, _: u16) -> BoxFuture<'a, bool> {
        Box::pin(async { true })
    }

    fn server_idle_time<'a>(&'a self, _: &'a str, _: u16) -> BoxFuture<'a, Option<Duration>> {
        Box::pin(async { Some(Duration::ZERO) })
    }
}
