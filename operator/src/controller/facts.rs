//! What a decision may rest on, as plain values: no Kubernetes types beyond this point.

use std::borrow::Cow;

use jiff::{SignedDuration, Timestamp};

use crate::kubernetes::slim::{SlimContainer, SlimContainerStatus, SlimPod};
use crds::{contract, names};

use self::ends::{end_of, words_of};

mod ends;

/// Reason of an end that the node did not see, as after its own restart.
const LOST_SIGHT: &str = "ContainerStatusUnknown";

/// Annotation of a Pod that replaces a lost one: how often the command had been started again
/// before this Pod, so that the count outlives both Pod and controller.
pub const RESTARTS_ANNOTATION: &str = "openhands.dev/restarts";

/// Annotation of a Pod: the number of the session key that it is given, if that is not 0.
pub const KEY_ROTATION_ANNOTATION: &str = "openhands.dev/key-rotation";

/// Annotation of a Pod that is not quite what the spec asks for: what its owner should know.
pub const NOTE_ANNOTATION: &str = "openhands.dev/note";

/// Everything known about one sandbox at one moment.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Facts {
    pub pod: Option<PodFacts>,
    /// What the sandbox itself said about being ready, asked for by this process and for this run
    /// of the container. `None`: no answer yet.
    pub answer: Option<Answer>,
    /// What was found out about when something last happened in it.
    pub quiet: Option<Quiet>,
    /// The pool that the spec names is unknown.
    pub pool_missing: bool,
    /// Which template the pool that the spec names has now.
    pub pool_revision: Option<String>,
    /// A Pod of it went away lately.
    pub lost_pod: bool,
    /// Whether its tenant's limits have room for it.
    pub turn: Turn,
    /// A lost Pod is not replaced before this moment.
    pub replace_at: Option<Timestamp>,
}

/// Whether a sandbox may have compute, by the limits of its tenant.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Turn {
    #[default]
    Has,
    /// Not yet, for this reason.
    Waits(String),
    /// It needs more than the tenant may have at all.
    Never(String),
}

/// What a sandbox said when it was asked whether it is ready.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    Ready,
    /// It runs and is not ready, for this reason.
    NotReady(Option<String>),
}

/// Since when nothing happens in a sandbox, as found out at `asked`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quiet {
    pub asked: Timestamp,
    /// `None`: nobody could tell.
    pub since: Option<Timestamp>,
}

/// One run of a sandbox's container. What was learned about one says nothing about the next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    pub pod_uid: String,
    pub restarts: u32,
    /// See [`PodFacts::silent`]: what was learned before its node fell silent has to be asked again.
    pub silent: bool,
}

/// What matters of a Pod.
#[derive(Debug, Clone, PartialEq)]
pub struct PodFacts {
    pub name: String,
    pub uid: String,
    pub created_at: Option<Timestamp>,
    pub phase: PodPhase,
    pub ip: Option<String>,
    pub node: Option<String>,
    /// If it is being deleted: when its grace period ends.
    pub deletion: Option<Timestamp>,
    /// Grace period of that deletion.
    pub grace: SignedDuration,
    /// The kubelet finds it ready.
    pub ready: bool,
    /// Its node has stopped reporting; the container may run on.
    pub silent: bool,
    /// Why it is as it is, for example `Evicted` or `NodeLost`.
    pub reason: Option<String>,
    pub message: Option<String>,
    /// Why Kubernetes takes it away, for example `PreemptionByScheduler`.
    pub disruption: Option<String>,
    /// Why no node takes it.
    pub unschedulable: Option<String>,
    /// Restarts before this Pod, see [`RESTARTS_ANNOTATION`].
    pub restarts_before: u32,
    /// Its command is run by the supervisor.
    pub supervised: bool,
    pub edition: Edition,
    pub container: Container,
    /// What keeps a container from being started.
    pub trouble: Option<Trouble>,
}

/// What the operator noted on the Pod when it made it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Edition {
    /// Number of its session key, see [`KEY_ROTATION_ANNOTATION`].
    pub key_rotation: u32,
    /// What its owner should know, see [`NOTE_ANNOTATION`].
    pub note: Option<String>,
}

/// A Pod's phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PodPhase {
    #[default]
    Pending,
    Running,
    Succeeded,
    Failed,
    Unknown,
}

