//! The pools as the API server has them. Clients ask for configs before every start, so a list is
//! kept for some seconds, and for longer while the API server is away.

use std::sync::Arc;
use std::time::Duration;

use crds::SandboxPool;
use crds::names::GATEWAY;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, ResourceExt as _};
use serde_json::json;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::{ConfigRequest, WarmConfig, effective, is_stored, object_name, read};
use crate::gateway::impossible::Impossible;
use crate::gateway::sandboxes::SandboxError;
use crate::gateway::sandboxes::retry::{retrying, within};

/// How long a list is as good as new.
const FRESH: Duration = Duration::from_secs(5);
/// A list that takes longer is given up.
const LIST_LIMIT: Duration = Duration::from_secs(4);
/// Most pools that are read.
const MOST: u32 = 1000;

/// Access to all configs.
#[derive(Debug)]
pub struct Configs {
    api: Api<SandboxPool>,
    overlay: bool,
    known: Mutex<Option<Known>>,
}

#[derive(Debug)]
struct Known {
    read_at: Instant,
    configs: Arc<Vec<WarmConfig>>,
}

/// Why configs could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("there is no stored config of this name")]
    NotStored,
    #[error("{0}")]
    Invalid(&'static str),
    #[error(transparent)]
    Impossible(#[from] Impossible),
    #[error(transparent)]
    Cluster(#[from] SandboxError),
}

impl Configs {
    pub fn new(client: kube::Client, namespace: &str, overlay: bool) -> Self {
        Self {
            api: Api::namespaced(client, namespace),
            overlay,
            known: Mutex::default(),
        }
    }

    /// All configs that hold. Askers at the same time share one list.
    pub async fn list(&self) -> Result<Arc<Vec<WarmConfig>>, ConfigError> {
        let mut known = self.known.lock().await;
        if let Some(known) = known.as_ref().filter(|k| k.read_at.elapsed() < FRESH) {
            return Ok(known.configs.clone());
        }
        let params = ListParams::default().limit(MOST);
        match within(LIST_LIMIT, self.api.list(&params)).await {
            Ok(pools) => {
                let configs = Arc::new(effective(&pools.items, self.overlay));
                *known = Some(Known {
                    read_at: Instant::now(),
                    configs: configs.clone(),
                });
                Ok(configs)
            }
            Err(error) => match known.as_mut() {
                Some(known) => {
                    tracing::warn!(
                        category = error.category(),
                        "warm configs stay as they were"
                    );
                    known.read_at = Instant::now();
                    Ok(known.configs.clone())
                }
                None => Err(error.into()),
            },
        }
    }

    /// Stores a config under a name. What its pool has beside it stays.
    pub async fn put(&self, name: &str, request: ConfigRequest) -> Result<WarmConfig, ConfigError> {
        let pool = request.pool(name)?;
        let stored = match self.replace(&pool).await {
            Err(SandboxError::NotFound) => self.create(&pool).await,
            replaced => replaced,
        };
        self.known.lock().await.take();
        Ok(read(&stored?))
    }

    /// Removes a stored config.
    pub async fn delete(&self, name: &str) -> Result<(), ConfigError> {
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
        self.known.lock().await.take();
        Ok(())
    }

    async fn create(&self, pool: &SandboxPool) -> Result<SandboxPool, SandboxError> {
        let params = PostParams {
            field_manager: Some(GATEWAY.into()),
            ..PostParams::default()
        };
        match retrying(|| self.api.create(&params, pool)).await {
            Err(SandboxError::Exists) => self.replace(pool).await,
            created => created,
        }
    }

    /// Changes what a config says, and nothing else.
    async fn replace(&self, pool: &SandboxPool) -> Result<SandboxPool, SandboxError> {
        let template = &pool.spec.template;
        let patch = Patch::Merge(json!({
            "spec": {
                "replicas": pool.spec.replicas,
                "template": {
                    "image": template.image,
                    "command": template.command,
                    "workingDir": template.working_dir,
                    "env": template.env,
                    "securityContext": template.security_context,
                },
            },
        }));
        let params = PatchParams {
            field_manager: Some(GATEWAY.into()),
            ..PatchParams::default()
        };
        let name = pool.name_any();
        retrying(|| self.api.patch(&name, &params, &patch)).await
    }
}
