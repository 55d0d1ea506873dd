//! Pulls the images of a pool ahead, on every node that its Pods may run on: a `DaemonSet` whose
//! containers hold them, so that the kubelet does not remove them either.

mod daemon_set;

use std::collections::HashMap;
use std::time::Duration;

use crds::names;
use crds::pool::ImagePulls;
use k8s_openapi::api::apps::v1::DaemonSet;
use kube::api::{Patch, PatchParams};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::Pool;
use super::shape::WarmTemplate;
use crate::context::Context;
use crate::reconcile::build::{BuildError, PoolRef};
use shared::index::Key;
use shared::kubernetes::client::{CallError, with_timeout};
use shared::kubernetes::owned_objects::delete_owned;

/// Time between two looks at nodes that still pull.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(10);
/// Time between two looks otherwise: nodes come and go.
const REST_INTERVAL: Duration = Duration::from_mins(5);

/// Type of the condition.
pub(super) const IMAGES_PULLED: &str = "ImagesPulled";

/// Progress of the pulls, or the reason for which there is none.
pub(crate) type Progress = Result<Pulled, String>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pulled {
    /// Nodes that Pods of the pool may run on; `None`: not counted yet.
    pub(crate) nodes: Option<i32>,
    /// Nodes that have the images.
    pub(crate) pulled: i32,
}

#[derive(Debug, thiserror::Error)]
enum PullError {
    #[error(transparent)]
    Build(#[from] BuildError),
    #[error(transparent)]
    Call(#[from] CallError),
}

/// Last look at the `DaemonSet` of each pool.
#[derive(Debug, Default)]
pub(super) struct ImagePuller(Mutex<HashMap<Key, Look>>);

#[derive(Debug, Clone)]
struct Look {
    /// Revision and generation of the pool.
    version: (String, i64),
    progress: Progress,
    next: Instant,
}

impl ImagePuller {
    pub(super) fn forget(&self, pool: &Key) {
        self.0.lock().remove(pool);
    }

    /// Lets the nodes have the images if the pool wants it. Returns the progress, and the time of
    /// the next look; `None`: images are pulled on demand.
    pub(super) async fn pull(
        &self,
        context: &Context,
        key: &Key,
        pool: &Pool,
        template: &WarmTemplate,
    ) -> Option<(Progress, Instant)> {
        if pool.spec.image_pulls == ImagePulls::OnDemand {
            self.forget(key);
            return end(context, key, pool).await;
        }
        let version = (template.revision.clone(), pool.generation);
        let now = Instant::now();
        let known = self.0.lock().get(key).cloned();
        if let Some(known) = known.filter(|look| look.version == version && look.next > now) {
            return Some((known.progress, known.next));
        }
        let applied = apply(context, key, pool, template).await;
        let progress = applied.map_err(|error| error.to_string());
        let is_pulling = progress.as_ref().is_ok_and(|pulled| !pulled.is_complete());
        let next = now
            + if is_pulling {
                PROGRESS_INTERVAL
            } else {
                REST_INTERVAL
            };
        let look = Look {
            version,
            progress: progress.clone(),
            next,
        };
        self.0.lock().insert(key.clone(), look);
        Some((progress, next))
    }
}

impl Pulled {
    pub(crate) fn is_complete(self) -> bool {
        self.nodes.is_some_and(|nodes| self.pulled >= nodes)
    }

    fn of(found: &DaemonSet) -> Self {
        let status = found.status.as_ref();
        let status = status.filter(|s| s.observed_generation == found.metadata.generation);
        let updated = status.and_then(|s| s.updated_number_scheduled).unwrap_or(0);
        Self {
            nodes: status.map(|s| s.desired_number_scheduled),
            pulled: status.map_or(0, |s| s.number_ready.min(updated)),
        }
    }
}

/// Applies the `DaemonSet`, which changes nothing if it is as wanted.
async fn apply(
    context: &Context,
    key: &Key,
    pool: &Pool,
    template: &WarmTemplate,
) -> Result<Pulled, PullError> {
    let owner = PoolRef {
        name: key.name.clone(),
        uid: pool.uid.clone(),
    };
    let images = context
        .warm_pod_builder()
        .images(key, &owner, &template.spec)?;
    let wanted = daemon_set::build(key, &owner, images);
    let params = PatchParams::apply(names::CONTROLLER_FIELD_MANAGER).force();
    let api = context.api::<DaemonSet>(key);
    let name = names::image_daemon_set(&key.name);
    let applied = with_timeout(api.patch(&name, &params, &Patch::Apply(&wanted))).await?;
    Ok(Pulled::of(&applied))
}

/// Deletes the `DaemonSet` of a pool that wanted one before. Returns the failure.
async fn end(context: &Context, key: &Key, pool: &Pool) -> Option<(Progress, Instant)> {
    let mut conditions = pool.status.conditions.iter();
    conditions.find(|condition| condition.type_ == IMAGES_PULLED)?;
    let api = context.api::<DaemonSet>(key);
    let deleted = delete_owned(&api, &names::image_daemon_set(&key.name), &pool.uid).await;
    let error = deleted.err()?.to_string();
    Some((Err(error), Instant::now() + PROGRESS_INTERVAL))
}
