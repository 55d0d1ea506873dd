//! One watch, as health sees it.

use std::time::Duration;

use kube::runtime::watcher;
use tokio::time::Instant;

use super::STUCK_AFTER;
use crate::kubernetes::words;

/// Longest text of an error that is shown, in bytes.
const LONGEST_TEXT: usize = 300;

/// Why a watch does not work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trouble {
    /// The API server does not know the resource.
    NotInstalled,
    Forbidden(String),
    Unreachable(String),
    /// The API server answered something else.
    Refused(String),
}

/// State of one watch.
#[derive(Debug)]
pub(super) struct Part {
    resource: &'static str,
    /// With its group.
    full: String,
    listed: bool,
    trouble: Option<(Trouble, Instant)>,
    /// When this process last did something for it, or heard of it.
    sign: Instant,
    /// When the API server last said something.
    news: Instant,
}

impl Part {
    pub(super) fn new(resource: &'static str, full: String, now: Instant) -> Self {
        Self {
            resource,
            full,
            listed: false,
            trouble: None,
            sign: now,
            news: now,
        }
    }

    pub(super) fn heard(&mut self, now: Instant) {
        (self.sign, self.news) = (now, now);
        self.trouble = None;
    }

    pub(super) fn tried(&mut self, now: Instant) {
        self.sign = now;
    }

    /// Trouble that goes on counts from its beginning.
    pub(super) fn failed(&mut self, trouble: Trouble, now: Instant) {
        self.sign = now;
        let since = self.trouble.take().map_or(now, |(_, since)| since);
        self.trouble = Some((trouble, since));
    }

    pub(super) fn listed(&mut self) {
        self.listed = true;
    }

    pub(super) fn age(&self, now: Instant) -> Duration {
        now.duration_since(self.news)
    }

    pub(super) fn stuck(&self, now: Instant) -> Option<String> {
        let silent = now.duration_since(self.sign);
        let (resource, seconds) = (self.resource, silent.as_secs());
        (silent > STUCK_AFTER)
            .then(|| format!("the watch of {resource} has been stuck for {seconds} s"))
    }

    pub(super) fn falters(&self) -> bool {
        self.trouble.is_some()
    }

    pub(super) fn unreachable_since(&self) -> Option<(Instant, &str)> {
        match &self.trouble {
            Some((Trouble::Unreachable(error), since)) => Some((*since, error)),
            _ => None,
        }
    }

    pub(super) fn lacks(&self) -> Option<String> {
        let resource = self.resource;
        match &self.trouble {
            Some((Trouble::NotInstalled, _)) => Some(format!("{} is not installed", self.kind())),
            Some((Trouble::Forbidden(why), _)) => Some(format!("may not list {resource}: {why}")),
            Some((Trouble::Refused(why), _)) => Some(format!("cannot list {resource}: {why}")),
            None if !self.listed => Some(format!("{resource} have not been listed yet")),
            // Without the API server everything is missing: that is said once, for all.
            Some((Trouble::Unreachable(_), _)) | None => None,
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

impl From<&watcher::Error> for Trouble {
    fn from(error: &watcher::Error) -> Self {
        let cause = match error {
            watcher::Error::InitialListFailed(cause)
            | watcher::Error::WatchStartFailed(cause)
            | watcher::Error::WatchFailed(cause) => cause,
            watcher::Error::WatchError(status) => return Self::refused(status),
            watcher::Error::NoResourceVersion => {
                return Self::Refused(cut(&words::of_watch(error)));
            }
        };
        Self::from(cause)
    }
}

impl From<&kube::Error> for Trouble {
    fn from(error: &kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self::refused(status),
            other => Self::Unreachable(cut(&words::with_sources(other))),
        }
    }
}

impl Trouble {
    fn refused(status: &kube::core::Status) -> Self {
        match status.code {
            404 => Self::NotInstalled,
            401 | 403 => Self::Forbidden(cut(&words::of_status(status))),
            _ => Self::Refused(cut(&words::of_status(status))),
        }
    }
}

fn cut(text: &str) -> String {
    text[..text.floor_char_boundary(LONGEST_TEXT)].to_owned()
}
