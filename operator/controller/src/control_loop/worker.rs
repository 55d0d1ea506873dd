//! Runs a bounded number of reconciles at once, each with a time limit, and publishes metrics and
//! Events about them.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crds::conditions::Reason;
use crds::sandbox::Phase;
use jiff::Timestamp;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::spans;
use crate::context::Context;
use crate::reconcile::observe::restore_quota;
use crate::reconcile::{ReconcileError, reconcile};
use crate::sandbox_memory::PerSandbox as _;
use shared::index::{Entry, Index, Key};
use shared::kubernetes::health::WATCH_STUCK_TIMEOUT;
use shared::kubernetes::work_queue::{MAX_BACKOFF, MAX_OUTAGE_BACKOFF, WorkQueue};
use shared::traces::Span;

/// Maximum of concurrent reconciles.
const MAX_CONCURRENT_RECONCILES: usize = 32;
/// Time limit of one reconcile.
const RECONCILE_TIMEOUT: Duration = Duration::from_mins(1);
/// Time for reconciles to guard on shutdown: slightly more than the time limit of one call.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(12);
/// Time for queued Events to be written on shutdown.
const FLUSH_TIMEOUT: Duration = Duration::from_millis(500);

/// Runs reconciles and publishes their outcome.
pub(super) struct Worker {
    pub(super) context: Arc<Context>,
    queue: Arc<WorkQueue<Key>>,
}

impl Worker {
    /// Registers the worker's metrics and liveness check with the process's diagnostics.
    pub(super) fn new(context: &Arc<Context>, queue: &Arc<WorkQueue<Key>>) -> Arc<Self> {
        let worker = Self {
            context: context.clone(),
            queue: queue.clone(),
        };
        worker.register();
        Arc::new(worker)
    }

    fn register(&self) {
        let vitals = &self.context.config.vitals;
        vitals
            .metrics
            .add(|registry| self.context.metrics.register(registry));
        // Weak references: the diagnostics may outlive the worker and must not keep its context.
        let (weak_context, weak_queue) =
            (Arc::downgrade(&self.context), Arc::downgrade(&self.queue));
        vitals.metrics.before_each_read(move || {
            if let (Some(context), Some(queue)) = (weak_context.upgrade(), weak_queue.upgrade()) {
                update_gauges(&context, &queue);
            }
        });
        let queue = Arc::downgrade(&self.queue);
        vitals.health.add_liveness_check(move || {
            let stalled = queue.upgrade()?.stalled_for();
            let seconds = stalled.as_secs();
            (stalled > WATCH_STUCK_TIMEOUT)
                .then(|| format!("the work queue has been stuck for {seconds} s"))
        });
    }

    /// Writes queued Events until it is dropped.
    pub(super) fn run_event_writer(&self) -> impl Future<Output = ()> + use<> {
        let leader = self.context.config.leader.as_ref();
        let instance = leader.map_or("standalone", |l| l.identity.as_str());
        let (client, instance) = (self.context.client.clone(), instance.to_owned());
        self.context.events.clone().run(client, instance)
    }

    /// Reconciles keys from the queue until shutdown, then lets running reconciles guard. Returns
    /// whether all of them did.
    pub(super) async fn run(self: &Arc<Self>, shutdown: &CancellationToken) -> bool {
        tracing::info!("reconciling");
        self.context.metrics.leader.set(1);
        self.context.pod_meter.begin();
        restore_quota(&self.context);
        self.queue.open();
        enqueue_all(&self.context.index, &self.queue);
        for sandbox in self.context.pods.sandboxes() {
            self.queue.add(sandbox);
        }
        let mut reconciles = JoinSet::new();
        let taking = async {
            loop {
                let (key, due) = self.queue.next().await;
                reconciles.spawn(self.clone().reconcile_key(key, due));
                while reconciles.try_join_next().is_some() {}
                if reconciles.len() >= MAX_CONCURRENT_RECONCILES {
                    reconciles.join_next().await;
                }
            }
        };
        let _: Option<()> = shutdown.run_until_cancelled(taking).await;
        self.drain(reconciles).await
    }

    async fn drain(&self, mut reconciles: JoinSet<()>) -> bool {
        let ended = timeout(DRAIN_TIMEOUT, async {
            while reconciles.join_next().await.is_some() {}
        });
        let all_ended = ended.await.is_ok();
        if !all_ended {
            tracing::warn!("reconciles did not finish before the drain timeout");
        }
        if timeout(FLUSH_TIMEOUT, self.context.events.wait_flushed())
            .await
            .is_err()
        {
            tracing::warn!("some Events were not written before the shutdown");
        }
        all_ended
    }

