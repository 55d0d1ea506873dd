//! Facts about containers: state, last termination and start problems. Termination messages come
//! from the sandbox and are untrusted.

use std::borrow::Cow;

use crds::conditions::Reason;
use crds::contract::path;
use jiff::Timestamp;

use shared::kubernetes::api_messages;
use shared::kubernetes::slim::{SlimContainerStatus, SlimTerminated};

/// Termination reason of the kubelet for an end that it did not see, as after a node restart.
const STATUS_UNKNOWN_REASON: &str = "ContainerStatusUnknown";
/// Maximum length of a termination message.
pub(super) const MAX_MESSAGE_CHARS: usize = 300;

/// State of the sandbox container.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Container {
    pub state: ContainerState,
    /// The startup probe, if there is one, has not passed.
    pub is_starting_up: bool,
    pub restarts: u32,
    /// Image that the container runs, by digest.
    pub image: Option<String>,
    /// Reason of the last termination, for example `OOMKilled` or `exit code 3`.
    pub last_termination: Option<String>,
    /// Termination message of supervisor or executor. A program in the sandbox could have written
    /// it as well.
    pub termination_message: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub enum ContainerState {
    #[default]
    Waiting,
    /// The kubelet delays the next start after repeated terminations.
    BackingOff,
    Running {
        started_at: Option<Timestamp>,
    },
    Terminated,
}

/// A problem that prevents a container from starting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartProblem {
    pub kind: StartProblemKind,
    pub message: String,
    /// First time that this process saw the problem.
    pub since: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartProblemKind {
    /// The image name is invalid; a retry cannot help.
    ImageName,
    /// Neither the image nor the spec has a command; a retry cannot help.
    NoCommand,
    ImagePull,
    ContainerConfig,
    /// A Secret or `ConfigMap` that the container needs does not exist; the kubelet retries until it
    /// does.
    MissingReference,
}

impl Container {
    pub(super) fn read(status: &SlimContainerStatus, own_message: bool) -> Self {
        let waiting = status.state.waiting.as_ref();
        let waits_for = waiting.and_then(|waiting| waiting.reason.as_deref());
        let state = if let Some(running) = &status.state.running {
            let started_at = running.started_at.as_ref().map(|t| t.0);
            ContainerState::Running { started_at }
        } else if status.state.terminated.is_some() {
            ContainerState::Terminated
        } else if waits_for == Some("CrashLoopBackOff") {
            ContainerState::BackingOff
        } else {
            ContainerState::Waiting
        };
        let last_termination = status.state.terminated.as_ref();
        let last_termination = last_termination.or(status.last_state.terminated.as_ref());
        Self {
            state,
            is_starting_up: status.started == Some(false),
            restarts: status.restart_count,
            image: Some(status.image_id.clone()).filter(|image| !image.is_empty()),
            last_termination: last_termination.map(termination_reason),
            termination_message: last_termination
                .filter(|_| own_message)
                .and_then(termination_message),
        }
    }

    /// Drops restarts that are none of the sandbox: the Pod was warm.
    pub(super) fn without_restarts(mut self, earlier: u32) -> Self {
        self.restarts = self.restarts.saturating_sub(earlier);
        self
    }

    /// Start of the running container, if the kubelet reports it.
    pub fn running_since(&self) -> Option<Timestamp> {
        match self.state {
            ContainerState::Running { started_at } => started_at,
            _ => None,
        }
    }

    /// Returns whether the last run has ended and the next one has not begun.
    pub fn has_ended(&self) -> bool {
        matches!(
            self.state,
            ContainerState::Terminated | ContainerState::BackingOff
        )
    }

    /// Terminations of the command in this Pod. A node that lost track of its containers says
    /// nothing about the command.
    pub fn crash_count(&self) -> u32 {
        if self.last_termination.as_deref() == Some(STATUS_UNKNOWN_REASON) {
            return 0;
        }
        self.restarts.saturating_add(u32::from(self.has_ended()))
    }

