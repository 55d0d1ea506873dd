//! The agent's shell: one persistent interactive bash on a pseudo-terminal.
//!
//! `terminal` owns the process and follows what it writes, `session` decides what to type and
//! what to answer. Nothing polls: the shell itself tells when a command starts and ends.

mod display;
mod grid;
mod keys;
mod messages;
#[cfg(any(test, feature = "fuzzing"))]
pub(super) mod properties;
mod rc;
mod report;
mod row;
mod scanner;
mod scratch;
mod screen;
mod session;
mod syntax;
mod terminal;

pub(super) use self::session::{Answer, Outcome, Request, Session};
pub(super) use self::terminal::{ShellError, Start};
