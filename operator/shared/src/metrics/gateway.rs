//! Metrics of the gateway: requests by outcome, and what is open.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::SECONDS;
use super::controller::ResourceLabel;

/// Metrics of the gateway.
#[derive(Debug)]
pub struct GatewayMetrics {
    requests: Family<RequestLabels, Counter>,
    seconds: Family<TargetLabel, Histogram>,
    wakes: Family<OutcomeLabel, Counter>,
    /// Requests whose response has not ended.
    pub in_flight: Family<TargetLabel, Gauge>,
    /// Held requests.
    pub held: Gauge,
    pub tunnels: Gauge,
    /// Open client connections.
    pub connections: Gauge,
    /// Connections rejected by the limit per address.
    pub refused_connections: Counter,
    /// Idle client connections closed to make room.
    pub evicted_connections: Counter,
    /// Requests and connections rejected because the memory of clients is used up.
    pub overloads: Counter,
    /// Bytes of the memory of clients in use.
    pub client_memory: Gauge,
    /// Open connections to sandboxes.
    pub upstream_connections: Gauge,
    /// Seconds since the last response on a watch: the age of what the index says at most.
    pub watch_age: Family<ResourceLabel, Gauge>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    target: &'static str,
    outcome: &'static str,
}

/// Target of a request: `api`, `sandbox`, or `nobody` if it names neither.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct TargetLabel {
    pub target: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabel {
    outcome: &'static str,
}

impl GatewayMetrics {
    /// Records the time until the response head.
    pub fn record_response_head(&self, target: &'static str, took: Duration) {
        let seconds = self.seconds.get_or_create(&TargetLabel { target });
        seconds.observe(took.as_secs_f64());
    }

    /// Records the end of a request with its outcome.
    pub fn record_end(&self, target: &'static str, outcome: &'static str) {
        let labels = RequestLabels { target, outcome };
        self.requests.get_or_create(&labels).inc();
    }

    /// Number of requests with this outcome.
    pub fn requests(&self, target: &'static str, outcome: &'static str) -> u64 {
        let labels = RequestLabels { target, outcome };
        self.requests.get_or_create(&labels).get()
    }

    /// Records an attempt to wake a sandbox: `ok` or `error`.
    pub fn record_wake(&self, outcome: &'static str) {
        self.wakes.get_or_create(&OutcomeLabel { outcome }).inc();
    }

    /// Number of attempts with this outcome.
    pub fn wakes(&self, outcome: &'static str) -> u64 {
        self.wakes.get_or_create(&OutcomeLabel { outcome }).get()
    }

    /// Registers all metrics.
    pub fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("gateway");
        registry.register(
            "requests",
            "Requests by target and outcome",
            self.requests.clone(),
        );
        registry.register(
            "request_duration_seconds",
            "Time until the response head",
            self.seconds.clone(),
        );
        registry.register(
            "requests_under_way",
            "Requests in flight by target",
            self.in_flight.clone(),
        );
        registry.register("wakes", "Attempts to wake a sandbox", self.wakes.clone());
        registry.register(
            "held_requests",
            "Requests held until their sandbox is ready",
            self.held.clone(),
        );
        registry.register(
            "tunnels",
            "Open tunnels (upgraded connections)",
            self.tunnels.clone(),
        );
        registry.register(
            "client_connections",
            "Open client connections",
            self.connections.clone(),
        );
        registry.register(
            "refused_connections",
            "Client connections rejected by the limit per address",
            self.refused_connections.clone(),
        );
        registry.register(
            "evicted_connections",
            "Idle client connections closed to make room",
            self.evicted_connections.clone(),
        );
        registry.register(
            "overloads",
            "Requests and connections rejected because the client memory is used up",
            self.overloads.clone(),
        );
        registry.register(
            "client_memory_bytes",
            "Memory in use by client connections and request heads",
            self.client_memory.clone(),
        );
        registry.register(
            "upstream_connections",
            "Open connections to sandboxes",
            self.upstream_connections.clone(),
        );
        registry.register(
            "watch_age_seconds",
            "Time since the last response of the API server on a watch of a gateway",
            self.watch_age.clone(),
        );
    }
}

impl Default for GatewayMetrics {
    fn default() -> Self {
        Self {
            requests: Family::default(),
            seconds: Family::new_with_constructor(|| Histogram::new(SECONDS)),
            wakes: Family::default(),
            in_flight: Family::default(),
            held: Gauge::default(),
            tunnels: Gauge::default(),
            connections: Gauge::default(),
            refused_connections: Counter::default(),
            evicted_connections: Counter::default(),
            overloads: Counter::default(),
            client_memory: Gauge::default(),
            upstream_connections: Gauge::default(),
            watch_age: Family::default(),
        }
    }
}
