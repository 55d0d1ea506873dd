//! What a process tells about itself: metrics, and whether it is alive and ready. One per process,
//! shared by everything in it.

use crate::kubernetes::health::Health;
use crate::metrics::Metrics;

/// Metrics and health of a process.
#[derive(Debug, Default)]
pub struct Vitals {
    pub metrics: Metrics,
    pub health: Health,
}
