//! Everything in one process: embedded API, node, controller and gateway, each as on a cluster and
//! joined by the ordinary kube client.

mod parts;
mod urls;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use operator::gateway::{self, Tenants};
use operator::index::Index;
use operator::kubernetes::{client::install_crypto, root_key};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::api::{EmbeddedApi, Options, kubeconfig};
use crate::args::Args;
use crate::banner::Banner;
use crate::state::StateDir;

use parts::Parts;

/// Namespace of everything.
const NAMESPACE: &str = "default";

/// How long the first list of Sandboxes may take.
const SYNC_LIMIT: Duration = Duration::from_secs(30);

/// Serves until SIGINT or SIGTERM.
///
/// # Errors
/// If something that the product cannot do without is missing, or ends by itself.
#[tokio::main]
pub async fn run(args: &Args) -> anyhow::Result<()> {
    operator::telemetry::init();
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
        api_key,
    };
    state.write("env", &banner.env())?;

    let parts = assemble(args, &state, urls, &banner.api_key).await?;
    let index = parts.index.clone();
    let running = Running::start(&parts, gateway, api, &secret_path);
    anyhow::ensure!(
        index.wait_synced(SYNC_LIMIT).await,
        "the embedded API does not answer"
    );
    println!("{banner}");
    running.until_interrupted().await
}

async fn listen(address: SocketAddr, flag: &str) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address)
        .await
        .with_context(|| format!("cannot listen on {address}, {flag} names another address"))
}

async fn assemble(
    args: &Args,
    state: &StateDir,
    urls: operator::urls::Urls,
    api_key: &str,
) -> anyhow::Result<Parts> {
    let api = EmbeddedApi::open(
        state.path.join("objects.db"),
        Options::new(crds::schema::all()),
    )?;
    let client = api.client();
    let keys = Arc::new(root_key::load_or_create(&client, NAMESPACE).await?);
    Ok(Parts {
        index: Arc::new(Index::new(keys.clone())),
        tenants: Tenants::fixed([("default", api_key)]),
        node: parts::node_config(args, &state.path)?,
        public: args.public,
        deadlines: args.lifecycle.into(),
        settings: args.settings.clone().into(),
        vitals: Arc::default(),
        api,
        client,
        keys,
        urls,
    })
}

/// The tasks, in the two groups in which they end: first what serves clients, then what it needs.
struct Running {
    tasks: JoinSet<anyhow::Result<()>>,
    front: CancellationToken,
    back: CancellationToken,
}

impl Running {
    fn start(parts: &Parts, listener: TcpListener, api: TcpListener, secret_path: &str) -> Self {
        let (front, back) = (CancellationToken::new(), CancellationToken::new());
        let mut tasks = JoinSet::new();
        tasks.spawn(parts.run_node(back.clone()));
        tasks.spawn(parts.serve_api(api, secret_path, back.clone()));
        tasks.spawn(parts.run_tenants(back.clone()));
        let gateway = parts.gateway();
        tasks.spawn(parts.run_controller(gateway.clone(), back.clone()));
        let serving = gateway::run(gateway, listener, front.clone());
        let clients_served = back.clone();
        tasks.spawn(async move {
            serving.await;
            clients_served.cancel();
            Ok(())
        });
        Self { tasks, front, back }
    }

    async fn until_interrupted(mut self) -> anyhow::Result<()> {
        let outcome = tokio::select! {
            signal = interrupted() => signal,
            ended = self.tasks.join_next() => ended.map_or(Ok(()), |task| task?),
        };
        self.front.cancel();
        if outcome.is_err() {
            self.back.cancel();
        }
        while let Some(task) = self.tasks.join_next().await {
            task??;
        }
        outcome
    }
}

/// Waits for the first signal. A second one ends the process at once.
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
        "\nStopping. Running sandboxes end, and come back with their workspaces at the next start."
    );
    tokio::spawn(async move {
        either().await;
        std::process::exit(130);
    });
    Ok(())
}