    async fn reconcile_key(self: Arc<Self>, key: Key, due: Instant) {
        let before = self.context.index.get(&key);
        let mut guard = ReconcileGuard {
            worker: &self,
            key: &key,
            before: before.as_deref(),
            began: Instant::now(),
            failure: Some(("unfinished", MAX_BACKOFF)),
            next: None,
            span: spans::start_reconcile(&self.context, &key),
        };
        self.context.metrics.in_progress.inc();
        let result = timeout(RECONCILE_TIMEOUT, reconcile(&self.context, &key)).await;
        self.publish_changes(&key, before.as_deref(), due);
        let next = match result {
            Ok(Ok(next)) => {
                self.context.memory.forget_failure(&key);
                guard.failure = None;
                next
            }
            Ok(Err(error)) => {
                let category = error.category();
                let is_new = self.log_failure(&key, category, &error.to_string());
                if let (ReconcileError::OtherInstallation(_), true, Some(entry)) =
                    (&error, is_new, before.as_deref())
                {
                    // Its status belongs to the other installation.
                    let events = &self.context.events;
                    events.publish_error(entry, "OtherInstallation", error.to_string());
                }
                let longest = if error.is_server_error() {
                    MAX_OUTAGE_BACKOFF
                } else {
                    MAX_BACKOFF
                };
                guard.failure = Some((category, longest));
                error.requeue_at()
            }
            Err(_) => {
                self.log_failure(&key, "timeout", "the reconcile exceeded its time limit");
                guard.failure = Some(("timeout", MAX_BACKOFF));
                None
            }
        };
        guard.next = next.map(|at| to_instant(at, self.context.clock.now()));
    }

    /// Logs an error once, and its repetitions for debugging only. Returns whether it is new.
    fn log_failure(&self, key: &Key, category: &str, error: &str) -> bool {
        let is_new = self.context.memory.is_new_error(key, error);
        if is_new {
            tracing::warn!(%key, category, error, "reconcile failed; requeued");
        } else {
            tracing::debug!(%key, category, error, "reconcile failed again; requeued");
        }
        is_new
    }

    /// Publishes the difference between the index before and after the reconcile. The index only
    /// holds state that was written to or read from the API server.
    fn publish_changes(&self, key: &Key, before: Option<&Entry>, due: Instant) {
        let Context {
            memory,
            events,
            metrics,
            ..
        } = &*self.context;
        let after = self.context.index.get(key);
        let same = after.as_deref().zip(before);
        let Some((after, before)) = same.filter(|(after, before)| after.uid == before.uid) else {
            return memory.forget(key);
        };
        if let Some((kind, latency)) = memory.observe_start(before, after, due) {
            metrics.started(if after.status.warm { "claimed" } else { kind }, latency);
            spans::record_start(&self.context, after, kind, latency);
        }
        let (old, new) = (&before.status, &after.status);
        match new.reason.filter(|reason| old.reason != Some(*reason)) {
            Some(Reason::WaitingForWarmPod) => metrics.record_claim("waiting"),
            Some(Reason::PoolExhausted) => metrics.record_claim("refused"),
            _ => {}
        }
        if let Some(restored) = new
            .restored
            .as_ref()
            .filter(|_| new.restored != old.restored)
        {
            metrics.record_restore(restored.level.as_str());
        }
        let restarts = new.restarts.count.saturating_sub(old.restarts.count);
        if restarts > 0 {
            metrics.record_restarts(restarts, new.restarts.reasons.last().map(String::as_str));
        }
        if new.phase == Phase::Failed && old.phase != Phase::Failed {
            metrics.record_sandbox_failure(new.reason);
            let (reason, detail) = (new.reason.map(|reason| reason.to_string()), &new.message);
            tracing::warn!(%key, reason, detail, "sandbox failed");
        }
        events.publish_changes(before, after);
    }
}

/// Finishes a reconcile even if it panics; otherwise the key would never be handed out again.
struct ReconcileGuard<'a> {
    worker: &'a Worker,
    key: &'a Key,
    before: Option<&'a Entry>,
    began: Instant,
    /// Error category and maximum backoff; `None` after a success.
    failure: Option<(&'static str, Duration)>,
    /// The time of the next reconcile at the latest.
    next: Option<Instant>,
    /// Span of the reconcile, if it is recorded.
    span: Option<Span>,
}

impl Drop for ReconcileGuard<'_> {
    fn drop(&mut self) {
        let Worker { queue, context } = self.worker;
        let metrics = &context.metrics;
        metrics.in_progress.dec();
        if let Some(span) = &mut self.span {
            let after = context.index.get(self.key);
            let failure = self.failure.map(|(category, _)| category);
            spans::finish_reconcile(span, self.before, after.as_deref(), failure);
        }
        if let Some((category, longest)) = self.failure {
            metrics.record_failure(category, self.began.elapsed());
            queue.requeue_with_backoff(self.key, longest);
            // Read afterwards: a later change adds the key by itself.
            if is_changed(self.before, context.index.get(self.key).as_deref()) {
                queue.add(self.key.clone());
            }
        } else {
            metrics.record_success(self.began.elapsed());
            queue.done(self.key);
        }
        if let Some(at) = self.next {
            queue.add_at(self.key.clone(), at);
        }
    }
}

