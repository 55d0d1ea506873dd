//! The agent's shell: one persistent interactive bash on a pseudo-terminal, or a POSIX shell in
//! images without bash.
//!
//! `terminal` owns the process and reads its output; `session` types commands and composes the
//! responses. Nothing polls: the shell reports the start and the end of each command.

mod agent_view;
mod bash_rc;
mod display;
mod error;
mod grid;
mod key_names;
mod launch_context;
mod messages;
mod posix_rc;
mod program;
mod prompt_report;
#[cfg(any(test, feature = "fuzzing"))]
pub(super) mod properties;
mod request;
mod row;
mod scanner;
mod scratch_dir;
mod screen;
mod session;
mod syntax;
mod terminal;

pub(super) use self::error::ShellError;
pub(super) use self::launch_context::LaunchContext;
pub(super) use self::prompt_report::PromptReport;
pub(super) use self::request::{CommandOutcome, CommandUsage, Request, RunResponse};
pub(super) use self::session::Session;
