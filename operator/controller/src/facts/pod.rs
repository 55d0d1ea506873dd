//! Facts about one Pod, read from its object.

use std::time::Duration;

use crds::contract::persistence::{PersistenceLevel, PodPersistence};
use crds::sandbox::{Phase, SandboxStatus};
use crds::{contract, names};
use jiff::{SignedDuration, Timestamp};
use shared::kubernetes::api_messages;
use shared::kubernetes::slim::{SlimContainer, SlimPod};

use super::annotations::{
    CLAIMED_ANNOTATION, ENVIRONMENT_ANNOTATION, EXECUTOR_ANNOTATION, IDENTITY_ANNOTATION,
    IMAGE_VOLUME, KEY_ROTATION_ANNOTATION, NOT_MOUNTED, NOTE_ANNOTATION, PAUSE_ANNOTATION,
    PERSISTENCE_ANNOTATION, REJECTED_PERSISTENCE_ANNOTATION, RESTARTS_ANNOTATION,
    REVISION_ANNOTATION, SHAPE_ANNOTATION, SNAPSHOT_ANNOTATION, SPEC_ANNOTATION,
    WARM_RESTARTS_ANNOTATION,
};
use super::spec_revision::SpecRevision;
use super::{Container, ContainerRun, SnapshotIdentity, StartProblem, preparation, resize};
use crate::rejected_persistence::RejectedPersistence;

/// Facts about a Pod.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PodFacts {
    pub name: String,
    pub uid: String,
    pub created_at: Option<Timestamp>,
    /// Time at which the scheduler chose the node.
    pub scheduled_at: Option<Timestamp>,
    /// Time at which a sandbox claimed the Pod, which was warm.
    pub claimed_at: Option<Timestamp>,
    /// Begin of the pause in which the Pod was created, ahead of the resume.
    pub created_in_pause: Option<Timestamp>,
    pub phase: PodPhase,
    pub ip: Option<String>,
    pub node: Option<String>,
    pub runtime_class: Option<String>,
    /// End of the grace period if the Pod is terminating.
    pub grace_ends_at: Option<Timestamp>,
    /// Grace period of the deletion.
    pub grace: SignedDuration,
    /// The kubelet reports the Pod ready.
    pub ready: bool,
    /// The node has stopped reporting; the container may still run.
    pub node_silent: bool,
    /// Reason of the status, for example `Evicted` or `NodeLost`.
    pub reason: Option<String>,
    pub message: Option<String>,
    /// Reason of a disruption, for example `PreemptionByScheduler`.
    pub disruption: Option<String>,
    /// Message of the scheduler if no node fits.
    pub unschedulable: Option<String>,
    /// Restarts before this Pod.
    pub restarts_before: u32,
    /// The supervisor runs the command.
    pub supervised: bool,
    /// Rotation number of the session key.
    pub key_rotation: u32,
    /// Identity key of the supervisor; `None` in Pods of earlier versions.
    pub identity: Option<PodIdentity>,
    /// Persistence of the Pod beyond the workspace.
    pub persistence: Option<PodPersistence>,
    /// Snapshot that the Pod has mounted.
    pub snapshot: Option<SnapshotIdentity>,
    /// Persistence that policies rejected before the Pod was created.
    pub rejected_persistence: RejectedPersistence,
    /// Name of the environment Secret.
    pub environment_secret: Option<String>,
    /// Shape of a Pod that is or was warm.
    pub shape: Option<String>,
    /// Revision of a Pod that is or was warm.
    pub revision: Option<String>,
    /// The Pod still has the resources of a warm Pod, and they are not those of its sandbox.
    pub is_small: bool,
    /// The kubelet does not raise the resources.
    pub resize_problem: Option<ResizeProblem>,
    /// Note for the owner.
    pub note: Option<String>,
    /// Revision of the spec that the Pod was created from.
    pub spec_revision: Option<SpecRevision>,
    pub container: Container,
    /// Problem that prevents a container from starting.
    pub start_problem: Option<StartProblem>,
    /// Work of the node before the container runs, for users.
    pub preparation: Option<String>,
}

/// Reason for which a Pod does not get the resources of its sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResizeProblem {
    /// The node can never hold it.
    pub is_final: bool,
    pub message: String,
}

/// Origin of the identity key of a Pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PodIdentity {
    /// The uid of its sandbox.
    Sandbox,
    /// Its own name: it was a warm Pod.
    Pod,
}

