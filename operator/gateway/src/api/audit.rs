//! Audit log: one line per requested change, with the caller, the object and the outcome, and
//! without secrets. The formatter escapes texts of clients, so that none can forge a line.

use std::net::IpAddr;

use super::ApiError;
use super::auth::RateLimitedCaller;

/// Log target of the lines, for filters.
const TARGET: &str = "audit";

/// Outcome of an action that succeeded.
const DONE: &str = "done";

/// Records the attempt of a tenant to change a sandbox.
pub(super) fn tenant(
    action: &'static str,
    caller: &RateLimitedCaller,
    runtime: &str,
    result: Result<(), &ApiError>,
) {
    let RateLimitedCaller {
        tenant,
        key_id: key,
        address,
        ..
    } = caller;
    let (tenant, runtime) = (&tenant.name, truncated(runtime));
    let outcome = outcome(result);
    tracing::info!(target: TARGET, action, tenant, key, %address, runtime, outcome);
}

/// Records the attempt of a tenant to make, use or delete a snapshot. Of the two names, the one that
/// is not known is empty.
pub(super) fn snapshot(
    action: &'static str,
    caller: &RateLimitedCaller,
    (runtime, snapshot): (&str, &str),
    result: Result<(), &ApiError>,
) {
    let RateLimitedCaller {
        tenant,
        key_id: key,
        address,
        ..
    } = caller;
    let (tenant, outcome) = (&tenant.name, outcome(result));
    let (runtime, snapshot) = (truncated(runtime), truncated(snapshot));
    tracing::info!(target: TARGET, action, tenant, key, %address, runtime, snapshot, outcome);
}

/// Records the attempt of an administrator to log in or to change a named object.
pub(super) fn admin(
    action: &'static str,
    address: IpAddr,
    name: &str,
    result: Result<(), &ApiError>,
) {
    let (name, outcome) = (truncated(name), outcome(result));
    tracing::info!(target: TARGET, action, tenant = "admin", %address, name, outcome);
}

fn outcome(result: Result<(), &ApiError>) -> &'static str {
    result.err().map_or(DONE, |error| error.kind().1)
}

fn truncated(text: &str) -> &str {
    &text[..text.floor_char_boundary(128)]
}
