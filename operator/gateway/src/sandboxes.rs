//! Access of the gateway to Sandboxes. Reads come from the index, with a live lookup where another
//! replica may know more. Every write enters the index at once.

mod error;
mod find;
mod lookup_limiter;
pub(super) mod retry;

use std::sync::Arc;
use std::time::Duration;

use crds::Sandbox;
use crds::names::{self, GATEWAY_FIELD_MANAGER};
use crds::sandbox::DesiredState;
use jiff::SignedDuration;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::GatewayConfig;
use shared::index::{Entry, Index, Key};
use shared::keys::Keys;
use shared::kubernetes::health::Freshness;

use lookup_limiter::LookupLimiter;
use retry::{retrying, within};

pub(crate) use error::SandboxError;
pub(crate) use lookup_limiter::{AuthenticatedLookups, INDEX_CATCH_UP_TIMEOUT};

/// Unauthenticated requests cause some lookups, so they queue here and not at the API server.
const MAX_CONCURRENT_LOOKUPS: usize = 32;
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(2);
/// Time that a change of state waits until the watch has delivered it.
const DELIVERY_TIMEOUT: Duration = Duration::from_millis(2500);
/// `deleteStoppedAfter` of a tombstone that is to be deleted; 0 would keep it.
const EXPIRE_NOW: &str = "1s";
/// The resource whose watch feeds the index.
const WATCHED_RESOURCE: &str = "sandboxes";
/// Time that a request waits for the first complete list after the process started.
const SYNC_TIMEOUT: Duration = Duration::from_secs(5);

/// Resolution of times in objects: the next time that is later.
const TIMESTAMP_RESOLUTION: SignedDuration = SignedDuration::from_secs(1);

/// Access to all Sandboxes; cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Sandboxes {
    pub(crate) index: Arc<Index>,
    pub(crate) keys: Arc<Keys>,
    pub(crate) config: Arc<GatewayConfig>,
    api: Api<Sandbox>,
    freshness: Arc<Freshness>,
    lookups: Arc<Semaphore>,
    lookup_limiter: Arc<LookupLimiter>,
}

impl Sandboxes {
    pub(crate) fn new(
        client: &kube::Client,
        config: Arc<GatewayConfig>,
        index: Arc<Index>,
        keys: Arc<Keys>,
    ) -> Self {
        Self {
            api: Api::namespaced(client.clone(), &config.namespace),
            freshness: config.vitals.health.freshness(WATCHED_RESOURCE),
            lookups: Arc::new(Semaphore::new(MAX_CONCURRENT_LOOKUPS)),
            lookup_limiter: Arc::default(),
            index,
            keys,
            config,
        }
    }

    /// Id and name of the sandbox of a session that the API creates in this epoch.
    pub(crate) fn session_runtime_id(&self, tenant: &str, session: &str, epoch: u32) -> String {
        let namespace = &self.config.namespace;
        self.keys
            .session_runtime_id(namespace, tenant, session, epoch)
    }

    /// Waits until the index is complete.
    pub(crate) async fn synced(&self) -> Result<(), SandboxError> {
        if self.index.is_synced() || self.index.wait_synced(SYNC_TIMEOUT).await {
            return Ok(());
        }
        Err(SandboxError::NotSynced)
    }

    /// Returns whether the entry is in the namespace of the API. In others, users create Sandboxes.
    pub(crate) fn is_in_api_namespace(&self, entry: &Entry) -> bool {
        entry.key.namespace == self.config.namespace
    }

    /// Returns all sandboxes of a tenant in the namespace of the API.
    pub(crate) fn of_tenant(&self, tenant: &str) -> Vec<Arc<Entry>> {
        let mut entries = self.index.of_tenant(tenant);
        entries.retain(|entry| self.is_in_api_namespace(entry));
        entries
    }

    /// Reads an object from the API server and updates the index.
    pub(crate) async fn look_up(&self, name: &str) -> Result<Option<Arc<Entry>>, SandboxError> {
        let key = Key {
            namespace: self.config.namespace.clone(),
            name: name.to_owned(),
        };
        self.look_up_key(&key).await
    }

    async fn look_up_key(&self, key: &Key) -> Result<Option<Arc<Entry>>, SandboxError> {
        let known = self.index.get(key);
        let api = self.api_of(key);
        let get = async {
            let _permit = self.lookups.acquire().await;
            api.get_opt(&key.name).await
        };
        let started = Instant::now();
        let found = within(LOOKUP_TIMEOUT, get).await;
        self.lookup_limiter
            .record_api_result(started, found.is_ok());
        let found = found?;
        if let (None, Some(known)) = (&found, known) {
            // It was in the index before the lookup, so it has been deleted since.
            self.index.remove(key, &known.uid);
        }
        Ok(found.and_then(|sandbox| self.index.apply(&sandbox)))
    }

