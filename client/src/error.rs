//! The one error type of this crate. Each text says what failed and what can be done about it.

use std::path::PathBuf;
use std::time::Duration;

use http::StatusCode;

/// Failure of a call.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A setting is missing or malformed; nothing was sent.
    #[error("{0}")]
    Settings(String),
    /// No connection, or it broke. `sent` is true if the request may have been carried out.
    #[error("cannot reach {url}: {reason}; check the address and that the gateway runs")]
    Unreachable {
        url: String,
        reason: String,
        sent: bool,
    },
    /// 401 of the gateway.
    #[error(
        "the gateway does not accept the API key ({0}); check SANDBOX_API_KEY or --api-key-file"
    )]
    Unauthorized(String),
    /// 403 of a sandbox: the key is that of another sandbox, or was rotated.
    #[error("the sandbox does not accept the session key ({0}); look it up again")]
    Forbidden(String),
    #[error("there is no {0}; it may have been stopped, or belong to another API key")]
    NotFound(String),
    /// The server lacks the feature: it is of an earlier version, or the feature is off.
    #[error("{0}")]
    Unsupported(String),
    /// Any other response that is not a success. A retry does not help.
    #[error("{method} {path} was rejected with status {status}: {detail}")]
    Rejected {
        method: String,
        path: String,
        status: StatusCode,
        detail: String,
    },
    /// 503, or a broken connection, until the bound of the retries was reached.
    #[error("the service is not available: {0}; try again later")]
    Unavailable(String),
    /// The start was given up.
    #[error("sandbox {runtime_id} failed: {detail}{}", log_tail(.log))]
    SandboxFailed {
        runtime_id: String,
        detail: String,
        /// End of the output of the failed command; may be empty.
        log: String,
    },
    #[error("sandbox {0} is paused; resume it first")]
    Paused(String),
    #[error("{what} is not done after {} s: {state}", .after.as_secs())]
    Timeout {
        what: String,
        after: Duration,
        state: String,
    },
    /// An action was answered with an error observation.
    #[error("{0}")]
    Action(String),
    /// A response that does not have the documented form.
    #[error("{0} sent a response that is not understood: {1}")]
    Protocol(String, String),
    /// A program that the sandbox cannot start.
    #[error("{0}")]
    NotStarted(String),
    /// The terminal is gone, or its connection broke and cannot be continued without loss.
    #[error("the connection to the program broke and cannot be continued: {0}")]
    Disconnected(String),
    #[error("{}: {source}", .path.display())]
    File {
        path: PathBuf,
        source: std::io::Error,
    },
    /// An archive of a sandbox that would write outside of its destination, or is damaged.
    #[error("the archive from the sandbox is not accepted: {0}")]
    Archive(String),
}

impl Error {
    /// Returns a constructor for failures of this file.
    pub(crate) fn file(path: &std::path::Path) -> impl FnOnce(std::io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self::File { path, source }
    }

    /// True if a later call may succeed without a change by the caller.
    pub fn is_temporary(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Unavailable(_))
    }
}

fn log_tail(log: &str) -> String {
    match log.trim_end() {
        "" => String::new(),
        log => format!("\n{log}"),
    }
}
