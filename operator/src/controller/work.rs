//! The work itself: keys from the queue, a bounded number of passes at once, each with a time
//! limit, and what there is to tell about each of them afterwards.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::events::Announcer;
use super::reconcile::{Context, reconcile};
use super::starts::Starts;
use crate::index::{Entry, Index, Key};
use crate::kubernetes::health::STUCK_AFTER;
use crate::kubernetes::queue::{LONGEST_OUTAGE_PAUSE, LONGEST_PAUSE, Queue};
use crate::metrics::PassMetrics;
use crate::metrics::passes::{PhaseLabel, ResourceLabel};

/// Passes under way at once.
const CONCURRENT: usize = 32;
/// Longest time for one pass.
const PASS_TIMEOUT: Duration = Duration::from_mins(1);
/// How long passes may take to end on shutdown: a call's time limit and a little.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(12);
/// How long events may take to be written on shutdown.
const FLUSH_TIMEOUT: Duration = Duration::from_millis(500);

/// What passes work with, and where they tell of themselves.
pub(super) struct Worker {
    pub(super) context: Arc<Context>,
    queue: Arc<Queue<Key>>,
    metrics: PassMetrics,
    announcer: Arc<Announcer>,
    starts: Starts,
}

impl Worker {
    /// A worker whose metrics and liveness are part of the process's vitals.
    pub(super) fn new(context: &Arc<Context>, queue: &Arc<Queue<Key>>) -> Arc<Self> {
        let metrics = PassMetrics::default();
        let worker = Self {
            context: context.clone(),
            queue: queue.clone(),
            announcer: Arc::new(Announcer::new(context.clock, metrics.clone())),
            metrics,
            starts: Starts::default(),
        };
        worker.register();
        Arc::new(worker)
    }

    fn register(&self) {
        let vitals = &self.context.config.vitals;
        vitals
            .metrics
            .add(|registry| self.metrics.register(registry));
        // Weak: the vitals may outlive the worker, and must not keep its context.
        let (index, queue) = (
            Arc::downgrade(&self.context.index),
            Arc::downgrade(&self.queue),
        );
        let (metrics, of) = (self.metrics.clone(), Arc::downgrade(vitals));
        vitals.metrics.before_each_read(move || {
            let (Some(index), Some(queue), Some(vitals)) =
                (index.upgrade(), queue.upgrade(), of.upgrade())
            else {
                return;
            };
            measure(&metrics, &index, &queue, &vitals.health.ages());
        });
        let queue = Arc::downgrade(&self.queue);
        vitals.health.check(move || {
            let stalled = queue.upgrade()?.stalled();
            let seconds = stalled.as_secs();
            (stalled > STUCK_AFTER).then(|| format!("the queue has been stuck for {seconds} s"))
        });
    }

    /// Writes events for ever.
    pub(super) fn announce(&self) -> impl Future<Output = ()> + use<> {
        let leader = self.context.config.leader.as_ref();
        let instance = leader.map_or("standalone", |l| l.identity.as_str());
        let (client, instance) = (self.context.client.clone(), instance.to_owned());
        self.announcer.clone().run(client, instance)
    }

    /// Takes keys from the queue until shutdown, then lets the passes under way end. Whether all
    /// of them did.
    pub(super) async fn work(self: &Arc<Self>, shutdown: &CancellationToken) -> bool {
        tracing::info!("reconciling");
        self.metrics.leader.set(1);
        self.queue.open();
        enqueue_all(&self.context.index, &self.queue);
        let mut passes = JoinSet::new();
        let taking = async {
            loop {
                let (key, due) = self.queue.next().await;
                passes.spawn(self.clone().pass(key, due));
                while passes.try_join_next().is_some() {}
                if passes.len() >= CONCURRENT {
                    passes.join_next().await;
                }
            }
        };
        let _: Option<()> = shutdown.run_until_cancelled(taking).await;
        self.drain(passes).await
    }

    async fn drain(&self, mut passes: JoinSet<()>) -> bool {
        let ended = timeout(DRAIN_TIMEOUT, async {
            while passes.join_next().await.is_some() {}
        });
        let all_ended = ended.await.is_ok();
        if !all_ended {
            tracing::warn!("some passes did not end in time");
        }
        if timeout(FLUSH_TIMEOUT, self.announcer.flushed())
            .await
            .is_err()
        {
            tracing::info!("some events were not written");
        }
        all_ended
    }