impl PodIdentity {
    /// Value of [`IDENTITY_ANNOTATION`].
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Sandbox => "v1",
            Self::Pod => "pod",
        }
    }

    fn read(pod: &SlimPod) -> Option<Self> {
        let value = pod.annotation(IDENTITY_ANNOTATION)?;
        Some(if value == Self::Pod.as_str() {
            Self::Pod
        } else {
            Self::Sandbox
        })
    }
}

/// Phase of a Pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PodPhase {
    #[default]
    Pending,
    Running,
    Succeeded,
    Failed,
    Unknown,
}

impl PodFacts {
    /// Reads a Pod. `None` if it lacks fields that the API server always sets.
    pub fn read(pod: &SlimPod) -> Option<Self> {
        let status = &pod.status;
        let mut containers = status.container_statuses.iter();
        let own = containers.find(|c| c.name == names::CONTAINER);
        let count = |annotation| {
            let number = pod.annotation(annotation).and_then(|n| n.parse().ok());
            number.unwrap_or(0)
        };
        let all = status.init_container_statuses.iter();
        let mut all = all.chain(&status.container_statuses);
        let start_problem = all.find_map(StartProblem::read);
        let not_mounted = start_problem.as_ref().filter(|problem| {
            let is_mounted = pod.annotation(EXECUTOR_ANNOTATION) == Some(IMAGE_VOLUME);
            is_mounted && problem.is_mount_failure()
        });
        Some(Self {
            name: pod.metadata.name.clone()?,
            uid: pod.metadata.uid.clone()?,
            created_at: pod.metadata.creation_timestamp.as_ref().map(|t| t.0),
            scheduled_at: pod
                .condition("PodScheduled")
                .filter(|c| c.status == "True")
                .and_then(|c| c.last_transition_time.as_ref().map(|t| t.0)),
            claimed_at: pod
                .annotation(CLAIMED_ANNOTATION)
                .and_then(|at| at.parse().ok()),
            created_in_pause: pod
                .annotation(PAUSE_ANNOTATION)
                .and_then(|at| at.parse().ok()),
            // It will not run, and another Pod can.
            phase: match not_mounted {
                Some(_) => PodPhase::Failed,
                None => phase(status.phase.as_deref()),
            },
            ip: status.pod_ip.clone().filter(|ip| !ip.is_empty()),
            node: pod.spec.node_name.clone(),
            runtime_class: pod.spec.runtime_class_name.clone(),
            grace_ends_at: pod.metadata.deletion_timestamp.as_ref().map(|t| t.0),
            grace: SignedDuration::from_secs(
                pod.metadata.deletion_grace_period_seconds.unwrap_or(0),
            ),
            ready: pod.condition("Ready").is_some_and(|c| c.status == "True"),
            node_silent: is_node_silent(pod),
            reason: not_mounted
                .map(|_| NOT_MOUNTED.to_owned())
                .or_else(|| status.reason.clone()),
            message: not_mounted
                .map(|problem| problem.message.clone())
                .or_else(|| status.message.clone()),
            disruption: pod
                .condition("DisruptionTarget")
                .filter(|c| c.status == "True")
                .and_then(|c| c.reason.clone()),
            unschedulable: unschedulable(pod),
            restarts_before: count(RESTARTS_ANNOTATION),
            supervised: supervised(pod),
            key_rotation: count(KEY_ROTATION_ANNOTATION),
            identity: PodIdentity::read(pod),
            persistence: pod
                .annotation(PERSISTENCE_ANNOTATION)
                .and_then(|text| serde_json::from_str(text).ok()),
            snapshot: pod
                .annotation(SNAPSHOT_ANNOTATION)
                .and_then(|text| serde_json::from_str(text).ok()),
            rejected_persistence: pod
                .annotation(REJECTED_PERSISTENCE_ANNOTATION)
                .and_then(|text| serde_json::from_str(text).ok())
                .unwrap_or_default(),
            environment_secret: pod.annotation(ENVIRONMENT_ANNOTATION).map(str::to_owned),
            shape: pod.annotation(SHAPE_ANNOTATION).map(str::to_owned),
            revision: pod.annotation(REVISION_ANNOTATION).map(str::to_owned),
            is_small: resize::is_small(pod),
            resize_problem: resize::problem(pod),
            note: pod.annotation(NOTE_ANNOTATION).map(str::to_owned),
            spec_revision: pod
                .annotation(SPEC_ANNOTATION)
                .and_then(SpecRevision::parse),
            container: own
                .map(|own| Container::read(own, has_termination_message(pod)))
                .map(|own| own.without_restarts(count(WARM_RESTARTS_ANNOTATION)))
                .unwrap_or_default(),
            start_problem,
            preparation: preparation::describe(pod),
        })
    }

