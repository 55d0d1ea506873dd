//! What a process tells about itself: metrics, and whether it is alive and ready. One per process,
//! shared by everything in it.

use std::sync::OnceLock;

use crate::kubernetes::health::Health;
use crate::metrics::Metrics;
use crate::traffic::Desk;

/// Metrics and health of a process, and of a gateway its traffic.
#[derive(Debug, Default)]
pub struct Vitals {
    pub metrics: Metrics,
    pub health: Health,
    pub traffic: OnceLock<Desk>,
}
