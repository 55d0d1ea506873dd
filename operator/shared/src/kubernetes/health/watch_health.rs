//! Health of one watch.

use std::time::Duration;

use kube::runtime::watcher;
use tokio::time::Instant;

use super::WATCH_STUCK_TIMEOUT;
use crate::kubernetes::error_text;

/// Maximum length of an error text.
const MAX_ERROR_BYTES: usize = 300;

/// Reason for which a watch fails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchFailure {
    /// The API server does not know the resource.
    NotInstalled,
    Forbidden(String),
    Unreachable(String),
    /// Any other error response of the API server.
    Refused(String),
}

#[derive(Debug)]
pub(super) struct WatchHealth {
    resource: &'static str,
    full: String,
    listed: bool,
    failure: Option<(WatchFailure, Instant)>,
    /// Time of the last attempt or response.
    last_attempt_at: Instant,
    /// Time of the last response.
    last_response_at: Instant,
}

impl WatchHealth {
    pub(super) fn new(resource: &'static str, full: String, now: Instant) -> Self {
        Self {
            resource,
            full,
            listed: false,
            failure: None,
            last_attempt_at: now,
            last_response_at: now,
        }
    }

    pub(super) fn heard(&mut self, now: Instant) {
        (self.last_attempt_at, self.last_response_at) = (now, now);
        self.failure = None;
    }

    pub(super) fn tried(&mut self, now: Instant) {
        self.last_attempt_at = now;
    }

    /// Records a failure. Consecutive failures count from the first.
    pub(super) fn failed(&mut self, failure: WatchFailure, now: Instant) {
        self.last_attempt_at = now;
        let since = self.failure.take().map_or(now, |(_, since)| since);
        self.failure = Some((failure, since));
    }

    pub(super) fn listed(&mut self) {
        self.listed = true;
    }

    pub(super) fn has_listed(&self) -> bool {
        self.listed
    }

    pub(super) fn age(&self, now: Instant) -> Duration {
        now.duration_since(self.last_response_at)
    }

    pub(super) fn stuck(&self, now: Instant) -> Option<String> {
        let silent = now.duration_since(self.last_attempt_at);
        let (resource, seconds) = (self.resource, silent.as_secs());
        (silent > WATCH_STUCK_TIMEOUT)
            .then(|| format!("the watch of {resource} has been stuck for {seconds} s"))
    }

    pub(super) fn is_failing(&self) -> bool {
        self.failure.is_some()
    }

    pub(super) fn unreachable_since(&self) -> Option<(Instant, &str)> {
        match &self.failure {
            Some((WatchFailure::Unreachable(error), since)) => Some((*since, error)),
            _ => None,
        }
    }

    pub(super) fn readiness_failure(&self) -> Option<String> {
        let resource = self.resource;
        match &self.failure {
            Some((WatchFailure::NotInstalled, _)) => {
                Some(format!("{} is not installed", self.kind()))
            }
            Some((WatchFailure::Forbidden(error), _)) => {
                Some(format!("permission denied: list {resource}: {error}"))
            }
            Some((WatchFailure::Refused(error), _)) => {
                Some(format!("cannot list {resource}: {error}"))
            }
            None if !self.listed => Some(format!("{resource} have not been listed yet")),
            // An unreachable API server is reported once for all watches.
            Some((WatchFailure::Unreachable(_), _)) | None => None,
        }
    }

    fn kind(&self) -> String {
        if self.full.contains('.') {
            format!("CRD {}", self.full)
        } else {
            format!("the resource {}", self.full)
        }
    }
}

impl From<&watcher::Error> for WatchFailure {
    fn from(error: &watcher::Error) -> Self {
        let cause = match error {
            watcher::Error::InitialListFailed(cause)
            | watcher::Error::WatchStartFailed(cause)
            | watcher::Error::WatchFailed(cause) => cause,
            watcher::Error::WatchError(status) => return Self::refused(status),
            watcher::Error::NoResourceVersion => {
                return Self::Refused(cut(&error_text::watch_error_text(error)));
            }
        };
        Self::from(cause)
    }
}

impl From<&kube::Error> for WatchFailure {
    fn from(error: &kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self::refused(status),
            other => Self::Unreachable(cut(&error_text::with_sources(other))),
        }
    }
}

impl WatchFailure {
    fn refused(status: &kube::core::Status) -> Self {
        match status.code {
            404 => Self::NotInstalled,
            401 | 403 => Self::Forbidden(cut(&error_text::status_text(status))),
            _ => Self::Refused(cut(&error_text::status_text(status))),
        }
    }
}

fn cut(text: &str) -> String {
    text[..text.floor_char_boundary(MAX_ERROR_BYTES)].to_owned()
}
