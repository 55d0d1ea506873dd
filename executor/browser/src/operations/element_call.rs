//! One operation on an element: finds it, and counts tries until one succeeds or the time is up
//! (section 2.4).

use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::bid::Bid;
use super::call_log::{CallLog, Words};
use super::locate::{LocateError, Target};
use super::page::{Deadline, Page, closed_error};
use super::scripts;
use crate::cdp::CdpError;
use crate::error::StepError;
use crate::tabs::{Element, ScriptError};

/// Time of an operation on an element.
const TIMEOUT: Duration = Duration::from_millis(500);
/// Time beyond that for a try that has begun: a busy machine takes part of the time for itself.
const GRACE: Duration = Duration::from_millis(500);
/// Time in which a failed operation may describe its element at least.
const PREVIEW_TIMEOUT: Duration = Duration::from_millis(100);
/// Waits between tries, in milliseconds; the last one repeats.
const RETRY_DELAYS: [u64; 4] = [0, 20, 100, 100];

/// Failure of a try.
#[derive(Debug, thiserror::Error)]
pub(super) enum TryError {
    /// The element is not ready, for a reason in the words of the log.
    #[error("{0}")]
    Retry(String),
    /// The element is unsuitable, for a reason in the words of the error.
    #[error("{0}")]
    Refuse(String),
    #[error("the element is no longer in the document")]
    Gone,
    #[error(transparent)]
    Script(#[from] ScriptError),
}

impl From<CdpError> for TryError {
    fn from(error: CdpError) -> Self {
        Self::Script(error.into())
    }
}

/// Answer of a page script.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
enum Reply<T> {
    Done(T),
    Retry(String),
    Refuse(String),
    Gone,
}

/// An operation in progress. After each try, its result goes to `conclude`.
#[derive(Debug)]
pub(super) struct ElementCall<'a> {
    pub(super) page: &'a Page,
    pub(super) target: Target,
    /// Number of tries so far.
    pub(super) tries: usize,
    deadline: Deadline,
    bid: Bid<'a>,
    words: Words,
    note: Option<String>,
    reason: Option<String>,
}

impl<'a> ElementCall<'a> {
    /// Finds the element, which must be there already.
    pub(super) async fn begin(
        page: &'a Page,
        bid: &'a str,
        words: Words,
    ) -> Result<Self, StepError> {
        let deadline = Deadline::after(TIMEOUT).with_grace(GRACE);
        let id = Bid::split(bid);
        let is_missing = |error: &LocateError| matches!(error, LocateError::Missing);
        let found = page.locate_soon(&id, deadline, is_missing).await;
        let target = found.map_err(|error| match error {
            _ if page.is_gone() => closed_error("Locator.count"),
            error if error.is_final() => locate_error(error, words, &id),
            _ => {
                let message = format!("Could not find element with bid \"{bid}\"");
                StepError::new("ValueError", message)
            }
        })?;
        Ok(Self {
            page,
            target,
            tries: 0,
            deadline,
            bid: id,
            words,
            note: None,
            reason: None,
        })
    }

    /// Adds a line about the arguments to the log of a failure.
    pub(super) fn with_note(mut self, note: String) -> Self {
        self.note = Some(note);
        self
    }

    /// Returns the result of a try, or `None` when another try is due.
    pub(super) async fn conclude<T>(
        &mut self,
        result: Result<T, TryError>,
    ) -> Result<Option<T>, StepError> {
        match result {
            Ok(result) => return Ok(Some(result)),
            Err(_) if self.page.is_gone() => return Err(closed_error(self.words.method)),
            Err(TryError::Retry(reason)) => self.reason = Some(reason),
            Err(TryError::Refuse(reason)) => {
                self.reason = None;
                return Err(self.log().await.error(&reason));
            }
            Err(TryError::Script(error)) if !error.is_transient() => {
                return Err(self.log().await.of_script(&error, TIMEOUT));
            }
            Err(TryError::Gone | TryError::Script(_)) => self.find_again().await?,
        }
        self.deadline.pause(&RETRY_DELAYS, self.tries).await;
        self.tries += 1;
        if self.deadline.has_passed() {
            return Err(self.log().await.timeout(TIMEOUT));
        }
        Ok(None)
    }

    /// Waits until the element is in the document again.
    async fn find_again(&mut self) -> Result<(), StepError> {
        self.reason = Some("element was detached from the DOM, retrying".into());
        let finding = self.page.locate_soon(&self.bid, self.deadline, |_| false);
        match finding.await {
            Ok(target) => self.target = target,
            Err(_) if self.page.is_gone() => return Err(closed_error(self.words.method)),
            Err(error) if error.is_final() && !self.deadline.has_passed() => {
                return Err(locate_error(error, self.words, &self.bid));
            }
            // The time is up.
            Err(_) => {}
        }
        Ok(())
    }

    /// Calls a function with the element that answers whether it is done.
    pub(super) async fn try_script<R: DeserializeOwned>(
        &self,
        function: &str,
        arguments: &[Value],
    ) -> Result<R, TryError> {
        self.try_script_on(&self.target.element, function, arguments)
            .await
    }

    pub(super) async fn try_script_on<R: DeserializeOwned>(
        &self,
        element: &Element,
        function: &str,
        arguments: &[Value],
    ) -> Result<R, TryError> {
        match element.call(self.limit(), function, arguments).await? {
            Reply::Done(result) => Ok(result),
            Reply::Retry(reason) => Err(TryError::Retry(reason)),
            Reply::Refuse(reason) => Err(TryError::Refuse(reason)),
            Reply::Gone => Err(TryError::Gone),
        }
    }

    /// Time for a call of a try.
    pub(super) fn limit(&self) -> Duration {
        self.deadline.call_limit()
    }

    /// The log of a failure, which describes the element if its page answers.
    async fn log(&self) -> CallLog {
        let limit = self.limit().max(PREVIEW_TIMEOUT);
        let describing = self.target.element.call(limit, scripts::PREVIEW, &[]);
        CallLog {
            words: self.words,
            locator: self.bid.locator(),
            element: describing.await.ok(),
            note: self.note.clone(),
            reason: self.reason.clone(),
        }
    }
}

fn locate_error(error: LocateError, words: Words, bid: &Bid<'_>) -> StepError {
    let log = CallLog {
        words,
        locator: bid.locator(),
        element: None,
        note: None,
        reason: None,
    };
    match error {
        LocateError::Ambiguous { .. } => {
            log.error(&format!("Error: strict mode violation: {error}"))
        }
        LocateError::NotFrame { bid, preview } => StepError::new(
            "Error",
            format!(
                "Locator.count: Error: Selector \"internal:testid=[bid=\"{bid}\"s] >> :scope\" \
                 resolved to {preview}, <iframe> was expected"
            ),
        ),
        LocateError::Script(error) => log.of_script(&error, TIMEOUT),
        LocateError::Missing => log.timeout(TIMEOUT),
    }
}