    /// Time from which the Pod belongs to its sandbox.
    pub fn owned_since(&self) -> Option<Timestamp> {
        self.claimed_at.or(self.created_at)
    }

    /// Time from the creation of the Pod until its container ran.
    pub(crate) fn time_to_run(&self) -> Option<Duration> {
        let ran_at = self.container.running_since()?;
        ran_at.duration_since(self.created_at?).try_into().ok()
    }

    /// Level that the Pod was built for: at least `Root` if its volume has state, whether policies
    /// admitted that the Pod keeps any or not.
    pub fn level(&self) -> PersistenceLevel {
        match &self.persistence {
            Some(persistence) => persistence.level,
            None if self.rejected_persistence.is_empty() => PersistenceLevel::Workspace,
            None => PersistenceLevel::Root,
        }
    }

    /// Returns whether the Pod waits for the resume of a sandbox with this written status. In any
    /// other phase, and in a later pause, its command may have run.
    pub fn waits_for_resume(&self, written: &SandboxStatus) -> bool {
        let second = |at: Timestamp| at.as_second();
        let pause = written.paused_at.as_ref().map(|at| second(at.0));
        let is_of_pause = pause.is_some() && self.created_in_pause.map(second) == pause;
        written.phase == Phase::Paused && is_of_pause
    }

    /// Returns whether the Pod was warm before its sandbox claimed it.
    pub fn was_warm(&self) -> bool {
        self.identity == Some(PodIdentity::Pod)
    }

    /// Current run of the container.
    pub fn container_run(&self) -> ContainerRun {
        ContainerRun {
            pod_uid: self.uid.clone(),
            restarts: self.container.restarts,
            node_silent: self.node_silent,
        }
    }

    /// Returns whether the Pod is unschedulable because this PVC does not exist.
    pub fn is_missing_claim(&self, claim: &str) -> bool {
        let message = self.unschedulable.as_deref().unwrap_or_default();
        api_messages::is_claim_missing(message, claim)
    }

    /// Returns why the node could not mount the executor image, if it could not.
    pub(crate) fn mount_failure(&self) -> Option<&str> {
        let failed = self.reason.as_deref() == Some(NOT_MOUNTED);
        self.message.as_deref().filter(|_| failed)
    }

    /// Returns whether a container waits for the environment Secret of this Pod.
    pub fn is_missing_environment(&self) -> bool {
        let secret = self.environment_secret.as_ref();
        let problem = self.start_problem.as_ref();
        secret
            .zip(problem)
            .is_some_and(|(secret, problem)| problem.message.contains(secret))
    }

    /// Restarts over all Pods since the sandbox was started.
    pub fn restarts(&self) -> u32 {
        self.restarts_before.saturating_add(self.container.restarts)
    }
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

/// Returns whether the node of the Pod is silent. A kubelet changes both conditions together and
/// gives a reason; the node controller sets only `Ready`.
fn is_node_silent(pod: &SlimPod) -> bool {
    let is = |kind: &str, status: &str| pod.condition(kind).filter(|c| c.status == status);
    let unready = is("Ready", "False").is_some_and(|c| c.reason.is_none());
    unready && is("ContainersReady", "True").is_some()
}

fn unschedulable(pod: &SlimPod) -> Option<String> {
    let condition = pod.condition("PodScheduled")?;
    (condition.status == "False").then(|| condition.message.clone().unwrap_or_default())
}

fn sandbox_container(pod: &SlimPod) -> Option<&SlimContainer> {
    let mut containers = pod.spec.containers.iter();
    containers.find(|c| c.name == names::CONTAINER)
}

fn supervised(pod: &SlimPod) -> bool {
    sandbox_container(pod)
        .and_then(|c| c.command.first())
        .is_some_and(|program| program == contract::path::EXECUTOR)
}

/// Returns whether the termination message comes from the supervisor. With another policy than
/// `File` it may be the end of the log, and programs print secrets.
fn has_termination_message(pod: &SlimPod) -> bool {
    let policy = sandbox_container(pod).and_then(|c| c.termination_message_policy.as_deref());
    supervised(pod) && policy.is_none_or(|policy| policy == "File")
}
