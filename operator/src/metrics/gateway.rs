//! What the gateway does: requests by what became of them, and what is open at the moment.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::SECONDS;

/// Metrics of the gateway.
#[derive(Debug)]
pub struct GatewayMetrics {
    requests: Family<RequestLabels, Counter>,
    seconds: Family<TargetLabel, Histogram>,
    wakes: Family<OutcomeLabel, Counter>,
    /// Requests that have not been answered to the end.
    pub under_way: Family<TargetLabel, Gauge>,
    /// Requests that wait for their sandbox to come back.
    pub held: Gauge,
    pub tunnels: Gauge,
    /// Connections of clients.
    pub connections: Gauge,
    /// Connections beyond what one address may have.
    pub refused_connections: Counter,
    /// Connections to sandboxes.
    pub upstream_connections: Gauge,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    target: &'static str,
    outcome: &'static str,
}

/// Who answers: `api`, `sandbox`, or `nobody` for what names neither.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct TargetLabel {
    pub target: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabel {
    outcome: &'static str,
}

impl GatewayMetrics {
    /// Notes how long a client waited for the head of an answer.
    pub fn answered(&self, target: &'static str, took: Duration) {
        let seconds = self.seconds.get_or_create(&TargetLabel { target });
        seconds.observe(took.as_secs_f64());
    }

    /// Notes what became of a request, as a fixed word.
    pub fn ended(&self, target: &'static str, outcome: &'static str) {
        let labels = RequestLabels { target, outcome };
        self.requests.get_or_create(&labels).inc();
    }

    /// Requests that ended so.
    pub fn requests(&self, target: &'static str, outcome: &'static str) -> u64 {
        let labels = RequestLabels { target, outcome };
        self.requests.get_or_create(&labels).get()
    }

    /// Notes a try to wake a sandbox: `ok` or `error`.
    pub fn woke(&self, outcome: &'static str) {
        self.wakes.get_or_create(&OutcomeLabel { outcome }).inc();
    }

    /// Tries that ended so.
    pub fn wakes(&self, outcome: &'static str) -> u64 {
        self.wakes.get_or_create(&OutcomeLabel { outcome }).get()
    }

    /// Puts all of them into a registry.
    pub fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("gateway");
        registry.register(
            "requests",
            "Requests by who answers and what became of them",
            self.requests.clone(),
        );
        registry.register(
            "request_duration_seconds",
            "Time until the head of an answer",
            self.seconds.clone(),
        );
        registry.register(
            "requests_under_way",
            "Requests that have not been answered to the end",
            self.under_way.clone(),
        );
        registry.register("wakes", "Tries to wake a sandbox", self.wakes.clone());
        registry.register(
            "held_requests",
            "Requests that wait for their sandbox to come back",
            self.held.clone(),
        );
        registry.register("tunnels", "Open upgraded connections", self.tunnels.clone());
        registry.register(
            "client_connections",
            "Open connections of clients",
            self.connections.clone(),
        );
        registry.register(
            "refused_connections",
            "Connections beyond what one address may have",
            self.refused_connections.clone(),
        );
        registry.register(
            "upstream_connections",
            "Open connections to sandboxes",
            self.upstream_connections.clone(),
        );
    }
}

impl Default for GatewayMetrics {
    fn default() -> Self {
        Self {
            requests: Family::default(),
            seconds: Family::new_with_constructor(|| Histogram::new(SECONDS)),
            wakes: Family::default(),
            under_way: Family::default(),
            held: Gauge::default(),
            tunnels: Gauge::default(),
            connections: Gauge::default(),
            refused_connections: Counter::default(),
            upstream_connections: Gauge::default(),
        }
    }
}
