//! Queue between the ends of spans and their export, with a bound that is counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use opentelemetry::Context;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, Span, SpanData, SpanExporter, SpanProcessor,
};

use super::counters::SpanCounters;

/// Maximum of ended spans that wait for their export, about 1 KiB each.
const MAX_QUEUED_SPANS: usize = 2048;
const MAX_BATCH_SPANS: usize = 512;
/// Time between two exports, unless a batch is full earlier.
const EXPORT_INTERVAL: Duration = Duration::from_secs(5);

/// Passes spans to the exporter in batches. The library drops spans beyond its queue without telling;
/// this bound of the same size is reached first.
#[derive(Debug)]
pub(super) struct BoundedProcessor {
    batches: BatchSpanProcessor,
    queued: Arc<AtomicUsize>,
    counters: SpanCounters,
}

impl BoundedProcessor {
    pub(super) fn new(exporter: impl SpanExporter + 'static, counters: SpanCounters) -> Self {
        let queued = Arc::new(AtomicUsize::new(0));
        let exporter = CountingExporter {
            exporter,
            queued: queued.clone(),
            counters: counters.clone(),
            is_failing: AtomicBool::new(false),
        };
        let bounds = BatchConfigBuilder::default()
            .with_max_queue_size(MAX_QUEUED_SPANS)
            .with_max_export_batch_size(MAX_BATCH_SPANS)
            .with_scheduled_delay(EXPORT_INTERVAL)
            .build();
        Self {
            batches: BatchSpanProcessor::new(exporter, bounds),
            queued,
            counters,
        }
    }
}

impl SpanProcessor for BoundedProcessor {
    fn on_start(&self, _: &mut Span, _: &Context) {}

    fn on_end(&self, span: SpanData) {
        if self.queued.fetch_add(1, Ordering::Relaxed) >= MAX_QUEUED_SPANS {
            self.queued.fetch_sub(1, Ordering::Relaxed);
            self.counters.dropped.inc();
            return;
        }
        self.batches.on_end(span);
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.batches.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.batches.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.batches.set_resource(resource);
    }
}

/// Counts the spans of each batch, and logs the first failure and the end of failures.
#[derive(Debug)]
struct CountingExporter<E> {
    exporter: E,
    queued: Arc<AtomicUsize>,
    counters: SpanCounters,
    is_failing: AtomicBool,
}

impl<E: SpanExporter> SpanExporter for CountingExporter<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let count = batch.len();
        self.queued.fetch_sub(count, Ordering::Relaxed);
        let result = self.exporter.export(batch).await;
        let was_failing = self.is_failing.swap(result.is_err(), Ordering::Relaxed);
        let counter = match &result {
            Ok(()) => {
                if was_failing {
                    tracing::info!("the collector takes spans again");
                }
                &self.counters.exported
            }
            Err(error) => {
                if !was_failing {
                    tracing::warn!(%error, "spans were not exported");
                }
                &self.counters.failed
            }
        };
        counter.inc_by(u64::try_from(count).unwrap_or(u64::MAX));
        result
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn shutdown(&self) -> OTelSdkResult {
        self.exporter.shutdown()
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.exporter.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}
