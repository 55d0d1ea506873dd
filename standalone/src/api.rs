//! A Kubernetes-style API in one process. Standalone runs on it where there is no cluster (kept in SQLite, spoken to by
//! kubectl and kube-rs), and tests run on it in memory, under paused time and with injected faults. Both use this one
//! implementation, so a test cannot pass against a server that behaves differently from the product's.

mod admission;
mod clock;
mod collect;
mod discovery;
mod error;
mod expiry;
mod faults;
mod kubeconfig;
mod node;
mod object;
mod patch;
mod protobuf;
mod registry;
mod request;
mod respond;
mod schema;
mod selector;
mod service;
mod store;
mod table;
mod verbs;
mod watch;

use std::{path::Path, sync::Arc};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use parking_lot::RwLock;

pub use operator::clock::Clock;

pub use self::{
    error::{ApiError, Cause, CauseReason, Group},
    faults::{Failure, Faults, Outage, RequestInfo, Write},
    kubeconfig::kubeconfig,
    node::{LogError, LogQuery, PodLogs},
    request::{Subresource, Verb},
    service::{ApiService, Disconnected},
    store::JournalError,
};

use self::{registry::Registry, store::Store};

/// The largest request body, as on a real server.
pub const BODY_LIMIT: usize = 3 * 1024 * 1024;

/// How an [`EmbeddedApi`] is set up.
#[derive(Clone, Debug)]
pub struct Options {
    /// The custom resources to serve.
    pub definitions: Vec<CustomResourceDefinition>,
    pub clock: Clock,
    /// Events kept per resource for watches that resume.
    pub history: usize,
    /// Write requests remembered for [`Faults::writes`].
    pub records: usize,
}

impl Options {
    /// For the product: the wall clock, no memory of writes.
    pub fn new(definitions: Vec<CustomResourceDefinition>) -> Self {
        Self {
            definitions,
            clock: Clock::wall(),
            history: 8192,
            records: 0,
        }
    }

    /// For tests: virtual time, starting at the start of 2026, and writes are remembered.
    pub fn for_tests(definitions: Vec<CustomResourceDefinition>) -> Self {
        let start = jiff::Timestamp::from_second(1_767_225_600).unwrap_or_default();
        Self {
            clock: Clock::starting_at(start),
            records: 65_536,
            ..Self::new(definitions)
        }
    }
}

/// The API server. Clones are handles on the same one.
#[derive(Clone, Debug)]
pub struct EmbeddedApi {
    inner: Arc<Inner>,
}

pub(crate) struct Inner {
    store: Store,
    registry: Arc<Registry>,
    clock: Clock,
    faults: Faults,
    expiry: expiry::Expiry,
    logs: RwLock<Option<Arc<dyn PodLogs>>>,
}

impl EmbeddedApi {
    /// A server that forgets everything when the last handle goes.
    pub fn in_memory(options: Options) -> Self {
        let registry = Registry::new(&options.definitions);
        let store = Store::in_memory(registry.shards().len(), options.history);
        Self::with_store(options, registry, store)
    }

    /// A server that keeps its objects in a SQLite file. What was answered is on disk.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Self, JournalError> {
        let registry = Registry::new(&options.definitions);
        let store = Store::open(path.as_ref(), registry.shards(), options.history)?;
        Ok(Self::with_store(options, registry, store))
    }

    fn with_store(options: Options, registry: Registry, store: Store) -> Self {
        let Options {
            definitions,
            clock,
            records,
            ..
        } = options;
        let (registry, logs, faults) =
            (Arc::new(registry), RwLock::new(None), Faults::new(records));
        let api = Self {
            inner: Arc::new(Inner {
                store,
                registry,
                clock,
                faults,
                expiry: expiry::Expiry::default(),
                logs,
            }),
        };
        verbs::bootstrap(&api.inner, &definitions);
        api
    }

    /// Makes `kubectl logs` work: from now on the node answers.
    pub fn serve_logs(&self, logs: Arc<dyn PodLogs>) {
        *self.inner.logs.write() = Some(logs);
    }

    pub fn faults(&self) -> &Faults {
        &self.inner.faults
    }

    pub fn clock(&self) -> Clock {
        self.inner.clock
    }

    /// The revision of the last change.
    pub fn revision(&self) -> u64 {
        self.inner.store.revision()
    }

    /// Drops the history, as a compaction does: watches that resume are told 410 and list again.
    pub fn forget_history(&self) {
        self.inner.store.forget_history();
    }

    /// Ends the server: the database file is complete and free, writes fail, watches break. Clients may linger in tasks
    /// that hold handles; this does not wait for them.
    pub fn close(&self) {
        self.inner.store.close();
        self.inner.faults.drop_watches();
    }

    /// A tower service for [`kube::Client::new`].
    pub fn service(&self) -> ApiService {
        ApiService::new(self.clone())
    }

    /// A client that reaches this server without a socket.
    pub fn client(&self) -> kube::Client {
        kube::Client::new(self.service(), "default")
    }

    /// The HTTP side. May be nested below a path, which is all the protection a local server has: kubectl sends no
    /// credentials over plain HTTP.
    pub fn router(&self) -> axum::Router {
        let api = self.clone();
        axum::Router::new()
            .fallback(move |request| async move { service::serve(api, request).await })
    }
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EmbeddedApi")
            .field("revision", &self.store.revision())
            .finish_non_exhaustive()
    }
}
