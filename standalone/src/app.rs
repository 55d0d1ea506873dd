//! Standalone process: embedded API, node, controller and gateway, connected by an ordinary kube
//! client.

mod api_key;
mod build_namespace;
mod components;
mod urls;
mod warm_pool;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use operator::diagnostics::Diagnostics;
use operator::gateway::{self, ApiSettings, RegistryArgs, Tenants};
use operator::image_builds::ImageBuilds;
use operator::index::Index;
use operator::kubernetes::{client::install_crypto, root_key};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::api::{Clock, EmbeddedApi, kubeconfig};
use crate::args::Args;
use crate::banner::Banner;
use crate::state_dir::StateDir;

use components::Components;

pub(crate) use components::{image_pulls, node_state};

/// Namespace of all objects.
const NAMESPACE: &str = "default";

/// Timeout of the first list of Sandboxes.
const SYNC_TIMEOUT: Duration = Duration::from_secs(30);
/// Timeout of the node's setup, which first ends the containers of an earlier process.
const NODE_TIMEOUT: Duration = Duration::from_mins(1);

/// Serves until SIGINT or SIGTERM. Fails without a prerequisite or if a component ends by itself.
#[tokio::main]
pub async fn run(args: &Args) -> anyhow::Result<()> {
    operator::logging::init(None);
    install_crypto();
    let state = StateDir::open(&args.state_dir)?;
    let gateway = listen(args.listen, "--listen").await?;
    let api = listen(args.api_listen, "--api-listen").await?;
    let secret_path = state.secret("api-path")?;
    let api_key = state.secret("api-key")?;
    let urls = urls::choose(args.url_form, gateway.local_addr()?).await;
    let banner = Banner {
        api_url: format!("http://{}", urls.base),
        kubeconfig: state.write(
            "kubeconfig",
            &kubeconfig(&format!("http://{}/{secret_path}", api.local_addr()?)),
        )?,
        env_file: state.path.join("env"),
        sandbox_url: urls.runtime("ID"),
        has_console: settings(args).console.unwrap_or_default(),
        api_key,
    };
    state.write("env", &banner.env())?;

    let components = Arc::new(assemble(args, &state, urls, &banner.api_key).await?);
    let (frontend, backend) = (CancellationToken::new(), CancellationToken::new());
    let mut tasks = start(&components, gateway, api, secret_path, &frontend, &backend)?;
    let announced = async {
        wait_ready(&components).await?;
        println!("{banner}");
        std::future::pending().await
    };
    let result = tokio::select! {
        signal = interrupted() => signal,
        failed = announced => failed,
        ended = tasks.join_next() => ended.map_or(Ok(()), |task| task?),
    };
    // First the gateway stops, then its dependencies.
    frontend.cancel();
    if result.is_err() {
        backend.cancel();
    }
    while let Some(task) = tasks.join_next().await {
        task??;
    }
    components.vitals.flush_traces().await;
    result
}

async fn wait_ready(components: &Components) -> anyhow::Result<()> {
    anyhow::ensure!(
        components.index.wait_synced(SYNC_TIMEOUT).await,
        "the embedded API does not answer"
    );
    let mut key_versions = components.tenants.versions();
    let loaded = key_versions.wait_for(|version| *version > 0);
    timeout(SYNC_TIMEOUT, loaded)
        .await
        .context("the API keys cannot be read")??;
    timeout(NODE_TIMEOUT, components.node.started.notified())
        .await
        .context("the node has not started in time")
}

async fn listen(address: SocketAddr, flag: &str) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address)
        .await
        .with_context(|| format!("cannot listen on {address}, {flag} sets another address"))
}

async fn assemble(
    args: &Args,
    state: &StateDir,
    urls: operator::urls::Urls,
    api_key: &str,
) -> anyhow::Result<Components> {
    let api = EmbeddedApi::open(
        state.path.join("objects.db"),
        &crds::schema::all_crds(),
        Clock::wall(),
    )?;
    let client = api.client();
    let keys = Arc::new(root_key::load_or_create(&client, NAMESPACE).await?);
    api_key::register(&client, api_key).await?;
    let workspace = components::gateway_config().workspace();
    warm_pool::apply(&client, args.warm_pods, &args.warm_image, workspace).await?;
    let node = components::node_config(args, &state.path)?;
    if let Some(builds) = &node.image_builds {
        build_namespace::create(&client, &builds.namespace).await?;
    }
    let vitals = Diagnostics::default();
    vitals.export_traces("sandbox-standalone")?;
    Ok(Components {
        index: Arc::new(Index::new(keys.clone())),
        tenants: Tenants::pending(),
        node,
        public: args.public,
        deadlines: args.deadlines,
        default_persistence: args.default_persistence,
        memory_persistence: args.memory_persistence,
        settings: settings(args),
        registries: RegistryArgs {
            config: args.registries.registry_config.clone(),
            insecure: args.registries.insecure.clone(),
        },
        builder: components::builder_config(args, &state.path),
        vitals: Arc::new(vitals),
        api,
        client,
        keys,
        urls,
    })
}

/// Without a registry to build into, an image that a client builds is an alias. The console is on.
fn settings(args: &Args) -> ApiSettings {
    ApiSettings {
        image_builds: args.settings.image_builds.or(Some(ImageBuilds::Alias)),
        console: args.settings.console.or(Some(true)),
        ..args.settings.clone()
    }
}

/// Starts the components: the gateway until `frontend` is cancelled, the others until `backend` is,
/// which follows when the clients have been served.
fn start(
    components: &Arc<Components>,
    listener: TcpListener,
    api: TcpListener,
    secret_path: String,
    frontend: &CancellationToken,
    backend: &CancellationToken,
) -> anyhow::Result<JoinSet<anyhow::Result<()>>> {
    let mut tasks = JoinSet::new();
    let own = || components.clone();
    tasks.spawn(own().run_node(backend.clone()));
    tasks.spawn(own().serve_api(api, secret_path, backend.clone()));
    tasks.spawn(own().run_tenants(backend.clone()));
    let gateway = components.gateway()?;
    tasks.spawn(own().run_controller(gateway.clone(), backend.clone()));
    let serving = gateway::run(gateway, listener, frontend.clone());
    let clients_served = backend.clone();
    tasks.spawn(async move {
        serving.await;
        clients_served.cancel();
        Ok(())
    });
    Ok(tasks)
}

/// Waits for the first signal. A second signal ends the process at once.
async fn interrupted() -> anyhow::Result<()> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut either = async move || {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    };
    either().await;
    println!(
        "\nStopping. Running sandboxes stop now and resume with their workspaces at the next start."
    );
    tokio::spawn(async move {
        either().await;
        std::process::exit(130);
    });
    Ok(())
}