    /// Describes the last termination for users.
    pub fn describe_termination(&self) -> Cow<'_, str> {
        match (&self.last_termination, &self.termination_message) {
            (Some(reason), Some(message)) => {
                // The message makes the explanation of the exit code redundant.
                let plain = reason.split(" (").next().unwrap_or(reason);
                Cow::Owned(format!("{plain}: {message}"))
            }
            (Some(reason), None) => Cow::Borrowed(reason),
            (None, _) => Cow::Borrowed("unknown"),
        }
    }
}

impl StartProblem {
    /// Reason of the status.
    pub fn reason(&self) -> Reason {
        match self.kind {
            StartProblemKind::ImageName => Reason::InvalidImageName,
            StartProblemKind::NoCommand => Reason::InvalidSpec,
            StartProblemKind::ImagePull => Reason::ImagePullBackOff,
            StartProblemKind::ContainerConfig | StartProblemKind::MissingReference => {
                Reason::CreateContainerConfigError
            }
        }
    }

    /// Returns whether the same Pod spec can never start.
    pub fn is_permanent(&self) -> bool {
        matches!(
            self.kind,
            StartProblemKind::ImageName | StartProblemKind::NoCommand
        )
    }

    /// Returns whether the container runtime could not mount the executor image, or not run it.
    pub(super) fn is_mount_failure(&self) -> bool {
        self.kind == StartProblemKind::ContainerConfig
            && api_messages::is_mount_failure(&self.message, path::BIN_DIR)
    }

    pub(super) fn read(status: &SlimContainerStatus) -> Option<Self> {
        let waiting = status.state.waiting.as_ref()?;
        let reason = waiting.reason.as_deref()?;
        let detail = waiting.message.as_deref().unwrap_or_default();
        let kind = match reason {
            "InvalidImageName" => StartProblemKind::ImageName,
            "ErrImagePull"
            | "ImagePullBackOff"
            | "ErrImageNeverPull"
            | "ImageInspectError"
            | "RegistryUnavailable"
            | "SignatureValidationFailed" => StartProblemKind::ImagePull,
            "CreateContainerConfigError" if api_messages::is_reference_missing(detail) => {
                StartProblemKind::MissingReference
            }
            "CreateContainerError" | "RunContainerError"
                if api_messages::is_command_missing(detail) =>
            {
                StartProblemKind::NoCommand
            }
            "CreateContainerConfigError"
            | "CreateContainerError"
            | "RunContainerError"
            | "PreCreateHookError" => StartProblemKind::ContainerConfig,
            _ => return None,
        };
        let message = match &waiting.message {
            _ if kind == StartProblemKind::NoCommand => format!(
                "the image of container {} has no command, and the spec gives none",
                status.name
            ),
            Some(detail) => format!("{reason}: {detail}"),
            None => reason.to_owned(),
        };
        Some(Self {
            kind,
            message,
            since: None,
        })
    }
}

/// The kubelet's reason, or the exit code if the reason is generic.
fn termination_reason(terminated: &SlimTerminated) -> String {
    match terminated.reason.as_deref() {
        Some(reason) if reason != "Error" => reason.to_owned(),
        _ => describe_exit_code(terminated.exit_code),
    }
}

/// Reduces the message to one short line of visible characters, because the sandbox controls it.
fn termination_message(terminated: &SlimTerminated) -> Option<String> {
    let message = terminated.message.as_deref()?;
    let seen: String = message.chars().filter(|c| !is_invisible(*c)).collect();
    let plain = seen.split(|c: char| c.is_control() || c.is_whitespace());
    let parts: Vec<_> = plain.filter(|part| !part.is_empty()).collect();
    let line: String = parts.join(" ").chars().take(MAX_MESSAGE_CHARS).collect();
    (!line.is_empty()).then_some(line)
}

/// Returns whether a character has no width or changes the text direction.
fn is_invisible(c: char) -> bool {
    matches!(
        c,
        '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}'
    )
}

/// Describes an exit code as shells and the supervisor use it.
fn describe_exit_code(code: i32) -> String {
    match code {
        126 => "exit code 126 (cannot be executed)".into(),
        127 => "exit code 127 (command not found)".into(),
        code => format!("exit code {code}"),
    }
}
