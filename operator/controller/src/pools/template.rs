//! Template of the warm Pods of a pool, built with the snapshot that they begin with.

use std::sync::Arc;

use super::Pool;
use super::shape::WarmTemplate;
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

/// Returns the template of a pool. A sandbox that claims a Pod is checked itself; here, one of the
/// tenants of the pool has to be able to.
pub(crate) fn warm_template(
    context: &Context,
    key: &Key,
    pool: &Pool,
) -> Result<Arc<WarmTemplate>, TemplateError> {
    let volume = match source(context, key, pool) {
        SourceState::None => None,
        SourceState::Ready(volume) => Some(volume),
        SourceState::Waiting(message) => return Err(TemplateError::SnapshotNotReady(message)),
        SourceState::Missing(message) | SourceState::Unusable(message) => {
            return Err(TemplateError::NoSnapshot(message));
        }
    };
    Ok(context.warm_pod_builder().template(pool, volume.as_ref())?)
}

fn source(context: &Context, key: &Key, pool: &Pool) -> SourceState {
    let Some(source) = pool.source() else {
        return SourceState::None;
    };
    let of = |tenant| source_state(context, key, source, tenant);
    let mut found = pool.tenants().iter().map(|tenant| of(Some(tenant)));
    let usable = found.find(|state| !matches!(state, SourceState::Unusable(_)));
    usable.unwrap_or_else(|| of(pool.tenants().first().map(String::as_str)))
}
