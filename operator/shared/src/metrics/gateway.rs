//! Metrics of the gateway: requests by outcome, and what is open.

use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::{DurationFamily, Labels, add, durations};

/// Metrics of the gateway.
#[derive(Debug)]
pub struct GatewayMetrics {
    requests: Family<Labels<2>, Counter>,
    seconds: DurationFamily<1>,
    wakes: Family<Labels<1>, Counter>,
    /// Requests whose response has not ended, by `target`: `api`, `sandbox`, or `nobody` if a
    /// request names neither.
    pub in_flight: Family<Labels<1>, Gauge>,
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
    /// Seconds since the last response on a watch, by `resource`: the age of what the index says
    /// at most.
    pub watch_age: Family<Labels<1>, Gauge>,
}

impl GatewayMetrics {
    /// Records the time until the response head.
    pub fn record_response_head(&self, target: &'static str, took: Duration) {
        let seconds = self.seconds.get_or_create(&[("target", target)]);
        seconds.observe(took.as_secs_f64());
    }

    /// Records the end of a request with its outcome.
    pub fn record_end(&self, target: &'static str, outcome: &'static str) {
        let labels = [("target", target), ("outcome", outcome)];
        self.requests.get_or_create(&labels).inc();
    }

    /// Number of requests with this outcome.
    pub fn requests(&self, target: &'static str, outcome: &'static str) -> u64 {
        let labels = [("target", target), ("outcome", outcome)];
        self.requests.get_or_create(&labels).get()
    }

    /// Records an attempt to wake a sandbox: `ok` or `error`.
    pub fn record_wake(&self, outcome: &'static str) {
        self.wakes.get_or_create(&[("outcome", outcome)]).inc();
    }

    /// Number of attempts with this outcome.
    pub fn wakes(&self, outcome: &'static str) -> u64 {
        self.wakes.get_or_create(&[("outcome", outcome)]).get()
    }

    /// Registers all metrics.
    pub fn register(&self, registry: &mut Registry) {
        let to = registry.sub_registry_with_prefix("gateway");
        let help = "Requests by target and outcome";
        add(to, "requests", help, &self.requests);
        let help = "Time until the response head";
        add(to, "request_duration_seconds", help, &self.seconds);
        let help = "Requests in flight by target";
        add(to, "requests_under_way", help, &self.in_flight);
        add(to, "wakes", "Attempts to wake a sandbox", &self.wakes);
        let help = "Requests held until their sandbox is ready";
        add(to, "held_requests", help, &self.held);
        let help = "Open tunnels (upgraded connections)";
        add(to, "tunnels", help, &self.tunnels);
        let help = "Open client connections";
        add(to, "client_connections", help, &self.connections);
        let help = "Client connections rejected by the limit per address";
        add(to, "refused_connections", help, &self.refused_connections);
        let help = "Idle client connections closed to make room";
        add(to, "evicted_connections", help, &self.evicted_connections);
        let help = "Requests and connections rejected because the client memory is used up";
        add(to, "overloads", help, &self.overloads);
        let help = "Memory in use by client connections and request heads";
        add(to, "client_memory_bytes", help, &self.client_memory);
        let help = "Open connections to sandboxes";
        add(to, "upstream_connections", help, &self.upstream_connections);
        let help = "Time since the last response of the API server on a watch of a gateway";
        add(to, "watch_age_seconds", help, &self.watch_age);
    }
}

impl Default for GatewayMetrics {
    fn default() -> Self {
        Self {
            requests: Family::default(),
            seconds: durations(),
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
