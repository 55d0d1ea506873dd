//! A gauge that counts live values: incremented for as long as the guard lives, however it ends.

use prometheus_client::metrics::gauge::Gauge;

/// One counted value.
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
