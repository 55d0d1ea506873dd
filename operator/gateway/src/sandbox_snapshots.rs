//! Snapshots of sandboxes in the API server. Every read is live, so that any replica knows the
//! snapshots of the others at once.

mod error;

use std::time::Duration;

use crds::SandboxSnapshot;
use crds::names::{self, GATEWAY_FIELD_MANAGER, MANAGED_BY_LABEL, RUNTIME_ID_LABEL, TENANT_LABEL};
use crds::snapshot::SandboxSnapshotSpec;
use kube::api::{DeleteParams, ListParams, Preconditions};
use kube::{Api, ResourceExt as _};
use ring::rand::{self, SystemRandom};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::keyed_limit::KeyedLimiter;
use crate::sandboxes::retry::{retrying, within};
use crate::sandboxes::{SandboxError, create_params};

pub(crate) use error::SnapshotError;

/// Snapshots of one tenant. Each keeps the volume of its sandbox.
pub(crate) const MAX_SNAPSHOTS_PER_TENANT: u32 = 100;
/// Clients poll and may ask for snapshots that do not exist, so lookups queue here and not at the
/// API server.
const MAX_CONCURRENT_LOOKUPS: usize = 16;
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(2);
/// Lists have less room: an object has the spec of its sandbox, with commands of up to a MiB.
const MAX_CONCURRENT_LISTS: usize = 2;
/// Lists of one tenant, waiting ones included, so that another one has the next turn.
const MAX_LISTS_PER_TENANT: usize = 8;
const LIST_TIMEOUT: Duration = Duration::from_secs(4);
const PAGE_SIZE: u32 = 10;
const MAX_PAGES: usize = 50;
/// Longest name that the schema allows.
const MAX_NAME_BYTES: usize = 52;

/// Access to the snapshots of one namespace.
#[derive(Debug)]
pub(crate) struct Snapshots {
    api: Api<SandboxSnapshot>,
    lookups: Semaphore,
    lists: Semaphore,
    tenant_lists: KeyedLimiter<String>,
}

impl Snapshots {
    pub(crate) fn new(client: &kube::Client, namespace: &str) -> Self {
        Self {
            api: Api::namespaced(client.clone(), namespace),
            lookups: Semaphore::new(MAX_CONCURRENT_LOOKUPS),
            lists: Semaphore::new(MAX_CONCURRENT_LISTS),
            tenant_lists: KeyedLimiter::default(),
        }
    }

    /// Finds a snapshot of the tenant; one of another tenant, or one that goes, is unknown.
    pub(crate) async fn find(
        &self,
        tenant: &str,
        name: &str,
    ) -> Result<SandboxSnapshot, SnapshotError> {
        if !may_be_name(name) {
            return Err(SnapshotError::Unknown);
        }
        let get = async {
            let _permit = self.lookups.acquire().await;
            self.api.get_opt(name).await
        };
        let found = within(LOOKUP_TIMEOUT, get).await?;
        let found = found.filter(|snapshot| is_shown(snapshot, tenant));
        found.ok_or(SnapshotError::Unknown)
    }

    /// Returns the snapshots of the tenant without their templates, the oldest first.
    pub(crate) async fn list(&self, tenant: &str) -> Result<Vec<SandboxSnapshot>, SnapshotError> {
        let own = self
            .tenant_lists
            .acquire(&tenant.to_owned(), MAX_LISTS_PER_TENANT);
        let _own = own.ok_or(SandboxError::Timeout)?;
        let listing = async {
            let _permit = self.lists.acquire().await;
            let mut all = Vec::new();
            // kubectl sets no label.
            for selector in [of_tenant(tenant), format!("!{TENANT_LABEL}")] {
                self.list_selected(&selector, tenant, &mut all).await?;
            }
            Ok::<_, SnapshotError>(all)
        };
        let listed = timeout(LIST_TIMEOUT, listing).await;
        let mut listed = listed.map_err(|_| SandboxError::Timeout)??;
        listed.sort_by_key(|snapshot| (snapshot.creation_timestamp(), snapshot.name_any()));
        // One may have got its label between the two lists.
        listed.dedup_by_key(|snapshot| snapshot.name_any());
        Ok(listed)
    }

