//! Which change of a status is worth an event: a pure function of the status before and after it
//! was written, so that nothing is announced that did not come true, and nothing twice.

use crds::conditions::Reason;
use crds::sandbox::{PauseReason, Phase, SandboxStatus};

/// Longest note that the API server takes, in bytes.
const LONGEST_NOTE: usize = 1024;

/// What an event says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Announcement {
    pub(super) warning: bool,
    pub(super) reason: &'static str,
    pub(super) action: &'static str,
    pub(super) note: Option<String>,
}

/// What became true between two statuses of one object. A start that goes well is announced once,
/// by `Ready`.
pub(super) fn announcements(before: &SandboxStatus, after: &SandboxStatus) -> Vec<Announcement> {
    let all = [
        resumed(before, after),
        replaced(before, after),
        restarted(before, after),
        hindered(before, after),
        arrived(before, after),
    ];
    all.into_iter().flatten().collect()
}

/// A sandbox at rest is being started again.
fn resumed(before: &SandboxStatus, after: &SandboxStatus) -> Option<Announcement> {
    let note = match before.phase {
        Phase::Pausing | Phase::Paused => "a paused sandbox is started again",
        Phase::Stopped => "a stopped sandbox is started again",
        Phase::Failed => "a failed sandbox is started again",
        _ => return None,
    };
    let starts = matches!(
        after.phase,
        Phase::Pending | Phase::Starting | Phase::Running
    );
    starts.then(|| normal("Resumed", "Start", note.into()))
}

/// Its Pod was lost.
fn replaced(before: &SandboxStatus, after: &SandboxStatus) -> Option<Announcement> {
    let lost = |status: &SandboxStatus| status.reason == Some(Reason::PodReplaced);
    let news = lost(after) && (!lost(before) || before.message != after.message);
    news.then(|| warning("PodReplaced", "ReplacePod", message(after)))
}

/// Its command ended and was started again.
fn restarted(before: &SandboxStatus, after: &SandboxStatus) -> Option<Announcement> {
    let lost = [before, after].map(|s| s.reason == Some(Reason::PodReplaced));
    let more = after.restarts.count > before.restarts.count;
    if !more || lost.contains(&true) || is_over(after.phase) {
        return None;
    }
    let said = after.message.clone();
    let said = said.filter(|_| after.reason == Some(Reason::Restarting));
    let note = said.unwrap_or_else(|| {
        let why = after.restarts.reasons.last();
        let why = why.map_or("unknown", String::as_str);
        format!("the command ended ({why}) and is started again")
    });
    Some(warning("Restarted", "Restart", note))
}

/// Something keeps it from starting.
fn hindered(before: &SandboxStatus, after: &SandboxStatus) -> Option<Announcement> {
    let reason = after.reason.filter(|r| before.reason != Some(*r))?;
    let hinders = matches!(
        reason,
        Reason::Unschedulable
            | Reason::ImagePull
            | Reason::ContainerConfig
            | Reason::NodeNotReady
            | Reason::PoolNotFound
            | Reason::Refused
            | Reason::QuotaExceeded
            | Reason::NameTaken
    );
    let waits = matches!(after.phase, Phase::Pending | Phase::Starting);
    (hinders && waits).then(|| warning(reason.as_str(), "Start", message(after)))
}

/// It has reached a phase in which it may stay.
fn arrived(before: &SandboxStatus, after: &SandboxStatus) -> Option<Announcement> {
    if before.phase == after.phase {
        return None;
    }
    match after.phase {
        Phase::Running => Some(normal("Ready", "Start", ready(after))),
        Phase::Paused => Some(normal("Paused", "Pause", paused(after))),
        Phase::Stopped => Some(normal(stop_reason(after), "Stop", stopped(after))),
        Phase::Failed => Some(warning("Failed", "Fail", failed(after))),
        Phase::Pending | Phase::Starting | Phase::Pausing => None,
    }
}

fn ready(after: &SandboxStatus) -> String {
    match &after.node_name {
        Some(node) => format!("the sandbox is ready; it runs on node {node}"),
        None => "the sandbox is ready".into(),
    }
}

fn paused(after: &SandboxStatus) -> String {
    let why = match after.pause_reason {
        Some(PauseReason::Idle) => "nothing happened in it for its idle timeout",
        Some(PauseReason::MaxRunTime) => "it reached its longest run time",
        Some(PauseReason::Requested) | None => "as requested",
    };
    let files = match after.workspace_claim {
        Some(_) => "the workspace is kept",
        None => "its files are gone, because it has no workspace",
    };
    format!("compute is released, {files}: {why}")
}

fn stop_reason(after: &SandboxStatus) -> &'static str {
    match after.reason.map(Reason::as_str) {
        Some("Expired") => "Expired",
        _ => "Stopped",
    }
}

fn stopped(after: &SandboxStatus) -> String {
    match stop_reason(after) {
        "Expired" => "at rest for too long: compute and workspace are released".into(),
        _ => "compute and workspace are released, as requested".into(),
    }
}

fn failed(after: &SandboxStatus) -> String {
    let reason = after.reason.map_or("Unknown", Reason::as_str);
    match &after.message {
        Some(message) => format!("{reason}: {message}"),
        None => reason.to_owned(),
    }
}

fn is_over(phase: Phase) -> bool {
    matches!(
        phase,
        Phase::Failed | Phase::Stopped | Phase::Paused | Phase::Pausing
    )
}

fn message(status: &SandboxStatus) -> String {
    status.message.clone().unwrap_or_default()
}

fn normal(reason: &'static str, action: &'static str, note: String) -> Announcement {
    Announcement {
        warning: false,
        reason,
        action,
        note: cut(note),
    }
}

fn warning(reason: &'static str, action: &'static str, note: String) -> Announcement {
    Announcement {
        warning: true,
        ..normal(reason, action, note)
    }
}

fn cut(mut note: String) -> Option<String> {
    note.truncate(note.floor_char_boundary(LONGEST_NOTE));
    (!note.is_empty()).then_some(note)
}
