//! Keeps the answer of a probe known. Its record outlives the leader, so that another one does not
//! run sandboxes with less isolation until it has probed again.

use tokio::sync::Semaphore;
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
    /// Setting that follows the answer for a runtime class.
    pub(super) learn: fn(&Context, Option<&str>, bool),
}

impl KeptProbe {
    pub(super) fn is_asked_for_by(&self, context: &Context) -> bool {
        (self.is_asked_for)(&context.config)
    }

    /// Learns from all records of the leaders before, also of runtime classes that the configuration
    /// no longer names: sandboxes may have them.
    pub(super) fn recall(&self, context: &Context, known: &ProbeRecords) {
        for (key, record) in known {
            let class = key.strip_prefix(self.name);
            let class = class.and_then(|rest| match rest {
                "" => Some(None),
                _ => rest.strip_prefix('.').map(Some),
            });
            if let Some(class) = class {
                self.learn(context, class, record);
            }
        }
    }

    /// Keeps the answer for a runtime class up to date until shutdown, and reports each new one. Each
    /// run takes a permit.
    pub(super) async fn keep(
        self,
        context: &Context,
        class: Option<&str>,
        known: &ProbeRecords,
        permits: &Semaphore,
        shutdown: &CancellationToken,
    ) {
        if !self.is_asked_for_by(context) {
            return;
        }
        let probe = (self.build)(&context.config).of_class(class, &context.config);
        let pod = pools::hash(&probe.pod);
        let key = self.key(class);
        let mut known = known.get(&key).cloned();
        if let Some(record) = &known {
            self.report(context, class, record);
        }
        loop {
            let now = context.clock.now();
            let due_at = known.as_ref().map_or(now, |record| record.due_at(&pod));
            let wait = due_at.duration_since(now).min(CHECK_AGE);
            let wait = wait.try_into().unwrap_or_default();
            let sleep = tokio::time::sleep(wait);
            if shutdown.run_until_cancelled(sleep).await.is_none() {
                return;
            }
            let Some(permit) = shutdown.run_until_cancelled(permits.acquire()).await else {
                return;
            };
            let verdict = runner::run(context, &probe, shutdown).await;
            drop(permit);
            let Some(verdict) = verdict else {
                return;
            };
            let record =
                ProbeRecord::new(known.as_ref(), verdict, context.clock.now(), pod.clone());
            self.report(context, class, &record);
            self.learn(context, class, &record);
            let write = record_store::write(context, &key, &record);
            if shutdown.run_until_cancelled(write).await.is_none() {
                return;
            }
            known = Some(record);
        }
    }

    fn learn(&self, context: &Context, class: Option<&str>, record: &ProbeRecord) {
        if !record.unanswered {
            (self.learn)(context, class, record.works);
        }
    }

    fn report(&self, context: &Context, class: Option<&str>, record: &ProbeRecord) {
        let ProbeRecord {
            works,
            reason,
            probed_at,
            ..
        } = record;
        let probe = self.name;
        tracing::info!(probe, class, works, reason, %probed_at, "cluster probe");
        context
            .metrics
            .record_cluster_probe(probe, class, *works, *probed_at);
    }

    /// Name of the record for a runtime class. Of a class it has the name, even of the default one,
    /// since another one may become the default.
    fn key(&self, class: Option<&str>) -> String {
        match class {
            Some(class) => format!("{}.{class}", self.name),
            None => self.name.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::json;
    use shared::clock::Clock;
    use testing::FakeApi;

    use super::*;
    use crate::cluster_probes::user_namespaces::PROBE;
    use crate::config::UserNamespaces;
    use crate::tests::{config, context};

    #[tokio::test]
    async fn records_of_all_runtime_classes_are_recalled() {
        let record = |works: bool, unanswered: bool| -> ProbeRecord {
            let record = json!({"works": works, "unanswered": unanswered,
                "probedAt": "2026-01-31T11:00:00Z", "pod": "a"});
            serde_json::from_value(record).unwrap()
        };
        let known = [
            ("user_namespaces", record(true, false)),
            ("user_namespaces.runc", record(false, true)),
            ("user_namespaces.crun", record(false, false)),
            ("user_namespaces.kata.qemu", record(true, false)),
            ("root_overlays.runsc", record(true, false)),
        ];
        let known = known.map(|(key, record)| (key.to_owned(), record)).into();
        let mut config = config();
        config.pods.user_namespaces = UserNamespaces::Auto;
        let context = context(
            FakeApi::default().client(),
            config,
            Clock::starting_at(Timestamp::UNIX_EPOCH),
        );
        PROBE.recall(&context, &known);
        for (class, expected) in [
            (None, true),
            (Some("runc"), true),
            (Some("crun"), false),
            (Some("kata.qemu"), true),
            (Some("kata"), false),
            (Some("runsc"), false),
        ] {
            let found = context.user_namespaces.current(class);
            assert_eq!(found == UserNamespaces::Auto, expected, "{class:?}");
        }
    }
}
