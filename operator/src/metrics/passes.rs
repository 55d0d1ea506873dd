//! What the controller does: passes over sandboxes, their starts, and how far behind it is.

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
pub struct PassMetrics {
    passes: Family<OutcomeLabel, Counter>,
    seconds: Histogram,
    errors: Family<CategoryLabel, Counter>,
    starts: Family<StartLabel, Histogram>,
    events: Family<OutcomeLabel, Counter>,
    pub sandboxes: Family<PhaseLabel, Gauge>,
    pub queued: Gauge,
    pub under_way: Gauge,
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

/// A phase of Sandboxes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct PhaseLabel {
    pub phase: &'static str,
}

/// A resource that is watched.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ResourceLabel {
    pub resource: &'static str,
}

impl PassMetrics {
    /// Notes a pass that went well.
    pub fn passed(&self, took: Duration) {
        self.pass("ok", took);
    }

    /// Notes a pass that failed, with the fixed name of the error's category.
    pub fn failed(&self, category: &'static str, took: Duration) {
        self.pass("error", took);
        self.errors.get_or_create(&CategoryLabel { category }).inc();
    }

    fn pass(&self, outcome: &'static str, took: Duration) {
        self.passes.get_or_create(&OutcomeLabel { outcome }).inc();
        self.seconds.observe(took.as_secs_f64());
    }

    /// Notes a sandbox that became ready: `kind` is `created` or `resumed`.
    pub fn started(&self, kind: &'static str, took: Duration) {
        let starts = self.starts.get_or_create(&StartLabel { kind });
        starts.observe(took.as_secs_f64());
    }

    /// Notes what became of an Event, as a fixed word.
    pub fn event(&self, outcome: &'static str) {
        self.events.get_or_create(&OutcomeLabel { outcome }).inc();
    }

    /// How many Events had this outcome.
    pub fn events(&self, outcome: &'static str) -> u64 {
        self.events.get_or_create(&OutcomeLabel { outcome }).get()
    }

    /// Puts all of them into a registry.
    pub fn register(&self, registry: &mut Registry) {
        let add = registry;
        add.register("reconciles", "Passes over sandboxes", self.passes.clone());
        add.register(
            "reconcile_duration_seconds",
            "Duration of a pass",
            self.seconds.clone(),
        );
        add.register(
            "reconcile_errors",
            "Passes that failed, by the category of the error",
            self.errors.clone(),
        );
        add.register(
            "start_duration_seconds",
            "Time from the first sight of a created or resumed sandbox until it was ready",
            self.starts.clone(),
        );
        add.register(
            "events",
            "Events by what became of them",
            self.events.clone(),
        );
        add.register("sandboxes", "Sandboxes by phase", self.sandboxes.clone());
        add.register(
            "queue_depth",
            "Sandboxes that are due for a pass",
            self.queued.clone(),
        );
        add.register(
            "passes_under_way",
            "Passes at this moment",
            self.under_way.clone(),
        );
        add.register(
            "leader",
            "1 while this process may act",
            self.leader.clone(),
        );
        add.register(
            "watch_age_seconds",
            "Time since the API server last said anything on a watch",
            self.watch_age.clone(),
        );
    }
}

impl Default for PassMetrics {
    fn default() -> Self {
        Self {
            passes: Family::default(),
            seconds: Histogram::new(SECONDS),
            errors: Family::default(),
            starts: Family::new_with_constructor(|| Histogram::new(SECONDS)),
            events: Family::default(),
            sandboxes: Family::default(),
            queued: Gauge::default(),
            under_way: Gauge::default(),
            leader: Gauge::default(),
            watch_age: Family::default(),
        }
    }
}
