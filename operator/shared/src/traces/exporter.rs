//! The OTLP exporter of the library, over the HTTP client of this project.

use std::time::Duration;

use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig as _, WithHttpConfig as _};

use super::TraceSettings;
use super::http_client::CollectorClient;

/// Time for all attempts to export one batch.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) fn build(
    settings: &TraceSettings,
    client: CollectorClient,
) -> Result<SpanExporter, String> {
    SpanExporter::builder()
        .with_http()
        .with_protocol(Protocol::HttpBinary)
        .with_endpoint(&settings.endpoint)
        .with_headers(settings.headers.clone())
        .with_timeout(EXPORT_TIMEOUT)
        .with_http_client(client)
        .build()
        .map_err(|error| error.to_string())
}