/// The container of the sandbox.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Container {
    pub state: ContainerState,
    pub restarts: u32,
    /// Why it ended last, for example `OOMKilled` or `exit code 3`.
    pub last_end: Option<String>,
    /// What supervisor or executor said of that end. A program in the sandbox could have said it as well.
    pub last_words: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub enum ContainerState {
    #[default]
    Waiting,
    /// It ended too often, so the kubelet waits before it starts it again.
    BackingOff,
    Running {
        started_at: Option<Timestamp>,
    },
    Ended,
}

/// A container that cannot be started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    pub kind: TroubleKind,
    pub message: String,
    /// Since when it has been so, as far as this process knows.
    pub since: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TroubleKind {
    /// The name of the image is none: trying again is futile.
    ImageName,
    ImagePull,
    ContainerConfig,
    /// A Secret or `ConfigMap` that the container needs does not exist: the node takes it as soon as
    /// it does.
    Missing,
}

impl PodFacts {
    /// Reads a Pod. `None` if it lacks what the API server always sets.
    pub fn read(pod: &SlimPod) -> Option<Self> {
        let status = &pod.status;
        let own = status
            .container_statuses
            .iter()
            .find(|c| c.name == names::CONTAINER);
        Some(Self {
            name: pod.metadata.name.clone()?,
            uid: pod.metadata.uid.clone()?,
            created_at: pod.metadata.creation_timestamp.as_ref().map(|t| t.0),
            phase: phase(status.phase.as_deref()),
            ip: status.pod_ip.clone().filter(|ip| !ip.is_empty()),
            node: pod.spec.node_name.clone(),
            deletion: pod.metadata.deletion_timestamp.as_ref().map(|t| t.0),
            grace: SignedDuration::from_secs(
                pod.metadata.deletion_grace_period_seconds.unwrap_or(0),
            ),
            ready: pod.condition("Ready").is_some_and(|c| c.status == "True"),
            silent: silent(pod),
            reason: status.reason.clone(),
            message: status.message.clone(),
            disruption: pod
                .condition("DisruptionTarget")
                .filter(|c| c.status == "True")
                .and_then(|c| c.reason.clone()),
            unschedulable: unschedulable(pod),
            restarts_before: pod
                .annotation(RESTARTS_ANNOTATION)
                .and_then(|n| n.parse().ok())
                .unwrap_or(0),
            supervised: supervised(pod),
            edition: Edition::read(pod),
            container: own
                .map(|own| Container::read(own, has_own_words(pod)))
                .unwrap_or_default(),
            trouble: status
                .init_container_statuses
                .iter()
                .chain(&status.container_statuses)
                .find_map(Trouble::read),
        })
    }

    /// The present run of its container.
    pub fn run(&self) -> Run {
        Run {
            pod_uid: self.uid.clone(),
            restarts: self.container.restarts,
            silent: self.silent,
        }
    }

    /// Whether no node takes it because its volume claim does not exist, in the scheduler's words.
    pub fn lacks_claim(&self) -> bool {
        let claim = format!("\"{}\"", names::workspace_claim(&self.name));
        let why = self.unschedulable.as_deref().unwrap_or_default();
        why.contains(&claim) && why.contains("not found")
    }

    /// Restarts since the sandbox was started, over all its Pods.
    pub fn restarts(&self) -> u32 {
        self.restarts_before.saturating_add(self.container.restarts)
    }

    /// Runs of the command that have ended by themselves in this Pod. A Pod that was lost says
    /// nothing about the command, nor does a node that lost sight of its containers.
    pub fn ends(&self) -> u32 {
        if self.container.last_end.as_deref() == Some(LOST_SIGHT) {
            return 0;
        }
        let now = matches!(
            self.container.state,
            ContainerState::Ended | ContainerState::BackingOff
        );
        self.container.restarts.saturating_add(u32::from(now))
    }
}

impl Edition {
    fn read(pod: &SlimPod) -> Self {
        let rotation = pod.annotation(KEY_ROTATION_ANNOTATION);
        Self {
            key_rotation: rotation.and_then(|n| n.parse().ok()).unwrap_or(0),
            note: pod.annotation(NOTE_ANNOTATION).map(str::to_owned),
        }
    }
}

