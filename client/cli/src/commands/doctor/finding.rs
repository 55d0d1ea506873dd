//! Results of checks.

use serde::Serialize;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum State {
    Ok,
    Warning,
    Failed,
    Skipped,
}

/// Result of one check. The ids of checks and the names of fields stay.
#[derive(Debug, Serialize)]
pub(super) struct Finding {
    pub(super) check: &'static str,
    pub(super) state: State,
    #[serde(rename = "finding")]
    pub(super) text: String,
    /// Step that repairs it; empty if there is nothing to do.
    pub(super) action: String,
}

impl Finding {
    pub(super) fn new(check: &'static str, outcome: Outcome) -> Self {
        match outcome {
            Ok(text) => Self {
                check,
                state: State::Ok,
                text,
                action: String::new(),
            },
            Err(problem) => Self {
                check,
                state: problem.state,
                text: problem.finding,
                action: problem.action,
            },
        }
    }

    pub(super) fn is_failed(&self) -> bool {
        self.state == State::Failed
    }
}

/// Sentence about a healthy thing, or a problem.
pub(super) type Outcome = Result<String, Problem>;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) state: State,
    pub(super) finding: String,
    pub(super) action: String,
}

pub(super) fn failed(finding: impl Into<String>, action: impl Into<String>) -> Problem {
    problem(State::Failed, finding.into(), action.into())
}

pub(super) fn warning(finding: impl Into<String>, action: impl Into<String>) -> Problem {
    problem(State::Warning, finding.into(), action.into())
}

pub(super) fn skipped(reason: impl Into<String>) -> Problem {
    problem(State::Skipped, reason.into(), String::new())
}

fn problem(state: State, finding: String, action: String) -> Problem {
    Problem {
        state,
        finding,
        action,
    }
}
