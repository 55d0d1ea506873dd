//! Sandboxes as the gateway finds and changes them: read from the index, looked up once in the
//! API server where another replica may know more, and every write entered into the index at once.

mod error;
mod find;
pub(super) mod retry;
mod strangers;

use std::sync::Arc;
use std::time::Duration;

use crds::names;
use crds::sandbox::DesiredState;
use crds::{Sandbox, names::GATEWAY};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::index::{Entry, Index, Key};
use crate::keys::Keys;
use crate::vitals::Vitals;

pub use error::SandboxError;
pub use find::is_over;
use retry::{retrying, within};
use strangers::Strangers;

/// Live look-ups at the same time. Anybody can ask for ids that do not exist, so they queue here
/// and not at the API server.
const LOOKUPS: usize = 32;
/// A look-up that takes longer is given up.
const LOOKUP_LIMIT: Duration = Duration::from_secs(2);
/// How long a request waits for the first complete list after the process started.
const SYNC_LIMIT: Duration = Duration::from_secs(5);

/// Access to all Sandboxes; cheap to clone.
#[derive(Debug, Clone)]
pub struct Sandboxes {
    pub index: Arc<Index>,
    pub keys: Arc<Keys>,
    namespace: Arc<str>,
    api: Api<Sandbox>,
    lookups: Arc<Semaphore>,
    strangers: Arc<Strangers>,
    vitals: Arc<Vitals>,
}

/// What came of a create.
#[derive(Debug)]
pub enum Created {
    New(Arc<Entry>),
    /// An object of that name was there already.
    Exists,
}

impl Sandboxes {
    /// `vitals` know whether the watch that feeds `index` works.
    pub fn new(
        client: kube::Client,
        namespace: &str,
        index: Arc<Index>,
        keys: Arc<Keys>,
        vitals: Arc<Vitals>,
    ) -> Self {
        Self {
            api: Api::namespaced(client, namespace),
            namespace: namespace.into(),
            lookups: Arc::new(Semaphore::new(LOOKUPS)),
            strangers: Arc::default(),
            index,
            keys,
            vitals,
        }
    }

    /// Waits until the index is complete, so that what it lacks does not exist.
    pub async fn synced(&self) -> Result<(), SandboxError> {
        if self.index.synced() || self.index.wait_synced(SYNC_LIMIT).await {
            return Ok(());
        }
        Err(SandboxError::NotSynced)
    }

    /// Whether the entry lives in the namespace of the API. Elsewhere anybody may claim to be a
    /// session.
    pub fn is_ours(&self, entry: &Entry) -> bool {
        *entry.key.namespace == *self.namespace
    }

    /// Reads an object from the API server, and enters into the index what came of it.
    pub async fn look_up(&self, name: &str) -> Result<Option<Arc<Entry>>, SandboxError> {
        let key = Key {
            namespace: self.namespace.to_string(),
            name: name.to_owned(),
        };
        let known = self.index.get(&key);
        let get = async {
            let _permit = self.lookups.acquire().await;
            self.api.get_opt(name).await
        };
        let found = within(LOOKUP_LIMIT, get).await;
        self.strangers.note_answer(found.is_ok());
        let found = found?;
        if let (None, Some(known)) = (&found, known) {
            // It was known before the question, so it is gone and not yet to come.
            self.index.remove(&key, &known.uid);
        }
        Ok(found.and_then(|sandbox| self.index.apply(&sandbox)))
    }

    /// The entry as the API server has it now, or as it is if the server is away.
    pub async fn refresh(&self, entry: Arc<Entry>) -> Option<Arc<Entry>> {
        if !self.is_ours(&entry) {
            return Some(entry);
        }
        match self.look_up(&entry.key.name).await {
            Ok(found) => found.filter(|found| found.uid == entry.uid),
            Err(_) => Some(entry),
        }
    }

    /// Creates an object.
    pub async fn create(&self, sandbox: &Sandbox) -> Result<Created, SandboxError> {
        let params = PostParams {
            field_manager: Some(GATEWAY.into()),
            ..PostParams::default()
        };
        let created = retrying(|| self.api.create(&params, sandbox)).await;
        match created {
            Ok(made) => self
                .index
                .apply(&made)
                .map(Created::New)
                .ok_or(SandboxError::Incomplete),
            Err(SandboxError::Exists) => Ok(Created::Exists),
            Err(error) => Err(error),
        }
    }

    /// Says what a sandbox should be from now on. One that is to run is asked to be awake as well.
    pub async fn set_state(
        &self,
        entry: &Entry,
        state: DesiredState,
    ) -> Result<Arc<Entry>, SandboxError> {
        let mut patch = json!({"spec": {"state": state}});
        if let Some(wake) = wake(entry).filter(|_| state == DesiredState::Running) {
            patch["metadata"] = wake;
        }
        let written = self.patch(entry, patch).await?;
        // What was not known before the write, or lay hidden behind a pause that was asked for.
        match state {
            DesiredState::Running => self.wake(&written).await,
            DesiredState::Paused | DesiredState::Stopped => Ok(written),
        }
    }

    /// Ends a pause that the operator made by itself. Whatever else holds is left alone.
    pub async fn wake(&self, entry: &Entry) -> Result<Arc<Entry>, SandboxError> {
        match wake(entry) {
            Some(wake) => self.patch(entry, json!({"metadata": wake})).await,
            None => Ok(Arc::new(entry.clone())),
        }
    }

    async fn patch(&self, entry: &Entry, mut patch: Value) -> Result<Arc<Entry>, SandboxError> {
        // The uid makes this fail on another object of the same name.
        patch["metadata"]["uid"] = entry.uid.clone().into();
        let patch = Patch::Merge(patch);
        let params = PatchParams {
            field_manager: Some(GATEWAY.into()),
            ..PatchParams::default()
        };
        let Key { namespace, name } = &entry.key;
        let api = Api::<Sandbox>::namespaced(self.api.clone().into_client(), namespace);
        let patched = retrying(|| api.patch(name, &params, &patch)).await?;
        self.index.apply(&patched).ok_or(SandboxError::Incomplete)
    }
}

/// Metadata that asks for an end of the present pause. Its own beginning names the pause, so that
/// clocks need not agree and many askers write the same.
fn wake(entry: &Entry) -> Option<Value> {
    entry.own_pause()?;
    let since = entry.status.paused_at.as_ref()?.0;
    Some(json!({"annotations": {names::WAKE_ANNOTATION: since.to_string()}}))
}