impl Container {
    fn read(status: &SlimContainerStatus, own_words: bool) -> Self {
        let waits_for = |reason: &str| {
            let waiting = status.state.waiting.as_ref();
            waiting.is_some_and(|w| w.reason.as_deref() == Some(reason))
        };
        let state = if let Some(running) = &status.state.running {
            ContainerState::Running {
                started_at: running.started_at.as_ref().map(|t| t.0),
            }
        } else if status.state.terminated.is_some() {
            ContainerState::Ended
        } else if waits_for("CrashLoopBackOff") {
            ContainerState::BackingOff
        } else {
            ContainerState::Waiting
        };
        let last = status.state.terminated.as_ref();
        let last = last.or(status.last_state.terminated.as_ref());
        Self {
            state,
            restarts: status.restart_count,
            last_end: last.map(end_of),
            last_words: last.filter(|_| own_words).and_then(words_of),
        }
    }

    /// How it ended last, for people.
    pub fn end(&self) -> Cow<'_, str> {
        match (&self.last_end, &self.last_words) {
            (Some(end), Some(words)) => {
                // What the words explain need not be explained before them.
                let plain = end
                    .split_once(" (")
                    .map_or(end.as_str(), |(plain, _)| plain);
                Cow::Owned(format!("{plain}: {words}"))
            }
            (Some(end), None) => Cow::Borrowed(end),
            (None, _) => Cow::Borrowed("unknown"),
        }
    }
}

impl Trouble {
    fn read(status: &SlimContainerStatus) -> Option<Self> {
        let waiting = status.state.waiting.as_ref()?;
        let reason = waiting.reason.as_deref()?;
        let kind = match reason {
            "InvalidImageName" => TroubleKind::ImageName,
            "ErrImagePull"
            | "ImagePullBackOff"
            | "ErrImageNeverPull"
            | "ImageInspectError"
            | "RegistryUnavailable"
            | "SignatureValidationFailed" => TroubleKind::ImagePull,
            "CreateContainerConfigError"
            | "CreateContainerError"
            | "RunContainerError"
            | "PreCreateHookError" => TroubleKind::ContainerConfig,
            _ => return None,
        };
        let detail = waiting.message.as_deref().unwrap_or_default();
        let kind = if reason == "CreateContainerConfigError" && is_missing(detail) {
            TroubleKind::Missing
        } else {
            kind
        };
        let message = match &waiting.message {
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

/// In the kubelet's words: `secret "a" not found`, `couldn't find key b in Secret ns/a`.
fn is_missing(detail: &str) -> bool {
    let object = ["secret \"", "configmap \""];
    let object = object.iter().any(|kind| detail.contains(kind)) && detail.contains("not found");
    object || detail.contains("couldn't find key")
}

fn phase(text: Option<&str>) -> PodPhase {
    match text {
        Some("Running") => PodPhase::Running,
        Some("Succeeded") => PodPhase::Succeeded,
        Some("Failed") => PodPhase::Failed,
        Some("Unknown") => PodPhase::Unknown,
        _ => PodPhase::Pending,
    }
}

/// A kubelet changes both conditions together and gives a reason. When its node does not report, the
/// node controller takes back the first one alone.
fn silent(pod: &SlimPod) -> bool {
    let is = |kind: &str, status: &str| pod.condition(kind).filter(|c| c.status == status);
    let taken_back = is("Ready", "False").is_some_and(|c| c.reason.is_none());
    taken_back && is("ContainersReady", "True").is_some()
}

fn unschedulable(pod: &SlimPod) -> Option<String> {
    let condition = pod.condition("PodScheduled")?;
    (condition.status == "False").then(|| condition.message.clone().unwrap_or_default())
}

fn own(pod: &SlimPod) -> Option<&SlimContainer> {
    let mut containers = pod.spec.containers.iter();
    containers.find(|c| c.name == names::CONTAINER)
}

fn supervised(pod: &SlimPod) -> bool {
    own(pod)
        .and_then(|c| c.command.first())
        .is_some_and(|program| program == contract::path::EXECUTOR)
}

/// Whether what it says of its end is the supervisor's. By another policy than `File` it may be the end
/// of the log, where programs print secrets.
fn has_own_words(pod: &SlimPod) -> bool {
    let policy = own(pod).and_then(|c| c.termination_message_policy.as_deref());
    supervised(pod) && policy.is_none_or(|policy| policy == "File")
}

#[cfg(test)]
mod tests;
