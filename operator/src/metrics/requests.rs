//! Requests to the Kubernetes API, as the client saw them end.

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
pub struct RequestMetrics {
    total: Family<RequestLabels, Counter>,
    seconds: Family<DurationLabels, Histogram>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    verb: Verb,
    resource: &'static str,
    outcome: Outcome,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DurationLabels {
    verb: Verb,
    resource: &'static str,
}

/// What a request asks for, in the words of Kubernetes.
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

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    Ok,
    Forbidden,
    NotFound,
    Conflict,
    Invalid,
    Throttled,
    ClientError,
    ServerError,
    /// No answer: no connection, a broken one, or none in time.
    NoAnswer,
    /// Whoever asked no longer waits.
    Abandoned,
    /// A write of a process that no longer leads; it was not sent.
    Fenced,
}

impl RequestMetrics {
    /// Notes the end of a request: of its head for a watch.
    pub fn note(&self, verb: Verb, resource: &'static str, outcome: Outcome, took: Duration) {
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
            "Time until the Kubernetes API answered, of a watch until it began",
            self.seconds.clone(),
        );
    }
}

impl Default for RequestMetrics {
    fn default() -> Self {
        Self {
            total: Family::default(),
            seconds: Family::new_with_constructor(|| Histogram::new(SECONDS)),
        }
    }
}

impl Verb {
    /// Whether it changes anything.
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

impl Outcome {
    /// What an answer with this status means.
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

impl EncodeLabelValue for Outcome {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> std::fmt::Result {
        self.as_str().encode(encoder)
    }
}
