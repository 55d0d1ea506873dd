//! Image builds in the API server. Every write enters the index at once.

use std::sync::Arc;
use std::time::Duration;

use crds::ImageBuild;
use crds::image_build::{BuildMode, ImageBuildSpec};
use crds::names::{self, BUILD_MODE_LABEL, FULL_BUILD, GATEWAY_FIELD_MANAGER, MANAGED_BY_LABEL};
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::time::sleep;

use super::index::BuildIndex;
use crate::sandboxes::retry::{retrying, within};
use crate::sandboxes::{AuthenticatedLookups, INDEX_CATCH_UP_TIMEOUT, SandboxError, create_params};

/// Clients ask for images that do not exist, so lookups queue here and not at the API server.
const MAX_CONCURRENT_LOOKUPS: usize = 16;
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(2);

/// Access to the image builds of one namespace; cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct BuildStore {
    api: Api<ImageBuild>,
    index: Arc<BuildIndex>,
    lookups: Arc<Semaphore>,
    /// Lookups of ids that the index lacks.
    unknown_ids: Arc<AuthenticatedLookups>,
}

impl BuildStore {
    pub(super) fn new(client: &kube::Client, namespace: &str, index: Arc<BuildIndex>) -> Self {
        Self {
            api: Api::namespaced(client.clone(), namespace),
            index,
            lookups: Arc::new(Semaphore::new(MAX_CONCURRENT_LOOKUPS)),
            unknown_ids: Arc::default(),
        }
    }

    pub(super) fn client(&self) -> kube::Client {
        self.api.clone().into_client()
    }

    /// Reads the build of a target from the API server.
    pub(super) async fn look_up(
        &self,
        tenant: &str,
        target: &str,
    ) -> Result<Option<Arc<ImageBuild>>, SandboxError> {
        self.look_up_name(tenant, &names::image_build(tenant, target))
            .await
    }

    /// Finds a build by its id in the index, or else in the API server.
    pub(super) async fn find_by_id(
        &self,
        tenant: &str,
        id: &str,
    ) -> Result<Option<Arc<ImageBuild>>, SandboxError> {
        if let Some(known) = self.index.by_name(tenant, id) {
            return Ok(Some(known));
        }
        // Anything else is not an id, and may not be an object name either.
        let is_id = id.len() <= 63 && id.bytes().all(|byte| byte.is_ascii_lowercase());
        if !is_id || id.is_empty() {
            return Ok(None);
        }
        if !self.unknown_ids.allows_lookup() {
            sleep(INDEX_CATCH_UP_TIMEOUT).await;
            let known = self.index.by_name(tenant, id);
            return known.map(Some).ok_or(SandboxError::LookupUnavailable);
        }
        self.look_up_name(tenant, id).await
    }

    async fn look_up_name(
        &self,
        tenant: &str,
        name: &str,
    ) -> Result<Option<Arc<ImageBuild>>, SandboxError> {
        let get = async {
            let _permit = self.lookups.acquire().await;
            self.api.get_opt(name).await
        };
        let found = within(LOOKUP_TIMEOUT, get).await?;
        let found = found.and_then(|build| self.index.store(build));
        Ok(found.filter(|build| build.spec.tenant == tenant))
    }

    /// Creates a build. `None` if there is one of its target already.
    pub(super) async fn create(
        &self,
        spec: ImageBuildSpec,
    ) -> Result<Option<Arc<ImageBuild>>, SandboxError> {
        let name = names::image_build(&spec.tenant, &spec.target);
        let mut build = ImageBuild::new(&name, spec);
        let labels = build.labels_mut();
        labels.insert(MANAGED_BY_LABEL.into(), GATEWAY_FIELD_MANAGER.into());
        if build.spec.mode == BuildMode::Full {
            let labels = build.labels_mut();
            labels.insert(BUILD_MODE_LABEL.into(), FULL_BUILD.into());
        }
        let params = create_params();
        match retrying(|| self.api.create(&params, &build)).await {
            Ok(created) => {
                let created = self.index.store(created);
                created.map(Some).ok_or(SandboxError::Incomplete)
            }
            Err(SandboxError::Exists) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes fields of the status. Fails if the object was deleted or replaced.
    pub(super) async fn report(
        &self,
        build: &ImageBuild,
        status: &Value,
    ) -> Result<Arc<ImageBuild>, SandboxError> {
        let patch = json!({"metadata": {"uid": build.metadata.uid}, "status": status});
        let params = PatchParams::apply(GATEWAY_FIELD_MANAGER);
        let (name, patch) = (build.name_any(), Patch::Merge(patch));
        let written = retrying(|| self.api.patch_status(&name, &params, &patch)).await?;
        self.index.store(written).ok_or(SandboxError::Incomplete)
    }

    /// Deletes a build, unless it was replaced.
    pub(super) async fn delete(&self, build: &ImageBuild) -> Result<(), SandboxError> {
        let uid = build.metadata.uid.clone().unwrap_or_default();
        let params = DeleteParams::default().preconditions(Preconditions {
            uid: Some(uid.clone()),
            resource_version: None,
        });
        let name = build.name_any();
        match retrying(|| self.api.delete(&name, &params)).await {
            Ok(_) | Err(SandboxError::NotFound) => {}
            Err(error) => return Err(error),
        }
        self.index.forget(&name, &uid);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use testing::FakeApi;
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn lookups_of_unknown_ids_are_limited() {
        let api = FakeApi::default();
        let store = BuildStore::new(&api.client(), "ns", Arc::default());
        for _ in 0..500 {
            assert!(store.find_by_id("t", "a").await.unwrap().is_none());
        }
        let began = Instant::now();
        let beyond = store.find_by_id("t", "a").await;
        assert!(matches!(beyond, Err(SandboxError::LookupUnavailable)));
        assert_eq!(began.elapsed(), INDEX_CATCH_UP_TIMEOUT);
        assert_eq!(api.calls().len(), 500);
        // Tokens have come back meanwhile.
        assert!(store.find_by_id("t", "a").await.unwrap().is_none());
    }
}
