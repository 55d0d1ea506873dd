//! `GET /usage`: what the tenant of an API key uses, beside its limits (`docs/gateway.md`, "Usage").
//!
//! Sandboxes and builds come from the index of this replica. The controller decides about the quota,
//! and this counts as it does.

use axum::Json;
use axum::extract::State;
use axum::routing::get;
use crds::conditions::Reason;
use crds::sandbox::Phase;
use schemars::JsonSchema;
use serde::Serialize;
use shared::index::Entry;
use shared::resources::ResourceDefaults;

use super::auth::RateLimitedCaller;
use super::endpoint::{Endpoint, OPERATION};
use super::resources::{Amounts, has_pod, limits};
use super::tenant_limits::MAX_STORED_BYTES;
use super::{ApiError, Shared};
use crate::builds::MAX_BUILDS_PER_TENANT;
use crate::runtime_status::is_stopped;
use crate::sandbox_snapshots::MAX_SNAPSHOTS_PER_TENANT;

pub(super) fn endpoint() -> Endpoint {
    Endpoint::new(OPERATION, "GET", "/usage", get(usage))
        .documented(
            "getUsage",
            "Returns what the caller uses, beside the limits of its API keys.",
        )
        .response::<UsageInfo>(200)
}

#[derive(Debug, Serialize, JsonSchema)]
struct UsageInfo {
    phases: PhaseCounts,
    /// Sandboxes that the quota has admitted.
    sandboxes: QuotaUsage,
    /// Sum of their CPU limits, in thousandths of a core.
    cpu_millicores: QuotaUsage,
    /// Sum of their memory limits, in bytes.
    memory_bytes: QuotaUsage,
    /// Starts that wait for one of the limits above.
    waiting_starts: QuotaUsage,
    /// Sandboxes in all phases but `stopped`, paused ones included.
    total_sandboxes: QuotaUsage,
    /// Bytes of the commands and environments of all sandboxes, as they are stored.
    stored_bytes: QuotaUsage,
    /// `used` is null while the API server does not answer.
    snapshots: QuotaUsage,
    image_builds: QuotaUsage,
    /// Calls per second that are not delayed, apart from polls. Null: no limit.
    calls_per_second: Option<u32>,
}

/// Amount in use, and its limit. Null: no limit.
#[derive(Debug, Serialize, JsonSchema)]
struct QuotaUsage {
    used: Option<u64>,
    limit: Option<u64>,
}

/// Number of sandboxes by phase, those that are being deleted included.
#[derive(Debug, Default, Serialize, JsonSchema)]
struct PhaseCounts {
    pending: u64,
    starting: u64,
    running: u64,
    pausing: u64,
    paused: u64,
    stopped: u64,
    failed: u64,
}

/// Sums over the sandboxes of a tenant.
#[derive(Debug, Default)]
struct Sums {
    phases: PhaseCounts,
    admitted: u64,
    waiting: u64,
    total: u64,
    stored_bytes: u64,
    millicores: u64,
    bytes: u64,
}

async fn usage(State(api): Shared, caller: RateLimitedCaller) -> Result<Json<UsageInfo>, ApiError> {
    api.sandboxes.synced().await?;
    let tenant = &caller.tenant;
    let mut sums = Sums::default();
    for entry in api.sandboxes.of_tenant(&tenant.name) {
        sums.add(&entry, &api.resources);
    }
    let snapshots = api.snapshots.count(&tenant.name).await;
    let limits = tenant.limits;
    let builds = api.builds.count(tenant);
    Ok(Json(UsageInfo {
        phases: sums.phases,
        sandboxes: QuotaUsage::new(sums.admitted, limits.sandboxes.map(u64::from)),
        cpu_millicores: QuotaUsage::new(sums.millicores, limits.cpu),
        memory_bytes: QuotaUsage::new(sums.bytes, limits.memory),
        waiting_starts: QuotaUsage::new(sums.waiting, Some(limits.waiting.into())),
        total_sandboxes: QuotaUsage::new(sums.total, Some(limits.total_sandboxes.into())),
        stored_bytes: QuotaUsage::new(sums.stored_bytes, Some(whole_number(MAX_STORED_BYTES))),
        snapshots: QuotaUsage {
            used: snapshots.ok().map(whole_number),
            limit: Some(MAX_SNAPSHOTS_PER_TENANT.into()),
        },
        image_builds: QuotaUsage::new(
            whole_number(builds),
            Some(whole_number(MAX_BUILDS_PER_TENANT)),
        ),
        calls_per_second: tenant.calls_per_second,
    }))
}

impl QuotaUsage {
    fn new(used: u64, limit: Option<u64>) -> Self {
        Self {
            used: Some(used),
            limit,
        }
    }
}

impl Sums {
    fn add(&mut self, entry: &Entry, defaults: &ResourceDefaults) {
        *self.phases.of(entry.status.phase) += 1;
        self.total += u64::from(!is_stopped(entry));
        self.stored_bytes += whole_number(entry.payload_bytes);
        if entry.status.reason == Some(Reason::QuotaExceeded) {
            self.waiting += 1;
        } else if has_pod(entry.status.phase) {
            self.admitted += 1;
            let Amounts { millicores, bytes } = limits(entry, defaults);
            self.millicores = self.millicores.saturating_add(millicores.unwrap_or(0));
            self.bytes = self.bytes.saturating_add(bytes.unwrap_or(0));
        }
    }
}

impl PhaseCounts {
    fn of(&mut self, phase: Phase) -> &mut u64 {
        match phase {
            Phase::Pending => &mut self.pending,
            Phase::Starting => &mut self.starting,
            Phase::Running => &mut self.running,
            Phase::Pausing => &mut self.pausing,
            Phase::Paused => &mut self.paused,
            Phase::Stopped => &mut self.stopped,
            Phase::Failed => &mut self.failed,
        }
    }
}

fn whole_number(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}
