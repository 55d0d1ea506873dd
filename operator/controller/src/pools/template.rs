//! Template of the warm Pods of a pool, built with the snapshot that they begin with.

use std::sync::Arc;

use super::Pool;
use super::shape::{WarmPods, WarmTemplate};
use crate::context::Context;
use crate::facts::SourceState;
use crate::reconcile::build::BuildError;
use crate::snapshots::source::source_state;
use shared::index::Key;

/// Reason for which a pool has no template.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TemplateError {
    #[error(transparent)]
    Build(#[from] BuildError),
    /// Its snapshot is being taken.
    #[error("{0}")]
    SnapshotNotReady(String),
    /// Its snapshot does not exist, or will never be ready. Pods that wait beside it are of no use.
    #[error("{0}")]
    NoSnapshot(String),
}

/// Returns the template of a pool. Tenants do not count here: a sandbox that claims a Pod is checked
/// itself.
pub(crate) fn warm_template(
    context: &Context,
    key: &Key,
    pool: &Pool,
) -> Result<Arc<WarmTemplate>, TemplateError> {
    let source = pool.source();
    let source = source.map(|source| source_state(context, key, source, None));
    let volume = match source {
        None | Some(SourceState::None) => None,
        Some(SourceState::Ready(volume)) => Some(volume),
        Some(SourceState::Waiting(message)) => {
            return Err(TemplateError::SnapshotNotReady(message));
        }
        Some(SourceState::Missing(message) | SourceState::Unusable(message)) => {
            return Err(TemplateError::NoSnapshot(message));
        }
    };
    let pods = WarmPods {
        config: &context.config,
        keys: &context.keys,
        features: context.pod_features(),
    };
    Ok(pods.template(pool, volume.as_ref())?)
}
