//! A gauge that counts what exists: raised for as long as the value lives, however it ends.

use prometheus_client::metrics::gauge::Gauge;

/// One of what is counted.
#[derive(Debug)]
pub struct Raised(Gauge);

impl Raised {
    pub fn new(gauge: &Gauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for Raised {
    fn drop(&mut self) {
        self.0.dec();
    }
}
