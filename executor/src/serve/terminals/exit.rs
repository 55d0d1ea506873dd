//! End of the program of a terminal, with the names that Kubernetes and Docker use for signals.

use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

use serde::Serialize;

/// Names of the signals from 1 on.
const SIGNALS: [&str; 31] = [
    "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2",
    "PIPE", "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG",
    "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
];
/// Name of a real-time signal.
const REAL_TIME: &str = "RT";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::serve) enum Exit {
    Code(i32),
    /// Name without `SIG`.
    Signal(&'static str),
}

impl Exit {
    pub(super) fn from_status(status: ExitStatus) -> Self {
        match status.signal() {
            Some(number) => Self::Signal(signal_name(number)),
            None => Self::Code(status.code().unwrap_or(-1)),
        }
    }

    pub(super) fn code(self) -> Option<i32> {
        match self {
            Self::Code(code) => Some(code),
            Self::Signal(_) => None,
        }
    }

    pub(super) fn signal(self) -> Option<&'static str> {
        match self {
            Self::Code(_) => None,
            Self::Signal(name) => Some(name),
        }
    }
}

fn signal_name(number: i32) -> &'static str {
    let index = usize::try_from(number).ok().and_then(|n| n.checked_sub(1));
    let name = index.and_then(|index| SIGNALS.get(index));
    name.copied().unwrap_or(REAL_TIME)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn end_is_a_code_or_the_name_of_a_signal() {
        let exit = |raw| Exit::from_status(ExitStatus::from_raw(raw));
        assert_eq!(exit(3 << 8), Exit::Code(3));
        for (number, name) in [
            (1, "HUP"),
            (9, "KILL"),
            (15, "TERM"),
            (31, "SYS"),
            (34, "RT"),
        ] {
            assert_eq!(exit(number), Exit::Signal(name));
        }
    }
}
