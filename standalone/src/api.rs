//! Kubernetes-style API server in one process. Standalone stores it in SQLite and serves kubectl
//! and kube-rs. Tests use the same code in memory, so that a test cannot pass against a server that
//! behaves differently from the product.

mod admission;
mod deletion;
mod discovery;
mod encode;
mod error;
mod event_ttl;
mod fault_injection;
mod garbage_collector;
mod handler;
mod kubeconfig;
mod listing;
mod object;
mod patch;
mod pod_logs;
mod protobuf;
mod registry;
mod request;
mod schema;
mod selector;
mod service;
mod store;
mod table;
mod timestamp;
mod verb_result;
mod verbs;
mod watch;
mod writer;

use std::{path::Path, sync::Arc};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use parking_lot::RwLock;

pub use operator::clock::Clock;

pub use self::{
    error::{ApiError, Cause, CauseReason, Disconnected, QualifiedName},
    fault_injection::{Failure, Faults, FaultyService, Outage, RequestInfo, TestApi, Write},
    kubeconfig::kubeconfig,
    pod_logs::{LogError, LogQuery, LogStream, PodLogs},
    request::{Subresource, Verb},
    service::ApiService,
    store::JournalError,
};

use self::{registry::Registry, store::Store, writer::Writer};

/// Maximum size of a request body, as on a real server.
pub const MAX_BODY_BYTES: usize = 3 * 1024 * 1024;

/// Attempts of a write that loses races.
const MAX_WRITE_ATTEMPTS: usize = 32;

/// Settings of an [`EmbeddedApi`].
#[derive(Clone, Debug)]
pub struct ApiOptions {
    /// Custom resources to serve.
    pub definitions: Vec<CustomResourceDefinition>,
    pub clock: Clock,
    /// Events kept per resource for watches that resume.
    pub history: usize,
}

impl ApiOptions {
    /// Settings of the product: wall clock.
    pub fn new(definitions: Vec<CustomResourceDefinition>) -> Self {
        Self {
            definitions,
            clock: Clock::wall(),
            history: 8192,
        }
    }

    /// Settings of tests: virtual time from the start of 2026.
    pub fn for_tests(definitions: Vec<CustomResourceDefinition>) -> Self {
        let start = jiff::Timestamp::from_second(1_767_225_600).unwrap_or_default();
        Self {
            clock: Clock::starting_at(start),
            ..Self::new(definitions)
        }
    }
}

/// API server. Clones share one server.
#[derive(Clone, Debug)]
pub struct EmbeddedApi {
    state: Arc<ApiState>,
}

pub(crate) struct ApiState {
    store: Store,
    registry: Arc<Registry>,
    clock: Clock,
    writer: Writer,
    expiry: event_ttl::EventTtl,
    logs: RwLock<Option<Arc<dyn PodLogs>>>,
}

impl EmbeddedApi {
    /// Creates a server without storage.
    pub fn in_memory(options: ApiOptions) -> Self {
        let registry = Registry::new(&options.definitions);
        let store = Store::in_memory(registry.shards().len(), options.history);
        Self::with_store(options, registry, store, Writer::inline())
    }

    /// Opens a server that stores its objects in a SQLite file. A response means that the write is
    /// on disk.
    pub fn open(path: impl AsRef<Path>, options: ApiOptions) -> Result<Self, JournalError> {
        let registry = Registry::new(&options.definitions);
        let store = Store::open(path.as_ref(), registry.shards(), options.history)?;
        let writer = Writer::start().map_err(JournalError::Thread)?;
        Ok(Self::with_store(options, registry, store, writer))
    }

    fn with_store(options: ApiOptions, registry: Registry, store: Store, writer: Writer) -> Self {
        let ApiOptions {
            definitions, clock, ..
        } = options;
        let state = ApiState {
            store,
            registry: Arc::new(registry),
            clock,
            writer,
            expiry: event_ttl::EventTtl::default(),
            logs: RwLock::new(None),
        };
        verbs::bootstrap(&state, &definitions);
        Self {
            state: Arc::new(state),
        }
    }

    /// Sets the source of container logs.
    pub fn serve_logs(&self, logs: Arc<dyn PodLogs>) {
        *self.state.logs.write() = Some(logs);
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

    /// Closes the database, fails writes and breaks watches. Does not wait for tasks that hold
    /// handles.
    pub fn close(&self) {
        self.state.store.close();
    }

    /// Tower service for [`kube::Client::new`].
    pub fn service(&self) -> ApiService {
        ApiService {
            state: Arc::clone(&self.state),
        }
    }

    /// Client that reaches this server without a socket.
    pub fn client(&self) -> kube::Client {
        kube::Client::new(self.service(), "default")
    }

    /// HTTP router. A secret path prefix is the only protection of a local server: kubectl sends no
    /// credentials over plain HTTP.
    pub fn router(&self) -> axum::Router {
        axum::Router::new().fallback_service(self.service())
    }
}

impl std::fmt::Debug for ApiState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EmbeddedApi")
            .field("revision", &self.store.revision())
            .finish_non_exhaustive()
    }
}
