//! Metrics of the controller: reconciles, starts and the length of its queue.

use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::{DurationFamily, Labels, SECONDS, add, durations};

/// Metrics of the controller.
#[derive(Debug, Clone)]
pub struct ControllerMetrics {
    reconciles: Family<Labels<1>, Counter>,
    seconds: Histogram,
    errors: Family<Labels<1>, Counter>,
    starts: DurationFamily<1>,
    events: Family<Labels<1>, Counter>,
    /// By `phase`.
    pub sandboxes: Family<Labels<1>, Gauge>,
    pub queued: Gauge,
    pub in_progress: Gauge,
    pub leader: Gauge,
    /// By `resource`.
    pub watch_age: Family<Labels<1>, Gauge>,
}

impl ControllerMetrics {
    /// Records a successful reconcile.
    pub fn record_success(&self, took: Duration) {
        self.record("ok", took);
    }

    /// Records a failed reconcile with the category of its error.
    pub fn record_failure(&self, category: &'static str, took: Duration) {
        self.record("error", took);
        let errors = self.errors.get_or_create(&[("category", category)]);
        errors.inc();
    }

    fn record(&self, outcome: &'static str, took: Duration) {
        let reconciles = self.reconciles.get_or_create(&[("outcome", outcome)]);
        reconciles.inc();
        self.seconds.observe(took.as_secs_f64());
    }

    /// Records a sandbox that became ready: `kind` is `created` or `resumed`.
    pub fn started(&self, kind: &'static str, took: Duration) {
        let starts = self.starts.get_or_create(&[("kind", kind)]);
        starts.observe(took.as_secs_f64());
    }

    /// Records the outcome of a Kubernetes Event.
    pub fn event(&self, outcome: &'static str) {
        self.events.get_or_create(&[("outcome", outcome)]).inc();
    }

    /// Number of Events with this outcome.
    pub fn events(&self, outcome: &'static str) -> u64 {
        self.events.get_or_create(&[("outcome", outcome)]).get()
    }

    /// Registers all metrics.
    pub fn register(&self, to: &mut Registry) {
        add(to, "reconciles", "Reconciles by outcome", &self.reconciles);
        let help = "Duration of a reconcile";
        add(to, "reconcile_duration_seconds", help, &self.seconds);
        let help = "Failed reconciles by error category";
        add(to, "reconcile_errors", help, &self.errors);
        let help = "Time from the first event of a created or resumed sandbox until it is ready";
        add(to, "start_duration_seconds", help, &self.starts);
        add(to, "events", "Kubernetes Events by outcome", &self.events);
        add(to, "sandboxes", "Sandboxes by phase", &self.sandboxes);
        add(
            to,
            "queue_depth",
            "Keys due in the work queue",
            &self.queued,
        );
        let help = "Reconciles in progress";
        add(to, "passes_under_way", help, &self.in_progress);
        let help = "1 while this process is the leader";
        add(to, "leader", help, &self.leader);
        let help = "Time since the last response of the API server on a watch";
        add(to, "watch_age_seconds", help, &self.watch_age);
    }
}

impl Default for ControllerMetrics {
    fn default() -> Self {
        Self {
            reconciles: Family::default(),
            seconds: Histogram::new(SECONDS),
            errors: Family::default(),
            starts: durations(),
            events: Family::default(),
            sandboxes: Family::default(),
            queued: Gauge::default(),
            in_progress: Gauge::default(),
            leader: Gauge::default(),
            watch_age: Family::default(),
        }
    }
}
