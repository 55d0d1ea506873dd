//! Metrics of a process in the Prometheus text format. Label values are enums or constants, never
//! names of objects or error texts, so that the code bounds the number of series.

pub mod controller;
pub mod gateway;
pub mod gauge_guard;
pub mod kubernetes_requests;

use std::fmt;

use parking_lot::Mutex;
use prometheus_client::encoding::text;
use prometheus_client::registry::Registry;

pub use controller::ControllerMetrics;
pub use gateway::GatewayMetrics;
pub use gauge_guard::GaugeGuard;
pub use kubernetes_requests::KubernetesRequestMetrics;

/// Content type of [`Metrics::encode`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Prefix of every metric name.
const PREFIX: &str = "sandbox_operator";

/// Histogram buckets in seconds, from a millisecond to minutes.
pub const SECONDS: [f64; 17] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
    300.0, 900.0,
];

/// All metrics of a process. Each role adds its own.
pub struct Metrics {
    registry: Mutex<Registry>,
    refreshers: Mutex<Vec<Refresh>>,
    pub requests: KubernetesRequestMetrics,
}

/// Callback that sets gauges.
type Refresh = Box<dyn Fn() + Send + Sync>;

impl Metrics {
    /// Adds metrics of a role to the registry.
    pub fn add(&self, register: impl FnOnce(&mut Registry)) {
        register(&mut self.registry.lock());
    }

    /// Sets gauges before each read, which is cheaper than keeping them up to date.
    pub fn before_each_read(&self, refresh: impl Fn() + Send + Sync + 'static) {
        self.refreshers.lock().push(Box::new(refresh));
    }

    /// All metrics in the `OpenMetrics` text format.
    pub fn encode(&self) -> Result<String, fmt::Error> {
        for refresh in self.refreshers.lock().iter() {
            refresh();
        }
        let mut out = String::new();
        text::encode(&mut out, &self.registry.lock())?;
        Ok(out)
    }
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix(PREFIX);
        let requests = KubernetesRequestMetrics::default();
        requests.register(&mut registry);
        Self {
            registry: Mutex::new(registry),
            refreshers: Mutex::default(),
            requests,
        }
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::kubernetes_requests::{RequestOutcome, Verb};
    use super::*;

    #[test]
    fn refreshes_gauges_before_each_read() {
        let metrics = Metrics::default();
        let gauge = prometheus_client::metrics::gauge::Gauge::<i64>::default();
        metrics.add(|registry| registry.register("level", "Level", gauge.clone()));
        let reads = Arc::new(Mutex::new(0));
        metrics.before_each_read(move || {
            *reads.lock() += 1;
            gauge.set(*reads.lock());
        });
        assert!(
            metrics
                .encode()
                .unwrap()
                .contains("sandbox_operator_level 1\n")
        );
        assert!(
            metrics
                .encode()
                .unwrap()
                .contains("sandbox_operator_level 2\n")
        );
    }

    #[test]
    fn counts_requests_by_verb_resource_and_outcome() {
        let metrics = Metrics::default();
        let took = Duration::from_millis(3);
        metrics
            .requests
            .note(Verb::Create, "pods", RequestOutcome::Ok, took);
        metrics
            .requests
            .note(Verb::Create, "pods", RequestOutcome::Conflict, took);
        let text = metrics.encode().unwrap();
        for line in [
            r#"sandbox_operator_kubernetes_requests_total{verb="create",resource="pods",outcome="ok"} 1"#,
            r#"sandbox_operator_kubernetes_requests_total{verb="create",resource="pods",outcome="conflict"} 1"#,
            r#"sandbox_operator_kubernetes_request_duration_seconds_bucket{le="0.005",verb="create",resource="pods"} 2"#,
        ] {
            assert!(text.contains(line), "{line} is missing in\n{text}");
        }
    }
}
