//! Transport of the `DevTools` protocol over a pipe: no port that others could reach, and Chromium
//! ends with this process. One connection carries flat sessions, one per target.

mod connection;
mod message;
mod pipe;
mod session;

pub use self::connection::{Connection, Event, EventSink};
pub use self::pipe::{Pipe, attach_pipe};
pub use self::session::{Session, SessionId};

/// Time that Chromium has for a call that does not wait for a page.
pub const CALL_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(10);

#[derive(Debug, Clone, thiserror::Error)]
pub enum CdpError {
    #[error("the browser has ended")]
    Closed,
    #[error("the browser did not answer {0} in time")]
    Timeout(&'static str),
    /// Chromium's own words.
    #[error("{message}")]
    Protocol {
        method: &'static str,
        message: String,
    },
    #[error("the answer of the browser to {method} is malformed: {message}")]
    Malformed {
        method: &'static str,
        message: String,
    },
}
