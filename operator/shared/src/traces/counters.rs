//! Counters of ended spans.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

use crate::metrics::{Labels, Metrics};

/// Ended spans by what became of them.
#[derive(Debug, Clone)]
pub(super) struct SpanCounters {
    /// The collector has them.
    pub(super) exported: Counter,
    /// The collector did not take them.
    pub(super) failed: Counter,
    /// The queue was full.
    pub(super) dropped: Counter,
}

impl SpanCounters {
    pub(super) fn register(metrics: &Metrics) -> Self {
        let spans = Family::<Labels<1>, Counter>::default();
        let of = |outcome| spans.get_or_create_owned(&[("outcome", outcome)]);
        let counters = Self {
            exported: of("exported"),
            failed: of("failed"),
            dropped: of("dropped"),
        };
        metrics.add(|registry| {
            let help = "Ended spans of sampled traces by outcome";
            registry.register("trace_spans", help, spans);
        });
        counters
    }
}
