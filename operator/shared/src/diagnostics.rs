//! Health, metrics, traces and, in a gateway, the traffic of a process. One value per process, shared
//! by all its parts.

use std::sync::OnceLock;

use crate::kubernetes::health::Health;
use crate::metrics::Metrics;
use crate::traces::{TraceSettings, Traces, TracesError};
use crate::traffic::TrafficEndpoint;

#[derive(Debug, Default)]
pub struct Diagnostics {
    pub metrics: Metrics,
    pub health: Health,
    pub traffic: OnceLock<TrafficEndpoint>,
    /// Empty unless spans are exported.
    pub traces: OnceLock<Traces>,
}

impl Diagnostics {
    /// Starts the export of spans if the environment names a collector. `service` is the default
    /// service name. Must be called in a tokio runtime, before the parts of the process are made.
    pub fn export_traces(&self, service: &'static str) -> Result<(), TracesError> {
        if let Some(settings) = TraceSettings::from_environment()? {
            let traces = Traces::open(settings, service, &self.metrics)?;
            // Not set anywhere else, so it was empty.
            let _ = self.traces.set(traces);
        }
        Ok(())
    }

    /// Exports the last spans, for at most two seconds. None are made after that.
    pub async fn flush_traces(&self) {
        if let Some(traces) = self.traces.get() {
            traces.close().await;
        }
    }
}
