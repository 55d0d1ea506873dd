//! Export of traces, which the standard environment variables of OpenTelemetry set up.

use shared::diagnostics::Diagnostics;
use shared::traces::{TraceSettings, Traces};

/// Starts the export if the environment names a collector. `service` is the default service name.
pub(super) fn open(diagnostics: &Diagnostics, service: &'static str) -> anyhow::Result<()> {
    if let Some(settings) = TraceSettings::from_environment()? {
        let traces = Traces::open(settings, service, &diagnostics.metrics)?;
        // Not set anywhere else, so it was empty.
        let _ = diagnostics.traces.set(traces);
    }
    Ok(())
}

/// Exports the last spans, for at most two seconds.
pub(super) async fn close(diagnostics: &Diagnostics) {
    if let Some(traces) = diagnostics.traces.get() {
        traces.close().await;
    }
}
