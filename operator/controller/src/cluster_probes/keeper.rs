//! Keeps the answer of a probe known. Its record outlives the leader, so that another one does not
//! run sandboxes with less isolation until it has probed again.

use tokio_util::sync::CancellationToken;

use super::record::{CHECK_AGE, ProbeRecord};
use super::record_store::{self, ProbeRecords};
use super::runner::{self, Probe};
use crate::context::Context;
use crate::pools;

/// Reports the record of a probe, if there is one.
pub(super) fn recall(
    context: &Context,
    name: &'static str,
    known: &ProbeRecords,
    learn: impl Fn(bool),
) {
    if let Some(record) = known.get(name) {
        publish(context, name, record, &learn);
    }
}

/// Keeps the answer of a probe up to date until shutdown, and reports each new one to `learn`.
pub(super) async fn keep(
    context: &Context,
    probe: &Probe,
    known: &ProbeRecords,
    learn: impl Fn(bool),
    shutdown: &CancellationToken,
) {
    let pod = pools::hash(&probe.pod);
    let mut known = known.get(probe.name).cloned();
    loop {
        let now = context.clock.now();
        let due_at = known.as_ref().map_or(now, |record| record.due_at(&pod));
        let wait = due_at.duration_since(now).min(CHECK_AGE);
        let wait = wait.try_into().unwrap_or_default();
        let sleep = tokio::time::sleep(wait);
        if shutdown.run_until_cancelled(sleep).await.is_none() {
            return;
        }
        let Some(verdict) = runner::run(context, probe, shutdown).await else {
            return;
        };
        let record = ProbeRecord::new(known.as_ref(), verdict, context.clock.now(), pod.clone());
        publish(context, probe.name, &record, &learn);
        let write = record_store::write(context, probe.name, &record);
        if shutdown.run_until_cancelled(write).await.is_none() {
            return;
        }
        known = Some(record);
    }
}

fn publish(context: &Context, probe: &'static str, record: &ProbeRecord, learn: &impl Fn(bool)) {
    let ProbeRecord {
        works,
        reason,
        probed_at,
        ..
    } = record;
    tracing::info!(probe, works, reason, %probed_at, "cluster probe");
    context
        .metrics
        .record_cluster_probe(probe, *works, *probed_at);
    learn(*works);
}
