//! One operation on an element: finds it, and tries until a try succeeds or the time is up
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
use crate::error::StepError;
use crate::tabs::{Element, ScriptError};

/// Time of an operation on an element.
const TIMEOUT: Duration = Duration::from_millis(500);
/// Time beyond that in which a failed operation may describe its element.
const PREVIEW_TIMEOUT: Duration = Duration::from_millis(100);
/// Time for an input that begins just before the operation must end.
const INPUT_GRACE: Duration = Duration::from_millis(100);
/// Waits between tries; the last one repeats.
const RETRY_DELAYS: [u64; 4] = [0, 20, 100, 100];
/// Waits before an element that is gone is looked for again; the last one repeats.
const LOCATE_DELAYS: [u64; 4] = [0, 20, 50, 100];

/// Answer of a page script, or of one try.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Reply<T> {
    Done(T),
    /// The element is not ready, for a reason in the words of the log.
    Retry(String),
    /// The element is unsuitable, for a reason in the words of the error.
    Refuse(String),
    /// The element is no longer in the document.
    Gone,
}

impl<T> Reply<T> {
    pub(super) fn map<U>(self, change: impl FnOnce(T) -> U) -> Reply<U> {
        match self {
            Self::Done(result) => Reply::Done(change(result)),
            Self::Retry(reason) => Reply::Retry(reason),
            Self::Refuse(reason) => Reply::Refuse(reason),
            Self::Gone => Reply::Gone,
        }
    }
}

#[derive(Debug)]
pub(super) struct ElementCall<'a> {
    pub(super) page: &'a Page,
    pub(super) deadline: Deadline,
    bid: Bid<'a>,
    words: Words,
    note: Option<String>,
}

impl<'a> ElementCall<'a> {
    /// Finds the element, which must be there already.
    pub(super) async fn begin(
        page: &'a Page,
        bid: &'a str,
        words: Words,
    ) -> Result<(Self, Target), StepError> {
        let call = Self {
            page,
            deadline: Deadline::after(TIMEOUT),
            bid: Bid::split(bid),
            words,
            note: None,
        };
        let found = call
            .locate(|error| matches!(error, LocateError::Missing))
            .await;
        let target = found.map_err(|error| match error {
            _ if page.is_gone() => closed_error("Locator.count"),
            error if error.is_final() => call.locate_error(error),
            _ => {
                let message = format!("Could not find element with bid \"{bid}\"");
                StepError::new("ValueError", message)
            }
        });
        Ok((call, target?))
    }

    /// Adds a line about the arguments to the log of a failure.
    pub(super) fn with_note(mut self, note: String) -> Self {
        self.note = Some(note);
        self
    }

    /// Tries until one try is done.
    pub(super) async fn run<T>(
        &self,
        target: &mut Target,
        attempt: impl AsyncFn(&Target, usize) -> Result<Reply<T>, ScriptError>,
    ) -> Result<T, StepError> {
        let mut reason = None;
        for number in 0.. {
            self.wait_before(number, RETRY_DELAYS).await;
            if self.deadline.has_passed() {
                break;
            }
            match attempt(target, number).await {
                Ok(Reply::Done(result)) => return Ok(result),
                Ok(Reply::Retry(why)) => reason = Some(why),
                Ok(Reply::Refuse(why)) => return Err(self.log(target, None).await.error(&why)),
                Err(_) if self.page.is_gone() => return Err(closed_error(self.words.method)),
                Err(error) if !error.is_transient() => {
                    let log = self.log(target, reason).await;
                    return Err(log.of_script(&error, TIMEOUT.as_millis()));
                }
                Ok(Reply::Gone) | Err(_) => {
                    reason = Some("element was detached from the DOM, retrying".into());
                    match self.locate(|_| false).await {
                        Ok(found) => *target = found,
                        Err(_) if self.page.is_gone() => {
                            return Err(closed_error(self.words.method));
                        }
                        Err(_) if self.deadline.has_passed() => break,
                        Err(error) => return Err(self.locate_error(error)),
                    }
                }
            }
        }
        Err(self.log(target, reason).await.timeout(TIMEOUT.as_millis()))
    }

    /// Calls a function with an element of the operation.
    pub(super) async fn script<R: DeserializeOwned>(
        &self,
        element: &Element,
        function: &str,
        arguments: &[Value],
    ) -> Result<R, ScriptError> {
        let limit = self.deadline.remaining();
        element.call(limit, function, arguments).await
    }

    pub(super) fn input_limit(&self) -> Duration {
        self.deadline.remaining() + INPUT_GRACE
    }

    /// The error for an input that failed between tries.
    pub(super) async fn error(&self, target: &Target, error: &ScriptError) -> StepError {
        let log = self.log(target, None).await;
        log.of_script(error, TIMEOUT.as_millis())
    }

    /// Looks for the element until it is found or an error counts.
    async fn locate(&self, counts: impl Fn(&LocateError) -> bool) -> Result<Target, LocateError> {
        let mut number = 0;
        loop {
            self.wait_before(number, LOCATE_DELAYS).await;
            number += 1;
            match self.page.locate(&self.bid, self.deadline).await {
                Err(error)
                    if !error.is_final()
                        && !counts(&error)
                        && !self.deadline.has_passed()
                        && !self.page.is_gone() => {}
                result => return result,
            }
        }
    }

    fn locate_error(&self, error: LocateError) -> StepError {
        let log = CallLog {
            words: self.words,
            locator: self.bid.locator(),
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
            LocateError::Script(error) => log.of_script(&error, TIMEOUT.as_millis()),
            LocateError::Missing => log.timeout(TIMEOUT.as_millis()),
        }
    }

    /// The log of a failure, which describes the element if its page answers.
    async fn log(&self, target: &Target, reason: Option<String>) -> CallLog {
        let describing = target.element.call(PREVIEW_TIMEOUT, scripts::PREVIEW, &[]);
        CallLog {
            words: self.words,
            locator: self.bid.locator(),
            element: describing.await.ok(),
            note: self.note.clone(),
            reason,
        }
    }

    async fn wait_before(&self, number: usize, delays: [u64; 4]) {
        if number > 0 {
            let delay = Duration::from_millis(delays[(number - 1).min(delays.len() - 1)]);
            tokio::time::sleep(delay.min(self.deadline.remaining())).await;
        }
    }
}
