//! The two processes that are measured.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use kube::api::{ListParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use standalone::api::{Clock, EmbeddedApi};
use tests::test_cluster::{ScriptedNode, ScriptedSupervisors, run_controller};
use tokio_util::sync::CancellationToken;

/// Most warm Pods of one pool.
const MAX_REPLICAS: u32 = 10_000;

/// Serves an API that holds this many Sandboxes, or a pool of warm Pods, and plays their node. Says
/// when all run.
pub(crate) async fn api(what: &str, count: u32) {
    let api = EmbeddedApi::in_memory(&crds::schema::all_crds(), Clock::wall());
    let client = api.client();
    let node = ScriptedNode::new(client.clone(), api.clock(), Arc::default());
    let node = Arc::new(node);
    tokio::spawn(node.run());
    let warm = what == "warm Pods";
    create_pools(&client, if warm { count } else { 0 }).await;
    if !warm {
        fill(&client, count).await;
    }
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    eprintln!("listening on http://{}", listener.local_addr().unwrap());
    let router = api.router();
    tokio::spawn(async move { axum::serve(listener, router).await });
    if warm {
        wait_for_pools(&client).await;
    } else {
        wait_for_all(&client, count).await;
    }
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

async fn wait_for_pools(client: &Client) {
    let pools: Api<crds::SandboxPool> = Api::namespaced(client.clone(), "default");
    let is_full = |pool: &crds::SandboxPool| {
        let status = pool.status.as_ref();
        status.is_some_and(|status| status.ready == pool.spec.replicas)
    };
    let all = ListParams::default();
    while !pools.list(&all).await.unwrap().iter().all(is_full) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Creates pools that have so many warm Pods together, and at least one pool.
async fn create_pools(client: &Client, warm_pods: u32) {
    let pools: Api<crds::SandboxPool> = Api::namespaced(client.clone(), "default");
    for number in 0..warm_pods.div_ceil(MAX_REPLICAS).max(1) {
        let replicas = (warm_pods - number * MAX_REPLICAS).min(MAX_REPLICAS);
        let pool = json!({
            "metadata": {"name": format!("bench-{number}")},
            "spec": {"replicas": replicas, "template": {"image": "debian:12"}},
        });
        let pool = serde_json::from_value(pool).unwrap();
        pools.create(&PostParams::default(), &pool).await.unwrap();
    }
}

async fn fill(client: &Client, count: u32) {
    let sandboxes: Api<crds::Sandbox> = Api::namespaced(client.clone(), "default");
    futures::stream::iter(0..count)
        .for_each_concurrent(64, async |number| {
            let sandbox = json!({
                "metadata": {"name": format!("bench-{number}")},
                "spec": {"pool": "bench-0", "command": ["sleep", "infinity"],
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
    let supervisors = ScriptedSupervisors::of_ready_commands(ready);
    run_controller(client, supervisors, CancellationToken::new()).await;
}