    async fn list_selected(
        &self,
        selector: &str,
        tenant: &str,
        all: &mut Vec<SandboxSnapshot>,
    ) -> Result<(), SnapshotError> {
        let mut params = ListParams::default().labels(selector).limit(PAGE_SIZE);
        for _ in 0..MAX_PAGES {
            let page = self.api.list(&params).await;
            let page = page.map_err(|error| installed(error.into()))?;
            let mut own = page.items;
            own.retain(|snapshot| is_shown(snapshot, tenant));
            for status in own
                .iter_mut()
                .filter_map(|snapshot| snapshot.status.as_mut())
            {
                status.template = None;
            }
            all.extend(own);
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => break,
            }
        }
        Ok(())
    }

    /// Creates a snapshot of a sandbox of the tenant.
    pub(crate) async fn create(
        &self,
        tenant: &str,
        runtime_id: &str,
        spec: SandboxSnapshotSpec,
    ) -> Result<SandboxSnapshot, SnapshotError> {
        self.check_count(tenant).await?;
        let name = format!("snap-{}", random_letters()?);
        let mut snapshot = SandboxSnapshot::new(&name, spec);
        snapshot.spec.tenant = Some(tenant.to_owned());
        snapshot.labels_mut().extend(
            [
                (TENANT_LABEL, &*names::tenant_label(tenant)),
                (RUNTIME_ID_LABEL, runtime_id),
                (MANAGED_BY_LABEL, GATEWAY_FIELD_MANAGER),
            ]
            .map(|(label, value)| (label.to_owned(), value.to_owned())),
        );
        let params = create_params();
        match retrying(|| self.api.create(&params, &snapshot)).await {
            Ok(created) => Ok(created),
            // The name is random, so this is the result of an attempt whose answer was lost.
            Err(SandboxError::Exists) => self.find(tenant, &name).await,
            Err(error) => Err(installed(error)),
        }
    }

    async fn check_count(&self, tenant: &str) -> Result<(), SnapshotError> {
        let max = MAX_SNAPSHOTS_PER_TENANT;
        if self.count(tenant).await? < usize::try_from(max).unwrap_or(usize::MAX) {
            return Ok(());
        }
        Err(SnapshotError::TooMany { max })
    }

    /// Number of snapshots of a tenant, up to the limit. Those that are being deleted count too: they
    /// have objects and volumes until they are gone.
    pub(crate) async fn count(&self, tenant: &str) -> Result<usize, SnapshotError> {
        let params = ListParams::default().labels(&of_tenant(tenant));
        let params = params.limit(MAX_SNAPSHOTS_PER_TENANT);
        let list = async {
            let _permit = self.lookups.acquire().await;
            self.api.list_metadata(&params).await
        };
        let listed = within(LOOKUP_TIMEOUT, list).await.map_err(installed)?;
        Ok(listed.items.len())
    }

    /// Deletes a snapshot, unless it was replaced.
    pub(crate) async fn delete(&self, snapshot: &SandboxSnapshot) -> Result<(), SnapshotError> {
        let params = DeleteParams::default().preconditions(Preconditions {
            uid: snapshot.uid(),
            resource_version: None,
        });
        let name = snapshot.name_any();
        match retrying(|| self.api.delete(&name, &params)).await {
            Ok(_) | Err(SandboxError::NotFound) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Returns 16 random letters.
pub(crate) fn random_letters() -> Result<String, SnapshotError> {
    let bytes = rand::generate::<[u8; 16]>(&SystemRandom::new());
    let bytes = bytes.map_err(|_| SnapshotError::Random)?;
    Ok(names::runtime_id(&bytes.expose()))
}

fn of_tenant(tenant: &str) -> String {
    format!("{TENANT_LABEL}={}", names::tenant_label(tenant))
}

fn is_shown(snapshot: &SandboxSnapshot, tenant: &str) -> bool {
    snapshot.tenant() == Some(tenant) && snapshot.metadata.deletion_timestamp.is_none()
}

/// Returns whether an object can have this name. The text becomes part of a path.
fn may_be_name(text: &str) -> bool {
    let is_legal = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-.".contains(&b);
    text.len() <= MAX_NAME_BYTES
        && text.bytes().all(is_legal)
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
}

/// Tells a missing resource from a missing object.
fn installed(error: SandboxError) -> SnapshotError {
    match error {
        SandboxError::NotFound => SnapshotError::NotInstalled,
        other => other.into(),
    }
}

#[cfg(test)]
mod tests;
