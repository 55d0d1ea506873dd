//! Limits the tombstones of a tenant, so that start and stop cycles do not fill the API server. The
//! oldest go first; a session whose last tombstone is gone is unknown.

use std::sync::Arc;
use std::time::Duration;

use crds::sandbox::Phase;
use jiff::Timestamp;
use tokio::time::timeout;

use super::Api;
use crate::runtime_status::is_stopped;
use shared::index::Entry;

/// Maximum number of tombstones per tenant, about 1 KiB each.
pub(super) const MAX_TOMBSTONES: usize = 200;
/// Tombstones expired per stop: more than one, so that a surplus shrinks.
const MAX_EXPIRED_PER_STOP: usize = 4;
/// Time that a stop spends on it.
const EXPIRY_TIMEOUT: Duration = Duration::from_secs(1);

impl Api {
    /// Expires the oldest tombstones of a tenant beyond the limit. The next stop repeats what
    /// fails.
    pub(super) async fn limit_tombstones(&self, tenant: &str) {
        let surplus = surplus(self.sandboxes.of_tenant(tenant));
        let expire = async {
            for entry in &surplus {
                if let Err(error) = self.sandboxes.expire_tombstone(entry).await {
                    tracing::debug!(key = %entry.key, %error, "cannot expire a tombstone");
                }
            }
        };
        let _ = timeout(EXPIRY_TIMEOUT, expire).await;
    }
}

/// Returns the oldest finished tombstones beyond the limit.
fn surplus(mut entries: Vec<Arc<Entry>>) -> Vec<Arc<Entry>> {
    // Only this module sets deadlines of sandboxes that the API created.
    entries.retain(|entry| is_stopped(entry) && !entry.deleting && entry.spec.lifecycle.is_none());
    let count = entries.len().saturating_sub(MAX_TOMBSTONES);
    // Pod and workspace of the others are still being deleted.
    entries.retain(|entry| entry.status.phase == Phase::Stopped);
    entries.sort_by_key(|entry| stopped_at(entry));
    entries.truncate(count.min(MAX_EXPIRED_PER_STOP));
    entries
}

fn stopped_at(entry: &Entry) -> Option<Timestamp> {
    let stopped = entry.status.stopped_at.as_ref().map(|time| time.0);
    stopped.or(entry.created_at)
}
