//! Forms of the report.

use std::fmt::Write as _;

use serde_json::json;

use super::finding::{Finding, State};
use crate::failure::Failure;
use crate::output::{Format, document};
use crate::text::escape;

pub(super) fn json(findings: &[Finding]) -> Result<String, Failure> {
    let is_healthy = !findings.iter().any(Finding::is_failed);
    document(
        &json!({"healthy": is_healthy, "checks": findings}),
        Format::Json,
    )
}

/// One line per check, and below it the step that repairs it.
pub(super) fn text(findings: &[Finding]) -> String {
    let width = findings.iter().map(|found| found.check.len()).max();
    let width = width.unwrap_or(0);
    let mut text = String::new();
    for found in findings {
        let state = match found.state {
            State::Ok => "ok",
            State::Warning => "warning",
            State::Failed => "FAILED",
            State::Skipped => "skipped",
        };
        let (check, finding) = (found.check, escape(&found.text));
        // Writes to a String do not fail.
        let _ = writeln!(text, "{state:7}   {check:width$}   {finding}");
        if !found.action.is_empty() {
            let _ = writeln!(
                text,
                "{:10}{:width$}   -> {}",
                "",
                "",
                escape(&found.action)
            );
        }
    }
    text
}
