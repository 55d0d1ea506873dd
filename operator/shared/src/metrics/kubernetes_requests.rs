//! Metrics of requests to the Kubernetes API, as the client sees them.

use std::time::Duration;

use http::StatusCode;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::SECONDS;

/// Counters and durations of requests.
#[derive(Debug, Clone)]
pub struct KubernetesRequestMetrics {
    total: Family<RequestLabels, Counter>,
    seconds: Family<DurationLabels, Histogram>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    verb: Verb,
    resource: &'static str,
    outcome: RequestOutcome,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DurationLabels {
    verb: Verb,
    resource: &'static str,
}

/// Verb of a request, in Kubernetes terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verb {
    Get,
    List,
    Watch,
    Create,
    Update,
    Patch,
    Delete,
    Other,
}

/// Outcome of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RequestOutcome {
    Ok,
    Forbidden,
    NotFound,
    Conflict,
    Invalid,
    Throttled,
    ClientError,
    ServerError,
    /// No response: no connection, a lost one, or a timeout.
    NoAnswer,
    /// The caller no longer waits.
    Abandoned,
    /// A write of a process that is no longer the leader; it was not sent.
    Fenced,
}

impl KubernetesRequestMetrics {
    /// Records the end of a request; for a watch, of its response head.
    pub fn note(
        &self,
        verb: Verb,
        resource: &'static str,
        outcome: RequestOutcome,
        took: Duration,
    ) {
        let labels = RequestLabels {
            verb,
            resource,
            outcome,
        };
        self.total.get_or_create(&labels).inc();
        let labels = DurationLabels { verb, resource };
        self.seconds
            .get_or_create(&labels)
            .observe(took.as_secs_f64());
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "kubernetes_requests",
            "Requests to the Kubernetes API",
            self.total.clone(),
        );
        registry.register(
            "kubernetes_request_duration_seconds",
            "Latency of Kubernetes API requests; for a watch, until the response head",
            self.seconds.clone(),
        );
    }
}

impl Default for KubernetesRequestMetrics {
    fn default() -> Self {
        Self {
            total: Family::default(),
            seconds: Family::new_with_constructor(|| Histogram::new(SECONDS)),
        }
    }
}

impl Verb {
    /// True if the request is a write.
    pub fn is_write(self) -> bool {
        matches!(
            self,
            Self::Create | Self::Update | Self::Patch | Self::Delete
        )
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::Other => "other",
        }
    }
}

impl RequestOutcome {
    /// Outcome for a response status.
    pub fn of(status: StatusCode) -> Self {
        match status.as_u16() {
            200..400 => Self::Ok,
            401 | 403 => Self::Forbidden,
            404 => Self::NotFound,
            409 | 410 => Self::Conflict,
            400 | 413 | 415 | 422 => Self::Invalid,
            429 => Self::Throttled,
            500.. => Self::ServerError,
            _ => Self::ClientError,
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Forbidden => "forbidden",
            Self::NotFound => "not_found",
            Self::Conflict => "conflict",
            Self::Invalid => "invalid",
            Self::Throttled => "throttled",
            Self::ClientError => "client_error",
            Self::ServerError => "server_error",
            Self::NoAnswer => "no_answer",
            Self::Abandoned => "abandoned",
            Self::Fenced => "fenced",
        }
    }
}

impl EncodeLabelValue for Verb {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> std::fmt::Result {
        self.as_str().encode(encoder)
    }
}

impl EncodeLabelValue for RequestOutcome {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> std::fmt::Result {
        self.as_str().encode(encoder)
    }
}
