//! Health, metrics, traces and, in a gateway, the traffic of a process. One value per process, shared
//! by all its parts.

use std::sync::OnceLock;

use crate::kubernetes::health::Health;
use crate::metrics::Metrics;
use crate::traces::Traces;
use crate::traffic::TrafficEndpoint;

#[derive(Debug, Default)]
pub struct Diagnostics {
    pub metrics: Metrics,
    pub health: Health,
    pub traffic: OnceLock<TrafficEndpoint>,
    /// Empty unless spans are exported.
    pub traces: OnceLock<Traces>,
}
