//! Level `Memory`: processes that go on after a resume.

/// Reason why processes are not kept; `None` once a dump is possible.
#[expect(
    clippy::unnecessary_wraps,
    reason = "a dump of processes is not there yet"
)]
pub(super) fn obstacle() -> Option<&'static str> {
    Some("this supervisor cannot save memory")
}

/// Reason of a state that is less than `Memory`, with an earlier reason.
pub(super) fn without_processes(obstacle: &str, reason: Option<String>) -> String {
    let text = format!("processes are not kept: {obstacle}");
    match reason {
        Some(reason) => format!("{text}; {reason}"),
        None => text,
    }
}
