//! Keeps the answer of a probe known. Its record outlives the leader, so that another one does not
//! run sandboxes with less isolation until it has probed again.

use tokio_util::sync::CancellationToken;

use super::record::{CHECK_AGE, ProbeRecord};
use super::record_store::{self, ProbeRecords};
use super::runner::{self, Probe};
use crate::config::ControllerConfig;
use crate::context::Context;
use crate::pools;

/// A probe whose answer is kept known.
#[derive(Debug, Clone, Copy)]
pub(super) struct KeptProbe {
    /// Name in logs, metrics and the record.
    pub(super) name: &'static str,
    /// True if the configuration leaves the answer to the probe.
    pub(super) is_asked_for: fn(&ControllerConfig) -> bool,
    pub(super) build: fn(&ControllerConfig) -> Probe,
    /// Setting that follows the answer.
    pub(super) learn: fn(&Context, bool),
}

impl KeptProbe {
    pub(super) fn is_asked_for_by(&self, context: &Context) -> bool {
        (self.is_asked_for)(&context.config)
    }

    /// Reports the record of the leaders before, if there is one.
    pub(super) fn recall(&self, context: &Context, known: &ProbeRecords) {
        if self.is_asked_for_by(context)
            && let Some(record) = known.get(self.name)
        {
            self.publish(context, record);
        }
    }

    /// Keeps the answer up to date until shutdown, and reports each new one.
    pub(super) async fn keep(
        self,
        context: &Context,
        known: &ProbeRecords,
        shutdown: &CancellationToken,
    ) {
        if !self.is_asked_for_by(context) {
            return;
        }
        let probe = (self.build)(&context.config);
        let pod = pools::hash(&probe.pod);
        let mut known = known.get(self.name).cloned();
        loop {
            let now = context.clock.now();
            let due_at = known.as_ref().map_or(now, |record| record.due_at(&pod));
            let wait = due_at.duration_since(now).min(CHECK_AGE);
            let wait = wait.try_into().unwrap_or_default();
            let sleep = tokio::time::sleep(wait);
            if shutdown.run_until_cancelled(sleep).await.is_none() {
                return;
            }
            let Some(verdict) = runner::run(context, &probe, shutdown).await else {
                return;
            };
            let record =
                ProbeRecord::new(known.as_ref(), verdict, context.clock.now(), pod.clone());
            self.publish(context, &record);
            let write = record_store::write(context, self.name, &record);
            if shutdown.run_until_cancelled(write).await.is_none() {
                return;
            }
            known = Some(record);
        }
    }

    fn publish(&self, context: &Context, record: &ProbeRecord) {
        let ProbeRecord {
            works,
            reason,
            probed_at,
            ..
        } = record;
        let probe = self.name;
        tracing::info!(probe, works, reason, %probed_at, "cluster probe");
        context
            .metrics
            .record_cluster_probe(probe, *works, *probed_at);
        (self.learn)(context, *works);
    }
}
