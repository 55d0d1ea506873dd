//! Events of a status change: a pure function of the statuses before and after a write, so that an
//! Event is published once and only after its write.

use crds::conditions::Reason;
use crds::contract::persistence::PersistenceLevel;
use crds::sandbox::{PauseReason, Phase, SandboxStatus};

/// Maximum length of a note in bytes (limit of the API server).
const MAX_NOTE_BYTES: usize = 1024;

/// Content of an Event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct EventContent {
    pub(super) warning: bool,
    pub(super) reason: String,
    pub(super) action: &'static str,
    pub(super) note: Option<String>,
}

/// Events of a change between two statuses of one object. A start without problems has one Event,
/// `Ready`.
pub(super) fn events_for_change(
    before: &SandboxStatus,
    after: &SandboxStatus,
) -> Vec<EventContent> {
    let all = [
        resumed(before, after),
        replaced(before, after),
        restarted(before, after),
        start_blocked(before, after),
        phase_reached(before, after),
        less_restored(before, after),
    ];
    all.into_iter().flatten().collect()
}

/// A paused, stopped or failed sandbox is being started again.
fn resumed(before: &SandboxStatus, after: &SandboxStatus) -> Option<EventContent> {
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

/// The Pod was lost.
fn replaced(before: &SandboxStatus, after: &SandboxStatus) -> Option<EventContent> {
    let lost = |status: &SandboxStatus| status.reason == Some(Reason::PodReplaced);
    let changed = lost(after) && (!lost(before) || before.message != after.message);
    changed.then(|| warning("PodReplaced", "ReplacePod", message(after)))
}

/// The command terminated and was restarted.
fn restarted(before: &SandboxStatus, after: &SandboxStatus) -> Option<EventContent> {
    let lost = [before, after].map(|s| s.reason == Some(Reason::PodReplaced));
    let more = after.restarts.count > before.restarts.count;
    let runs = matches!(
        after.phase,
        Phase::Pending | Phase::Starting | Phase::Running
    );
    if !more || !runs || lost.contains(&true) {
        return None;
    }
    let message = after.message.clone();
    let message = message.filter(|_| after.reason == Some(Reason::Restarting));
    let note = message.unwrap_or_else(|| {
        let why = after
            .restarts
            .reasons
            .last()
            .map_or("unknown", String::as_str);
        format!("the command terminated ({why}) and is being restarted")
    });
    Some(warning("Restarted", "Restart", note))
}

/// A start problem.
fn start_blocked(before: &SandboxStatus, after: &SandboxStatus) -> Option<EventContent> {
    let reason = after.reason.filter(|r| before.reason != Some(*r))?;
    let is_problem = matches!(
        reason,
        Reason::Unschedulable
            | Reason::ImagePullBackOff
            | Reason::CreateContainerConfigError
            | Reason::NodeNotReady
            | Reason::PoolNotFound
            | Reason::SnapshotNotFound
            | Reason::Refused
            | Reason::QuotaExceeded
            | Reason::WaitingForWarmPod
            | Reason::NameTaken
    );
    let is_starting = matches!(after.phase, Phase::Pending | Phase::Starting);
    (is_problem && is_starting).then(|| warning(&reason.to_string(), "Start", message(after)))
}

/// A phase that is not transitional.
fn phase_reached(before: &SandboxStatus, after: &SandboxStatus) -> Option<EventContent> {
    if before.phase == after.phase {
        return None;
    }
    let expired = after.reason == Some(Reason::Expired);
    match after.phase {
        Phase::Running => Some(normal("Ready", "Start", ready(after))),
        Phase::Paused => Some(normal("Paused", "Pause", paused(after))),
        Phase::Stopped if expired => {
            let note = "expired after deletePausedAfter; Pod and workspace are deleted";
            Some(normal("Expired", "Stop", note.into()))
        }
        Phase::Stopped => {
            let note = "Pod and workspace are deleted, as requested";
            Some(normal("Stopped", "Stop", note.into()))
        }
        Phase::Failed => Some(warning("Failed", "Fail", failed(after))),
        Phase::Pending | Phase::Starting | Phase::Pausing => None,
    }
}

/// A start has brought less back than the last pause kept, or than was asked for.
fn less_restored(before: &SandboxStatus, after: &SandboxStatus) -> Option<EventContent> {
    let restored = after.restored.as_ref();
    let restored = restored.filter(|_| before.restored != after.restored)?;
    let reason = restored.reason.as_ref()?;
    let note = format!("{}; not more because {reason}", came_back(restored.level));
    Some(warning("LessRestored", "Start", note))
}

fn ready(after: &SandboxStatus) -> String {
    let mut note = match &after.node_name {
        Some(node) => format!("the sandbox is ready on node {node}"),
        None => "the sandbox is ready".into(),
    };
    if let Some(restored) = &after.restored {
        let came_back = came_back(restored.level);
        note = format!("{note}; {came_back}; incarnation {}", after.incarnation);
    }
    note
}

fn came_back(level: PersistenceLevel) -> &'static str {
    match level {
        PersistenceLevel::Workspace => "the workspace came back",
        PersistenceLevel::Root => "all changed files came back",
        PersistenceLevel::Memory => "all changed files came back, and the processes went on",
    }
}

fn paused(after: &SandboxStatus) -> String {
    let why = match after.pause_reason {
        Some(PauseReason::Idle) => "no activity for idleTimeout",
        Some(PauseReason::MaxRunTime) => "maxRunTime has passed",
        Some(PauseReason::Requested) | None => "as requested",
    };
    let level = after.persisted.as_ref().map(|persisted| persisted.level);
    let files = match (&after.workspace_claim, level.unwrap_or_default()) {
        (None, _) => "files are lost because the sandbox has no workspace",
        (Some(_), PersistenceLevel::Workspace) => "the workspace is kept",
        (Some(_), PersistenceLevel::Root) => "all changed files are kept",
        (Some(_), PersistenceLevel::Memory) => "all changed files and the processes are kept",
    };
    let note = format!("the Pod is deleted, {files}: {why}");
    let less = after
        .persisted
        .as_ref()
        .and_then(|persisted| persisted.reason.as_ref());
    match less {
        Some(less) => format!("{note}; not more is kept because {less}"),
        None => note,
    }
}

fn failed(after: &SandboxStatus) -> String {
    let reason = after
        .reason
        .map_or("Unknown".into(), |reason| reason.to_string());
    match &after.message {
        Some(message) if message.starts_with(&reason) => message.clone(),
        Some(message) => format!("{reason}: {message}"),
        None => reason,
    }
}

fn message(status: &SandboxStatus) -> String {
    status.message.clone().unwrap_or_default()
}

/// An Event without a warning.
pub(super) fn normal(reason: &str, action: &'static str, mut note: String) -> EventContent {
    note.truncate(note.floor_char_boundary(MAX_NOTE_BYTES));
    EventContent {
        warning: false,
        reason: reason.to_owned(),
        action,
        note: Some(note).filter(|note| !note.is_empty()),
    }
}

pub(super) fn warning(reason: &str, action: &'static str, note: String) -> EventContent {
    EventContent {
        warning: true,
        ..normal(reason, action, note)
    }
}