    /// Refreshes an entry; while the API server is away, returns it unchanged.
    pub(crate) async fn refresh(&self, entry: Arc<Entry>) -> Option<Arc<Entry>> {
        match self.look_up_key(&entry.key).await {
            Ok(found) => found.filter(|found| found.uid == entry.uid),
            Err(_) => Some(entry),
        }
    }

    /// Creates an object. `None` if one of that name exists already.
    pub(crate) async fn create(
        &self,
        sandbox: &Sandbox,
    ) -> Result<Option<Arc<Entry>>, SandboxError> {
        let params = create_params();
        match retrying(|| self.api.create(&params, sandbox)).await {
            Ok(created) => {
                let entry = self.index.apply(&created);
                entry.map(Some).ok_or(SandboxError::Incomplete)
            }
            Err(SandboxError::Exists) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes the desired state. `Running` also ends an automatic pause.
    pub(crate) async fn set_state(
        &self,
        entry: &Entry,
        state: DesiredState,
    ) -> Result<Arc<Entry>, SandboxError> {
        let mut patch = json!({"spec": {"state": state}});
        if state == DesiredState::Stopped {
            // A tombstone is small: it needs neither environment nor command.
            patch["spec"]["sealedEnv"] = Value::Null;
            patch["spec"]["command"] = Value::Null;
        }
        if let Some(wake) = wake(entry).filter(|_| state == DesiredState::Running) {
            patch["metadata"] = wake;
        }
        let written = self.patch(entry, patch).await?;
        // An automatic pause may be new in the answer, or was hidden by a requested one.
        let written = match state {
            DesiredState::Running => self.wake(&written).await?,
            DesiredState::Paused | DesiredState::Stopped => written,
        };
        // The client may ask another replica next, whose watch is about as fast as this one.
        if !self.freshness.is_stale() {
            self.index
                .wait_delivered(&entry.key, DELIVERY_TIMEOUT)
                .await;
        }
        Ok(self.index.get(&entry.key).unwrap_or(written))
    }

    /// Lets the controller delete a tombstone now.
    pub(crate) async fn expire_tombstone(&self, entry: &Entry) -> Result<(), SandboxError> {
        let lifecycle = json!({"deleteStoppedAfter": EXPIRE_NOW});
        let patch = json!({"spec": {"lifecycle": lifecycle}});
        self.patch(entry, patch).await.map(|_| ())
    }

    /// Ends an automatic pause; a requested one stays.
    pub(crate) async fn wake(&self, entry: &Entry) -> Result<Arc<Entry>, SandboxError> {
        match wake(entry) {
            Some(wake) => self.patch(entry, json!({"metadata": wake})).await,
            None => Ok(Arc::new(entry.clone())),
        }
    }

    fn api_of(&self, key: &Key) -> Api<Sandbox> {
        Api::namespaced(self.api.clone().into_client(), &key.namespace)
    }

    async fn patch(&self, entry: &Entry, mut patch: Value) -> Result<Arc<Entry>, SandboxError> {
        // The uid makes this fail on another object of the same name.
        patch["metadata"]["uid"] = entry.uid.clone().into();
        let patch = Patch::Merge(patch);
        let params = PatchParams::apply(GATEWAY_FIELD_MANAGER);
        let api = self.api_of(&entry.key);
        let patched = retrying(|| api.patch(&entry.key.name, &params, &patch)).await?;
        self.index.apply(&patched).ok_or(SandboxError::Incomplete)
    }
}

pub(crate) fn create_params() -> PostParams {
    PostParams {
        field_manager: Some(GATEWAY_FIELD_MANAGER.into()),
        ..PostParams::default()
    }
}

/// Annotation that ends the present automatic pause, or starts a failed sandbox with a workspace
/// again. It follows from the status: clocks need not agree, and all writers write the same.
fn wake(entry: &Entry) -> Option<Value> {
    let status = &entry.status;
    let at = if entry.automatic_pause().is_some() {
        status.paused_at.as_ref()?.0
    } else if entry.has_failed_with_workspace() && !entry.is_restart_requested() {
        status
            .started_at
            .as_ref()?
            .0
            .checked_add(TIMESTAMP_RESOLUTION)
            .ok()?
    } else {
        return None;
    };
    Some(json!({"annotations": {names::WAKE_ANNOTATION: at.to_string()}}))
}
