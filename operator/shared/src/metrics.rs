//! Metrics of a process in the Prometheus text format. Label values are enums or constants, never
//! names of objects or error texts, so that the code bounds the number of series.

/// Declares the metrics of a role: its fields, each with initial value, name and help.
macro_rules! role_metrics {
    ($(#[$doc:meta])* $role:ident: $(
        $(#[$of:meta])* $reach:vis $field:ident: $kind:ty = $new:expr, $name:literal, $help:literal;
    )*) => {
        $(#[$doc])*
        #[derive(Debug, Clone)]
        pub struct $role {
            $($(#[$of])* $reach $field: $kind,)*
        }

        impl $role {
            /// Names of all metrics, without the prefix and the suffixes of the text format.
            pub const NAMES: &[&str] = &[$($name),*];

            /// Registers all metrics.
            pub fn register(&self, registry: &mut prometheus_client::registry::Registry) {
                $(registry.register($name, $help, self.$field.clone());)*
            }
        }

        impl Default for $role {
            fn default() -> Self {
                Self { $($field: $new,)* }
            }
        }
    };
}

pub mod controller;
pub mod gateway;

use std::fmt;
use std::time::Duration;

use http::StatusCode;
use parking_lot::Mutex;
use prometheus_client::encoding::text;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry};

pub use controller::ControllerMetrics;
pub use gateway::GatewayMetrics;

/// Content type of [`Metrics::encode`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Prefix of every metric name.
const PREFIX: &str = "sandbox_operator";

/// Histogram buckets in seconds, from a millisecond to minutes.
const SECONDS: [f64; 17] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
    300.0, 900.0,
];

/// Names and values of `N` labels.
pub type Labels<const N: usize> = [(&'static str, &'static str); N];

/// Histograms of durations by `N` labels.
type DurationFamily<const N: usize> = Family<Labels<N>, Histogram>;

/// All metrics of a process. Each role adds its own.
#[derive(derive_more::Debug)]
#[debug("Metrics(..)")]
pub struct Metrics {
    registry: Mutex<Registry>,
    refreshers: Mutex<Vec<Refresh>>,
    ready: Gauge,
    kubernetes_requests: Family<Labels<3>, Counter>,
    kubernetes_seconds: DurationFamily<2>,
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

    /// Sets whether the process is ready, as `/readyz` says it.
    pub fn record_readiness(&self, is_ready: bool) {
        self.ready.set(is_ready.into());
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

    /// Records the end of a request to the Kubernetes API; for a watch, of its response head.
    pub fn record_kubernetes_request(
        &self,
        verb: &'static str,
        resource: &'static str,
        outcome: &'static str,
        took: Duration,
    ) {
        let labels = [("verb", verb), ("resource", resource)];
        let seconds = self.kubernetes_seconds.get_or_create(&labels);
        seconds.observe(took.as_secs_f64());
        let labels = [labels[0], labels[1], ("outcome", outcome)];
        self.kubernetes_requests.get_or_create(&labels).inc();
    }
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix(PREFIX);
        let (ready, requests, seconds) = (Gauge::default(), Family::default(), durations());
        let help = "1 if the process is ready, as /readyz says it";
        add(&mut registry, "ready", help, &ready);
        let help = "Requests to the Kubernetes API";
        add(&mut registry, "kubernetes_requests", help, &requests);
        let help = "Latency of Kubernetes API requests; for a watch, until the response head";
        let name = "kubernetes_request_duration_seconds";
        add(&mut registry, name, help, &seconds);
        Self {
            registry: Mutex::new(registry),
            refreshers: Mutex::default(),
            ready,
            kubernetes_requests: requests,
            kubernetes_seconds: seconds,
        }
    }
}

fn add(registry: &mut Registry, name: &str, help: &str, metric: &(impl Metric + Clone)) {
    registry.register(name, help, metric.clone());
}

fn durations<const N: usize>() -> DurationFamily<N> {
    Family::new_with_constructor(|| Histogram::new(SECONDS))
}

/// Outcome label of a response of the API server.
pub(crate) fn outcome_of(status: StatusCode) -> &'static str {
    match status.as_u16() {
        200..400 => "ok",
        401 | 403 => "forbidden",
        404 => "not_found",
        409 | 410 => "conflict",
        400 | 413 | 415 | 422 => "invalid",
        429 => "throttled",
        500.. => "server_error",
        _ => "client_error",
    }
}

/// Counts one live value: the gauge is incremented for as long as the guard lives, however it ends.
#[derive(Debug)]
pub struct GaugeGuard(Gauge);

impl GaugeGuard {
    pub fn new(gauge: &Gauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn refreshes_gauges_before_each_read() {
        let metrics = Metrics::default();
        let gauge = Gauge::<i64>::default();
        metrics.add(|registry| registry.register("level", "Level", gauge.clone()));
        let reads = Arc::new(Mutex::new(0));
        metrics.before_each_read(move || {
            *reads.lock() += 1;
            gauge.set(*reads.lock());
        });
        for line in ["sandbox_operator_level 1\n", "sandbox_operator_level 2\n"] {
            assert!(metrics.encode().unwrap().contains(line), "{line}");
        }
    }
}
