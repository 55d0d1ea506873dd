//! One Sandbox in the index.

use std::fmt;
use std::sync::Arc;

use crds::Sandbox;
use crds::conditions::Reason;
use crds::names;
use crds::sandbox::{DesiredState, PauseReason, Phase, SandboxSpec, SandboxStatus, Session};
use jiff::Timestamp;
use kube::ResourceExt as _;

use crate::keys::Keys;
use crate::urls::{DEFAULT_PORTS, RUNTIME};

/// Namespace and name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    pub namespace: String,
    pub name: String,
}

/// A Sandbox as the rest of the operator sees it.
#[derive(Debug, Clone)]
pub struct Entry {
    pub key: Key,
    pub uid: String,
    pub resource_version: String,
    pub generation: i64,
    pub created_at: Option<Timestamp>,
    /// The object has a deletion timestamp.
    pub deleting: bool,
    /// When it was last asked to be awake, see [`names::WAKE_ANNOTATION`].
    pub wake_at: Option<Timestamp>,
    /// 16 letters that name the sandbox in URLs and in the API.
    pub runtime_id: String,
    pub spec: Arc<SandboxSpec>,
    pub status: SandboxStatus,
}

impl Entry {
    /// Reads an object. `None` if it lacks what the API server always sets.
    pub fn read(sandbox: &Sandbox, keys: &Keys) -> Option<Self> {
        let uid = sandbox.uid()?;
        let key = Key {
            namespace: sandbox.namespace()?,
            name: sandbox.metadata.name.clone()?,
        };
        // Only the gateway can name an object so that its session hashes to the name: whoever
        // writes a session into an object of their own gets no part in it.
        let named_by_session = sandbox.spec.session.as_ref().is_some_and(|s| {
            key.name == keys.session_runtime_id(&key.namespace, &s.tenant, &s.id, s.epoch)
        });
        let runtime_id = if named_by_session {
            key.name.clone()
        } else {
            keys.object_runtime_id(&uid)
        };
        debug_assert!(names::is_runtime_id(&runtime_id));
        Some(Self {
            key,
            resource_version: sandbox.resource_version()?,
            generation: sandbox.metadata.generation.unwrap_or(0),
            created_at: sandbox.creation_timestamp().map(|t| t.0),
            deleting: sandbox.metadata.deletion_timestamp.is_some(),
            wake_at: wake_at(sandbox),
            runtime_id,
            uid,
            spec: Arc::new(sandbox.spec.clone()),
            status: sandbox.status.clone().unwrap_or_default(),
        })
    }

    /// The client session that the gateway made this sandbox for. A session that merely stands in
    /// the spec of another object is none.
    pub fn session(&self) -> Option<&Session> {
        self.spec
            .session
            .as_ref()
            .filter(|_| self.runtime_id == self.key.name)
    }

    /// Whether this is a later version than `other`, or a later object of the same name. Versions
    /// that are no numbers cannot be compared; then what comes later counts.
    pub fn is_newer_than(&self, other: &Self) -> bool {
        let version = |e: &Self| e.resource_version.parse::<u64>().ok();
        match (version(self), version(other)) {
            (Some(this), Some(that)) => this > that,
            _ => false,
        }
    }

    /// Whether this is the same version of the same object.
    pub fn is_same_as(&self, other: &Self) -> bool {
        self.uid == other.uid && self.resource_version == other.resource_version
    }

    /// The pause that the operator made by itself and that still holds, if there is one. It stands
    /// in the status alone, so that nobody's spec is changed, and ends when the sandbox is asked to
    /// be awake.
    pub fn own_pause(&self) -> Option<PauseReason> {
        let status = &self.status;
        let reason = status.pause_reason?;
        let since = status.paused_at.as_ref()?.0;
        let rests = matches!(status.phase, Phase::Pausing | Phase::Paused);
        let woken = self.wake_at.is_some_and(|at| at >= since);
        let own = reason != PauseReason::Requested && self.spec.state == DesiredState::Running;
        (rests && own && !woken).then_some(reason)
    }

    /// Whether it was given up for having been at rest too long. That is final.
    pub fn is_expired(&self) -> bool {
        self.status.phase == Phase::Stopped && self.status.reason == Some(Reason::Expired)
    }

    /// What the sandbox should be: what the spec asks for, as far as the operator's own pauses and
    /// deadlines leave it.
    pub fn wanted(&self) -> DesiredState {
        match self.spec.state {
            _ if self.is_expired() => DesiredState::Stopped,
            DesiredState::Running if self.own_pause().is_some() => DesiredState::Paused,
            asked => asked,
        }
    }

    /// Whether requests can reach the sandbox: it is wanted, it is ready, and its address is known.
    pub fn is_ready(&self) -> bool {
        self.wanted() == DesiredState::Running
            && !self.deleting
            && self.status.phase == Phase::Running
            && self.status.pod_ip.is_some()
    }

    /// Whether the status speaks of the spec as it is now. Between `/resume` and the next pass of the
    /// controller it may still speak of a Pod that a `/pause` before has ended.
    pub fn is_observed(&self) -> bool {
        let observed = self.status.observed_generation;
        observed.is_none_or(|observed| observed >= self.generation)
    }

    /// Whether it has ever been ready, and so is only away for a moment if it is not now.
    pub fn was_ready(&self) -> bool {
        self.status.ready_at.is_some()
    }

    /// Number of a named port; `runtime` is the first one if no port has that name.
    pub fn port(&self, name: &str) -> Option<u16> {
        if self.spec.ports.is_empty() {
            let known = DEFAULT_PORTS.iter().find(|(known, _)| *known == name);
            return known.map(|(_, port)| *port);
        }
        let named = self.spec.ports.iter().find(|p| p.name == name);
        let first = || self.spec.ports.first().filter(|_| name == RUNTIME);
        named.or_else(first).map(|p| p.port)
    }
}

/// What is no time is no wish.
fn wake_at(sandbox: &Sandbox) -> Option<Timestamp> {
    sandbox
        .annotations()
        .get(names::WAKE_ANNOTATION)?
        .parse()
        .ok()
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}
