//! Metrics of the controller: reconciles, starts and the length of its queue.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::SECONDS;

/// Metrics of the controller.
#[derive(Debug, Clone)]
pub struct ControllerMetrics {
    reconciles: Family<OutcomeLabel, Counter>,
    seconds: Histogram,
    errors: Family<CategoryLabel, Counter>,
    starts: Family<StartLabel, Histogram>,
    events: Family<OutcomeLabel, Counter>,
    pub sandboxes: Family<PhaseLabel, Gauge>,
    pub queued: Gauge,
    pub in_progress: Gauge,
    pub leader: Gauge,
    pub watch_age: Family<ResourceLabel, Gauge>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabel {
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CategoryLabel {
    category: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StartLabel {
    kind: &'static str,
}

/// Label of a Sandbox phase.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct PhaseLabel {
    pub phase: &'static str,
}

/// Label of a watched resource.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ResourceLabel {
    pub resource: &'static str,
}

impl ControllerMetrics {
    /// Records a successful reconcile.
    pub fn record_success(&self, took: Duration) {
        self.record("ok", took);
    }

    /// Records a failed reconcile with the category of its error.
    pub fn record_failure(&self, category: &'static str, took: Duration) {
        self.record("error", took);
        self.errors.get_or_create(&CategoryLabel { category }).inc();
    }

    fn record(&self, outcome: &'static str, took: Duration) {
        self.reconciles
            .get_or_create(&OutcomeLabel { outcome })
            .inc();
        self.seconds.observe(took.as_secs_f64());
    }

    /// Records a sandbox that became ready: `kind` is `created` or `resumed`.
    pub fn started(&self, kind: &'static str, took: Duration) {
        let starts = self.starts.get_or_create(&StartLabel { kind });
        starts.observe(took.as_secs_f64());
    }

    /// Records the outcome of a Kubernetes Event.
    pub fn event(&self, outcome: &'static str) {
        self.events.get_or_create(&OutcomeLabel { outcome }).inc();
    }

    /// Number of Events with this outcome.
    pub fn events(&self, outcome: &'static str) -> u64 {
        self.events.get_or_create(&OutcomeLabel { outcome }).get()
    }

    /// Registers all metrics.
    pub fn register(&self, registry: &mut Registry) {
        let add = registry;
        add.register(
            "reconciles",
            "Reconciles by outcome",
            self.reconciles.clone(),
        );
        add.register(
            "reconcile_duration_seconds",
            "Duration of a reconcile",
            self.seconds.clone(),
        );
        add.register(
            "reconcile_errors",
            "Failed reconciles by error category",
            self.errors.clone(),
        );
        add.register(
            "start_duration_seconds",
            "Time from the first event of a created or resumed sandbox until it is ready",
            self.starts.clone(),
        );
        add.register(
            "events",
            "Kubernetes Events by outcome",
            self.events.clone(),
        );
        add.register("sandboxes", "Sandboxes by phase", self.sandboxes.clone());
        add.register(
            "queue_depth",
            "Keys due in the work queue",
            self.queued.clone(),
        );
        add.register(
            "passes_under_way",
            "Reconciles in progress",
            self.in_progress.clone(),
        );
        add.register(
            "leader",
            "1 while this process is the leader",
            self.leader.clone(),
        );
        add.register(
            "watch_age_seconds",
            "Time since the last response of the API server on a watch",
            self.watch_age.clone(),
        );
    }
}

impl Default for ControllerMetrics {
    fn default() -> Self {
        Self {
            reconciles: Family::default(),
            seconds: Histogram::new(SECONDS),
            errors: Family::default(),
            starts: Family::new_with_constructor(|| Histogram::new(SECONDS)),
            events: Family::default(),
            sandboxes: Family::default(),
            queued: Gauge::default(),
            in_progress: Gauge::default(),
            leader: Gauge::default(),
            watch_age: Family::default(),
        }
    }
}