    /// This process acts no more.
    pub(super) fn lay_down(&self) {
        self.metrics.leader.set(0);
    }

    async fn pass(self: Arc<Self>, key: Key, due: Instant) {
        let mut end = End {
            worker: &self,
            key: &key,
            began: Instant::now(),
            outcome: Outcome::Failed("unfinished", LONGEST_PAUSE, None),
        };
        self.metrics.under_way.inc();
        let before = self.context.index.get(&key);
        let result = timeout(PASS_TIMEOUT, reconcile(&self.context, &key)).await;
        self.tell(&key, before.as_deref(), due);
        end.outcome = match result {
            Ok(Ok(next)) => Outcome::Done(next.map(|at| instant(at, self.context.clock.now()))),
            Ok(Err(error)) => {
                let category = error.category();
                tracing::warn!(%key, category, %error, "a pass failed; trying again");
                let of_server = error.is_of_server();
                let longest = of_server.then_some(LONGEST_OUTAGE_PAUSE);
                let next = error.next().map(|at| instant(at, self.context.clock.now()));
                Outcome::Failed(category, longest.unwrap_or(LONGEST_PAUSE), next)
            }
            Err(_) => {
                tracing::warn!(%key, category = "timeout", "a pass took too long; trying again");
                Outcome::Failed("timeout", LONGEST_PAUSE, None)
            }
        };
    }

    /// Compares what the index holds with what it held before the pass. Only what was written, or
    /// read from the API server, is in there.
    fn tell(&self, key: &Key, before: Option<&Entry>, due: Instant) {
        let after = self.context.index.get(key);
        let after = after
            .as_deref()
            .filter(|a| before.is_some_and(|b| b.uid == a.uid));
        if let Some((kind, took)) = self.starts.follow(key, before, after, due) {
            self.metrics.started(kind, took);
        }
        if let (Some(before), Some(after)) = (before, after) {
            self.announcer.announce(before, after);
        }
    }
}

/// Ends a pass even if it panics, or the key would never be handed out again.
struct End<'a> {
    worker: &'a Worker,
    key: &'a Key,
    began: Instant,
    outcome: Outcome,
}

enum Outcome {
    /// It went well; look again then.
    Done(Option<Instant>),
    /// It went wrong, in this category; try again after a pause that grows up to this, and at this
    /// time at the latest.
    Failed(&'static str, Duration, Option<Instant>),
}

impl Drop for End<'_> {
    fn drop(&mut self) {
        let Worker { queue, metrics, .. } = self.worker;
        metrics.under_way.dec();
        match self.outcome {
            Outcome::Failed(category, longest, next) => {
                metrics.failed(category, self.began.elapsed());
                queue.failed(self.key, longest);
                if let Some(at) = next {
                    queue.add_at(self.key.clone(), at);
                }
            }
            Outcome::Done(next) => {
                metrics.passed(self.began.elapsed());
                queue.done(self.key);
                if let Some(at) = next {
                    queue.add_at(self.key.clone(), at);
                }
            }
        }
    }
}

/// Asks for a pass over every sandbox.
pub(super) fn enqueue_all(index: &Index, queue: &Queue<Key>) {
    for entry in index.list(|_| true) {
        queue.add(entry.key.clone());
    }
}

/// Sets the gauges.
fn measure(
    metrics: &PassMetrics,
    index: &Index,
    queue: &Queue<Key>,
    ages: &[(&'static str, Duration)],
) {
    let number = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
    for (phase, count) in index.census() {
        let gauge = metrics.sandboxes.get_or_create_owned(&PhaseLabel { phase });
        gauge.set(number(count));
    }
    metrics.queued.set(number(queue.depth()));
    for (resource, age) in ages {
        let gauge = metrics
            .watch_age
            .get_or_create_owned(&ResourceLabel { resource });
        gauge.set(i64::try_from(age.as_secs()).unwrap_or(i64::MAX));
    }
}

/// The moment on tokio's clock. Timestamps in a status have no fractions of seconds, so a
/// deadline derived from one may come a little early; the millisecond keeps passes from spinning.
fn instant(at: Timestamp, now: Timestamp) -> Instant {
    let wait = Duration::try_from(at.duration_since(now)).unwrap_or_default();
    Instant::now() + wait + Duration::from_millis(1)
}
