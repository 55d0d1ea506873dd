//! Reads and writes warm configs in the API server. Clients list configs before every start, so the
//! list is cached for some seconds, and for longer while the API server is away.

use std::sync::Arc;
use std::time::Duration;

use crds::SandboxPool;
use crds::names::GATEWAY_FIELD_MANAGER;
use crds::sandbox::Workspace;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, Preconditions};
use kube::{Api, ResourceExt as _};
use serde_json::json;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::{ConfigRequest, WarmConfig, effective_configs, is_stored, object_name, read};
use crate::config::GatewayConfig;
use crate::exec_limits::ExecLimitError;
use crate::sandboxes::retry::{retrying, within};
use crate::sandboxes::{SandboxError, create_params};

const CACHE_TTL: Duration = Duration::from_secs(5);
const LIST_TIMEOUT: Duration = Duration::from_secs(4);
const MAX_POOLS: u32 = 1000;

/// Access to the configs of one namespace.
#[derive(Debug)]
pub(crate) struct WarmConfigStore {
    api: Api<SandboxPool>,
    overlay: bool,
    /// Workspace of the API's sandboxes.
    workspace: Workspace,
    cache: Mutex<Option<CachedConfigs>>,
}

#[derive(Debug)]
struct CachedConfigs {
    read_at: Instant,
    configs: Arc<Vec<WarmConfig>>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    #[error("no stored config has this name")]
    NotStored,
    #[error("{0}")]
    Invalid(&'static str),
    #[error(transparent)]
    ExecLimit(#[from] ExecLimitError),
    #[error(transparent)]
    Cluster(#[from] SandboxError),
}

impl WarmConfigStore {
    pub(crate) fn new(client: &kube::Client, config: &GatewayConfig) -> Self {
        Self {
            api: Api::namespaced(client.clone(), &config.namespace),
            overlay: config.settings.warm_runtime_config_overlay,
            workspace: config.workspace(),
            cache: Mutex::default(),
        }
    }

    /// Returns the effective configs. Concurrent callers share one list.
    pub(crate) async fn list(&self) -> Result<Arc<Vec<WarmConfig>>, ConfigError> {
        let mut cache = self.cache.lock().await;
        if let Some(cached) = cache.as_ref().filter(|c| c.read_at.elapsed() < CACHE_TTL) {
            return Ok(cached.configs.clone());
        }
        let params = ListParams::default().limit(MAX_POOLS);
        match within(LIST_TIMEOUT, self.api.list(&params)).await {
            Ok(pools) => {
                let configs = Arc::new(effective_configs(&pools.items, self.overlay));
                *cache = Some(CachedConfigs {
                    read_at: Instant::now(),
                    configs: configs.clone(),
                });
                Ok(configs)
            }
            Err(error) => match cache.as_mut() {
                Some(cached) => {
                    tracing::warn!(
                        category = error.category(),
                        "cannot list warm configs; using the cached list"
                    );
                    cached.read_at = Instant::now();
                    Ok(cached.configs.clone())
                }
                None => Err(error.into()),
            },
        }
    }

    /// Stores a config under a name. Other fields of its pool stay.
    pub(crate) async fn put(
        &self,
        name: &str,
        request: ConfigRequest,
    ) -> Result<WarmConfig, ConfigError> {
        let pool = request.into_pool(name, self.workspace.clone())?;
        let stored = match self.replace(&pool).await {
            Err(SandboxError::NotFound) => self.create(&pool).await,
            replaced => replaced,
        };
        self.cache.lock().await.take();
        Ok(read(&stored?))
    }

    pub(crate) async fn delete(&self, name: &str) -> Result<(), ConfigError> {
        let object = object_name(name);
        let found = retrying(|| self.api.get_opt(&object)).await?;
        let found = found.filter(is_stored).ok_or(ConfigError::NotStored)?;
        let params = DeleteParams::default().preconditions(Preconditions {
            uid: found.uid(),
            resource_version: None,
        });
        match retrying(|| self.api.delete(&object, &params)).await {
            Ok(_) | Err(SandboxError::NotFound) => {}
            Err(error) => return Err(error.into()),
        }
        self.cache.lock().await.take();
        Ok(())
    }

    async fn create(&self, pool: &SandboxPool) -> Result<SandboxPool, SandboxError> {
        let params = create_params();
        match retrying(|| self.api.create(&params, pool)).await {
            Err(SandboxError::Exists) => self.replace(pool).await,
            created => created,
        }
    }

    /// Updates the fields of the config only.
    async fn replace(&self, pool: &SandboxPool) -> Result<SandboxPool, SandboxError> {
        let template = &pool.spec.template;
        let patch = Patch::Merge(json!({
            "spec": {
                "replicas": pool.spec.replicas,
                "claimedBy": pool.spec.claimed_by,
                "prestart": pool.spec.prestart,
                "template": {
                    "image": template.image,
                    "command": template.command,
                    "workingDir": template.working_dir,
                    "env": template.env,
                    "securityContext": template.security_context,
                    "workspace": template.workspace,
                },
            },
        }));
        let params = PatchParams::apply(GATEWAY_FIELD_MANAGER);
        let name = pool.name_any();
        retrying(|| self.api.patch(&name, &params, &patch)).await
    }
}
