//! Metrics of the gateway: requests by outcome, and what is open.

use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use super::{DurationFamily, Labels, durations};

role_metrics! {
    /// Metrics of the gateway.
    GatewayMetrics:
    requests: Family<Labels<2>, Counter> = Family::default(),
        "gateway_requests", "Requests by target and outcome";
    seconds: DurationFamily<1> = durations(),
        "gateway_request_duration_seconds", "Time until the response head";
    /// By `target`: `api`, `sandbox`, or `none` if a request names neither.
    pub in_flight: Family<Labels<1>, Gauge> = Family::default(),
        "gateway_requests_under_way", "Requests in flight by target";
    wakes: Family<Labels<1>, Counter> = Family::default(),
        "gateway_wakes", "Attempts to wake a sandbox";
    pub held: Gauge = Gauge::default(),
        "gateway_held_requests", "Requests held until their sandbox is ready";
    pub tunnels: Gauge = Gauge::default(),
        "gateway_tunnels", "Open tunnels (upgraded connections)";
    pub connections: Gauge = Gauge::default(),
        "gateway_client_connections", "Open client connections";
    pub refused_connections: Counter = Counter::default(),
        "gateway_refused_connections", "Client connections rejected by the limit per address";
    pub evicted_connections: Counter = Counter::default(),
        "gateway_evicted_connections", "Idle client connections closed to make room";
    pub overloads: Counter = Counter::default(),
        "gateway_overloads",
        "Requests and connections rejected because the client memory is used up";
    pub client_memory: Gauge = Gauge::default(),
        "gateway_client_memory_bytes", "Memory in use by client connections and request heads";
    pub event_streams: Gauge = Gauge::default(),
        "gateway_event_streams", "Open event streams";
    pub event_streams_dropped: Counter = Counter::default(),
        "gateway_event_streams_dropped", "Event streams ended because the client was too slow";
    pub upstream_connections: Gauge = Gauge::default(),
        "gateway_upstream_connections", "Open connections to sandboxes";
    image_builds: Family<Labels<2>, Counter> = Family::default(),
        "gateway_image_builds",
        "Image builds of clients by mode and result, without those that the controller runs";
    image_build_seconds: DurationFamily<1> = durations(),
        "gateway_image_build_duration_seconds",
        "Time from the begin of the upload until the image build has finished, by mode";
    pub image_build_mismatches: Counter = Counter::default(),
        "gateway_image_build_mismatches",
        "Image builds of a target that exists with another build context";
    /// By `resource`: the age of what the index says at most.
    pub watch_age: Family<Labels<1>, Gauge> = Family::default(),
        "gateway_watch_age_seconds",
        "Time since the last response of the API server on a watch of a gateway";
}

impl GatewayMetrics {
    pub fn record_response_head(&self, target: &'static str, took: Duration) {
        let seconds = self.seconds.get_or_create(&[("target", target)]);
        seconds.observe(took.as_secs_f64());
    }

    pub fn record_end(&self, target: &'static str, outcome: &'static str) {
        let labels = [("target", target), ("outcome", outcome)];
        self.requests.get_or_create(&labels).inc();
    }

    pub fn requests(&self, target: &'static str, outcome: &'static str) -> u64 {
        let labels = [("target", target), ("outcome", outcome)];
        self.requests.get_or_create(&labels).get()
    }

    /// Records an image build that the gateway has ended: `succeeded`, `failed`, `existing`, `rejected`
    /// for a bad upload, or `unknown` if its end could not be written. The controller records those
    /// that it runs in Pods.
    pub fn record_image_build(&self, mode: &'static str, result: &'static str, took: Duration) {
        let labels = [("mode", mode), ("result", result)];
        self.image_builds.get_or_create(&labels).inc();
        let seconds = self.image_build_seconds.get_or_create(&[("mode", mode)]);
        seconds.observe(took.as_secs_f64());
    }

    pub fn image_builds(&self, mode: &'static str, result: &'static str) -> u64 {
        let labels = [("mode", mode), ("result", result)];
        self.image_builds.get_or_create(&labels).get()
    }

    /// Records an attempt to wake a sandbox: `ok` or `error`.
    pub fn record_wake(&self, outcome: &'static str) {
        self.wakes.get_or_create(&[("outcome", outcome)]).inc();
    }

    pub fn wakes(&self, outcome: &'static str) -> u64 {
        self.wakes.get_or_create(&[("outcome", outcome)]).get()
    }
}
