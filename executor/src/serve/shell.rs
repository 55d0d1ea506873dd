//! The agent's shell: one persistent interactive bash on a pseudo-terminal, or a POSIX shell in
//! images without bash.
//!
//! `terminal` owns the process and reads its output; `session` types commands and composes the
//! responses. Nothing polls: the shell reports the start and the end of each command.

mod agent_view;
mod bash_rc;
mod display;
mod grid;
mod key_names;
mod messages;
mod posix_rc;
mod program;
mod prompt_report;
#[cfg(any(test, feature = "fuzzing"))]
pub(super) mod properties;
mod row;
mod scanner;
mod scratch_dir;
mod screen;
mod session;
mod syntax;
mod terminal;

pub(super) use self::prompt_report::PromptReport;
pub(super) use self::session::{CommandOutcome, CommandUsage, Request, RunResponse, Session};
pub(super) use self::terminal::{LaunchContext, ShellError};
