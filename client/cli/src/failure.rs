//! Failures of the tool itself, and exit codes.

use std::io;

/// Exit code for failures of the tool, as Docker has it.
pub(crate) const TOOL_FAILED: u8 = 125;
/// Exit codes from here on are a signal's number added to 128, as in a shell.
const SIGNAL_BASE: u8 = 128;
const SIGPIPE: u8 = 13;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error(transparent)]
    Client(#[from] client::Error),
    /// Arguments that cannot be carried out.
    #[error("{0}")]
    Usage(String),
    /// Something on this machine, or a program of the tool in the sandbox.
    #[error("{0}")]
    Local(String),
    /// A signal, by its number.
    #[error("interrupted")]
    Interrupted(u8),
    /// The reader of the output has ended.
    #[error("the output was closed")]
    BrokenPipe,
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::BrokenPipe,
            _ => Self::Local(error.to_string()),
        }
    }
}

impl Failure {
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Interrupted(signal) => SIGNAL_BASE + signal,
            Self::BrokenPipe => SIGNAL_BASE + SIGPIPE,
            Self::Client(client::Error::NotStarted(cause)) => not_started(cause),
            _ => TOOL_FAILED,
        }
    }

    /// True if the user has caused it, by Ctrl-C or by closing the output.
    pub(crate) fn is_intended(&self) -> bool {
        matches!(self, Self::Interrupted(_) | Self::BrokenPipe)
    }
}

/// Exit code of a program that could not be started, as of a shell.
fn not_started(cause: &str) -> u8 {
    const NOT_FOUND: &str = "(os error 2)";
    /// Permission denied, as of a directory, and a format that the kernel does not know.
    const NOT_EXECUTABLE: [&str; 2] = ["(os error 13)", "(os error 8)"];
    if cause.ends_with(NOT_FOUND) {
        127
    } else if NOT_EXECUTABLE.iter().any(|end| cause.ends_with(end)) {
        126
    } else {
        TOOL_FAILED
    }
}

/// Exit code of a program in the sandbox.
pub(crate) fn exit_code(status: &client::ExitStatus) -> u8 {
    match status {
        client::ExitStatus::Code(code) => u8::try_from(*code).unwrap_or(u8::MAX),
        client::ExitStatus::Signal(name) => SIGNAL_BASE + signal_number(name),
    }
}

/// Number of a signal on Linux, where sandboxes run. 0 for those that no program ends by.
fn signal_number(name: &str) -> u8 {
    match name.strip_prefix("SIG").unwrap_or(name) {
        "HUP" => 1,
        "INT" => 2,
        "QUIT" => 3,
        "ILL" => 4,
        "TRAP" => 5,
        "ABRT" => 6,
        "BUS" => 7,
        "FPE" => 8,
        "KILL" => 9,
        "USR1" => 10,
        "SEGV" => 11,
        "USR2" => 12,
        "PIPE" => 13,
        "ALRM" => 14,
        "TERM" => 15,
        "XCPU" => 24,
        "XFSZ" => 25,
        "SYS" => 31,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use client::ExitStatus;

    use super::*;

    #[test]
    fn exit_codes_are_those_of_a_shell() {
        assert_eq!(exit_code(&ExitStatus::Code(3)), 3);
        assert_eq!(exit_code(&ExitStatus::Signal("KILL".into())), 137);
        assert_eq!(exit_code(&ExitStatus::Signal("SIGINT".into())), 130);
        assert_eq!(Failure::Interrupted(2).exit_code(), 130);
        assert_eq!(Failure::BrokenPipe.exit_code(), 141);
        let not_started =
            |cause: &str| Failure::Client(client::Error::NotStarted(cause.into())).exit_code();
        let missing = "cannot start \"x\": No such file or directory (os error 2)";
        assert_eq!(not_started(missing), 127);
        let locked = "cannot start \"/etc/passwd\": Permission denied (os error 13)";
        assert_eq!(not_started(locked), 126);
        let text = "cannot start \"./notes.txt\": Exec format error (os error 8)";
        assert_eq!(not_started(text), 126);
        assert_eq!(not_started("command must not be empty"), TOOL_FAILED);
        assert_eq!(Failure::Usage(String::new()).exit_code(), TOOL_FAILED);
    }
}
