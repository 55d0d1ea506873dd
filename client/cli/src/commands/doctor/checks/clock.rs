//! Clock of this machine beside that of the API server.

use super::super::facts::Facts;
use super::super::finding::{Outcome, failed, skipped, warning};

const WARNING_SECONDS: f64 = 30.0;
const FAILED_SECONDS: f64 = 300.0;
const ACTION: &str = "synchronize both clocks with NTP";

pub(super) fn check(facts: &Facts) -> Outcome {
    let ahead = facts
        .clock_ahead
        .ok_or_else(|| skipped("the API server sent no time"))?;
    let finding = format!(
        "the clocks of this machine and the API server differ by {:.0} s",
        ahead.abs()
    );
    match ahead.abs() {
        FAILED_SECONDS.. => Err(failed(finding, ACTION)),
        WARNING_SECONDS.. => Err(warning(finding, ACTION)),
        _ => Ok("the clock is that of the API server".into()),
    }
}
