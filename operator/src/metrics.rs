//! Metrics of a process, in the text form of Prometheus. Labels are enums or fixed words: never
//! names of objects or texts of errors, so the number of series is bounded by the code.

pub mod passes;
pub mod requests;

use std::fmt;

use parking_lot::Mutex;
use prometheus_client::encoding::text;
use prometheus_client::registry::Registry;

pub use passes::PassMetrics;
pub use requests::RequestMetrics;

/// Content type of [`Metrics::encode`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// First word of every metric's name.
const PREFIX: &str = "sandbox_operator";

/// Bounds in seconds of what takes from a millisecond to minutes.
pub(crate) const SECONDS: [f64; 17] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
    300.0, 900.0,
];

/// All metrics of a process. What every role has is here; a role adds its own.
pub struct Metrics {
    registry: Mutex<Registry>,
    refreshers: Mutex<Vec<Refresh>>,
    pub requests: RequestMetrics,
}

/// Sets gauges to the state of the moment.
type Refresh = Box<dyn Fn() + Send + Sync>;

impl Metrics {
    /// Adds metrics of a role to the registry.
    pub fn add(&self, register: impl FnOnce(&mut Registry)) {
        register(&mut self.registry.lock());
    }

    /// Has gauges set whenever the metrics are read: cheaper than keeping them up to date.
    pub fn before_each_read(&self, refresh: impl Fn() + Send + Sync + 'static) {
        self.refreshers.lock().push(Box::new(refresh));
    }

    /// All metrics in the text form of `OpenMetrics`.
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
        let requests = RequestMetrics::default();
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

    use super::requests::{Outcome, Verb};
    use super::*;

    #[test]
    fn gauges_are_set_when_they_are_read() {
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
    fn requests_are_counted_by_verb_resource_and_outcome() {
        let metrics = Metrics::default();
        let took = Duration::from_millis(3);
        metrics
            .requests
            .note(Verb::Create, "pods", Outcome::Ok, took);
        metrics
            .requests
            .note(Verb::Create, "pods", Outcome::Conflict, took);
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
