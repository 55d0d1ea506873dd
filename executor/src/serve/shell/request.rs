//! Requests to a session and their outcomes.

use tokio::time::Instant;

use super::prompt_report::PromptReport;

#[derive(Debug, Clone)]
pub(in crate::serve) struct Request {
    /// The command without surrounding blanks.
    pub(in crate::serve) command: String,
    pub(in crate::serve) is_input: bool,
    /// Disables the soft timeout for commands without output.
    pub(in crate::serve) blocking: bool,
    pub(in crate::serve) timeout: Option<f64>,
    /// Rejects several commands on separate lines.
    pub(in crate::serve) only_one: bool,
}

#[derive(Debug)]
pub(in crate::serve) enum RunResponse {
    Outcome(CommandOutcome),
    /// Nothing was run; the text states the reason.
    Refused(String),
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::serve) struct CommandOutcome {
    pub(in crate::serve) content: String,
    pub(in crate::serve) prefix: String,
    pub(in crate::serve) suffix: String,
    /// True if the request needs a running command and there is none.
    pub(in crate::serve) no_command_running: bool,
    /// Report of the prompt after the command; present if the command has ended.
    pub(in crate::serve) report: Option<PromptReport>,
    /// True if the command is still running.
    pub(in crate::serve) timed_out: bool,
}

/// Signs of life of a command.
#[derive(Debug)]
pub(in crate::serve) struct CommandUsage {
    pub(in crate::serve) last_output: Instant,
    /// CPU time of all processes of the shell.
    pub(in crate::serve) cpu_ticks: u64,
}