/// Returns whether the user or a client has changed the Sandbox; the controller changes its status.
fn is_changed(before: Option<&Entry>, after: Option<&Entry>) -> bool {
    let request = |e: &Entry| (e.uid.clone(), e.generation, e.deleting, e.wake_at);
    before.map(request) != after.map(request)
}

/// Adds every sandbox to the work queue.
pub(super) fn enqueue_all(index: &Index, queue: &WorkQueue<Key>) {
    for entry in index.list(|_| true) {
        queue.add(entry.key.clone());
    }
}

fn update_gauges(context: &Context, queue: &WorkQueue<Key>) {
    let metrics = &context.metrics;
    context.pod_meter.publish();
    let number = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
    for (phase, count) in context.index.phase_counts() {
        let gauge = metrics.sandboxes.get_or_create_owned(&[("phase", phase)]);
        gauge.set(number(count));
    }
    for (reason, count) in context.index.starting_counts() {
        let label = [("reason", reason)];
        let gauge = metrics.sandboxes_starting.get_or_create_owned(&label);
        gauge.set(number(count));
    }
    let (ready, others) = context.warm_pods.count();
    for (state, count) in [("ready", ready), ("not_ready", others)] {
        let gauge = metrics.warm_pods.get_or_create_owned(&[("state", state)]);
        gauge.set(number(count));
    }
    metrics.queued.set(number(queue.depth()));
    for (resource, age) in context.config.vitals.health.watch_ages() {
        let label = [("resource", resource)];
        let gauge = metrics.watch_age.get_or_create_owned(&label);
        gauge.set(i64::try_from(age.as_secs()).unwrap_or(i64::MAX));
    }
}

/// Converts a timestamp to tokio's clock. Timestamps in a status have no fractions of seconds, so a
/// deadline may be slightly early. The extra millisecond prevents a busy loop.
fn to_instant(at: Timestamp, now: Timestamp) -> Instant {
    let wait = Duration::try_from(at.duration_since(now)).unwrap_or_default();
    Instant::now() + wait + Duration::from_millis(1)
}

#[cfg(test)]
mod tests {
    use crds::sandbox::SandboxSpec;
    use serde_json::json;
    use shared::clock::Clock;
    use testing::{CapturedLog, FakeApi};

    use super::*;
    use crate::tests::{config, context, entry};

    #[tokio::test(start_paused = true)]
    async fn change_during_failing_reconcile_skips_the_backoff() {
        let client = FakeApi::default().client();
        let context = Arc::new(context(client, config(), Clock::wall()));
        let queue = Arc::new(WorkQueue::default());
        queue.open();
        let before = entry(SandboxSpec::default());
        for (generation, due) in [(1, 0), (2, 1)] {
            let sandbox = json!({
                "apiVersion": "openhands.dev/v1alpha1", "kind": "Sandbox", "spec": {},
                "metadata": {"namespace": "ns", "name": "a", "uid": "uid",
                    "generation": generation, "resourceVersion": generation.to_string()},
            });
            context
                .index
                .apply(&serde_json::from_value(sandbox).unwrap());
            queue.add(before.key.clone());
            let (key, _) = queue.next().await;
            context.metrics.in_progress.inc();
            drop(ReconcileGuard {
                worker: &Worker {
                    context: context.clone(),
                    queue: queue.clone(),
                },
                key: &key,
                before: Some(&before),
                began: Instant::now(),
                failure: Some(("spec", MAX_BACKOFF)),
                next: None,
                span: None,
            });
            assert_eq!(queue.depth(), due, "generation {generation}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn failure_of_a_sandbox_is_logged_once() {
        let log = CapturedLog::start();
        let client = FakeApi::default().client();
        let context = Arc::new(context(client, config(), Clock::wall()));
        let worker = Worker {
            context: context.clone(),
            queue: Arc::default(),
        };
        let mut before = entry(SandboxSpec::default());
        for version in ["1", "2"] {
            let failed = json!({
                "apiVersion": "openhands.dev/v1alpha1", "kind": "Sandbox", "spec": {},
                "metadata": {"namespace": "ns", "name": "a", "uid": before.uid,
                    "resourceVersion": version},
                "status": {"phase": "Failed", "reason": "CrashLoop", "message": "it ended"},
            });
            context
                .index
                .apply(&serde_json::from_value(failed).unwrap());
            worker.publish_changes(&before.key, Some(&before), Instant::now());
            before = context.index.get(&before.key).unwrap().as_ref().clone();
        }
        let fields = ["level", "key", "reason", "detail", "message"];
        let warning = json!(["WARN", "ns/a", "CrashLoop", "it ended", "sandbox failed"]);
        assert_eq!(
            log.of(module_path!().trim_end_matches("::tests"), &fields),
            [warning]
        );
    }
}
