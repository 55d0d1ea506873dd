//! Kubernetes-style API server in one process. Standalone stores it in SQLite and serves kubectl
//! and kube-rs. Tests use the same code in memory, so that a test cannot pass against a server that
//! behaves differently from the product.

mod admission;
mod bootstrap;
mod deletion;
mod discovery;
mod encode;
mod error;
mod event_ttl;
mod garbage_collector;
mod handler;
mod kubeconfig;
mod kubelet;
mod listing;
mod object;
mod patch;
mod protobuf;
mod registry;
mod request;
mod schema;
mod selector;
mod store;
mod table;
mod verbs;
mod watch;

use std::{path::Path, sync::Arc};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use parking_lot::{Mutex, RwLock};
use tokio::sync::Semaphore;

pub use operator::clock::Clock;

pub use self::{
    kubeconfig::kubeconfig,
    kubelet::{
        ContainerPath, ExecCommand, Kubelet, LogError, LogQuery, LogStream, Resize, Session,
        SessionInput,
    },
    store::JournalError,
};

pub(crate) use self::kubelet::exit_status;

use self::{event_ttl::LastSweep, registry::Registry, store::Store};

/// Maximum size of a request body, as on a real server.
const MAX_BODY_BYTES: usize = 3 * 1024 * 1024;

/// Attempts of a write that loses races.
const MAX_WRITE_ATTEMPTS: usize = 32;

const MAX_SESSIONS: usize = 256;

/// Events kept per resource for watches that resume.
const MAX_HISTORY: usize = 8192;

/// API server, a tower service. Clones share one server.
#[derive(Clone, derive_more::Debug)]
#[debug("EmbeddedApi {{ revision: {}, .. }}", self.revision())]
pub struct EmbeddedApi {
    state: Arc<ApiState>,
}

struct ApiState {
    store: Store,
    registry: Registry,
    clock: Clock,
    /// Turn of the write requests of a stored API; they wait for the disk. In memory, none waits.
    writers: Option<tokio::sync::Mutex<()>>,
    last_sweep: Mutex<LastSweep>,
    kubelet: RwLock<Option<Arc<dyn Kubelet>>>,
    session_permits: Arc<Semaphore>,
}

impl EmbeddedApi {
    /// Creates a server of these custom resources without storage.
    pub fn in_memory(definitions: &[CustomResourceDefinition], clock: Clock) -> Self {
        let registry = Registry::new(definitions);
        let store = Store::in_memory(registry.shards().len(), MAX_HISTORY);
        Self::new(definitions, clock, registry, store, None)
    }

    /// Opens a server that stores its objects in SQLite. A response means that a write is on disk.
    pub fn open(
        path: impl AsRef<Path>,
        definitions: &[CustomResourceDefinition],
        clock: Clock,
    ) -> Result<Self, JournalError> {
        let registry = Registry::new(definitions);
        let store = Store::open(path.as_ref(), registry.shards(), MAX_HISTORY)?;
        let writers = Some(tokio::sync::Mutex::default());
        Ok(Self::new(definitions, clock, registry, store, writers))
    }

    fn new(
        definitions: &[CustomResourceDefinition],
        clock: Clock,
        registry: Registry,
        store: Store,
        writers: Option<tokio::sync::Mutex<()>>,
    ) -> Self {
        let state = ApiState {
            store,
            registry,
            clock,
            writers,
            last_sweep: Mutex::default(),
            kubelet: RwLock::new(None),
            session_permits: Arc::new(Semaphore::new(MAX_SESSIONS)),
        };
        bootstrap::prepare(&state, definitions);
        Self {
            state: Arc::new(state),
        }
    }

    pub fn serve_containers(&self, kubelet: Arc<dyn Kubelet>) {
        *self.state.kubelet.write() = Some(kubelet);
    }

    pub fn clock(&self) -> Clock {
        self.state.clock
    }

    /// Revision of the last change.
    pub fn revision(&self) -> u64 {
        self.state.store.revision()
    }

    /// Drops the watch history. Watches that resume from before get 410 and list again.
    pub fn compact(&self) {
        self.state.store.forget_history();
    }

    /// Client that reaches this server without a socket.
    pub fn client(&self) -> kube::Client {
        kube::Client::new(self.clone(), "default")
    }

    /// The secret path prefix is the only protection: kubectl sends no credentials over plain HTTP.
    pub fn router(&self) -> axum::Router {
        axum::Router::new().fallback_service(self.clone())
    }
}
