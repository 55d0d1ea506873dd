//! Entry of the index: one Sandbox as a domain value.

use std::fmt;
use std::sync::Arc;

use crds::Sandbox;
use crds::conditions::Reason;
use crds::names;
use crds::sandbox::{DesiredState, PauseReason, Phase, SandboxSpec, SandboxStatus, Session};
use jiff::Timestamp;
use kube::ResourceExt as _;

use crate::keys::Keys;
use crate::traces::TraceParent;
use crate::urls::{DEFAULT_PORTS, RUNTIME};

/// Namespace and name of an object.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    pub namespace: String,
    pub name: String,
}

impl Key {
    /// Another object of the same namespace.
    #[must_use]
    pub fn sibling(&self, name: &str) -> Self {
        Self {
            namespace: self.namespace.clone(),
            name: name.to_owned(),
        }
    }
}

/// Sandbox as controller and gateway see it.
#[derive(Debug, Clone)]
pub struct Entry {
    pub key: Key,
    pub uid: String,
    pub resource_version: String,
    pub generation: i64,
    pub created_at: Option<Timestamp>,
    /// The object has a deletion timestamp.
    pub deleting: bool,
    /// Value of the wake annotation, see [`names::WAKE_ANNOTATION`].
    pub wake_at: Option<Timestamp>,
    /// Value of the trace annotation, see [`names::TRACE_ANNOTATION`].
    pub trace: Option<TraceParent>,
    /// 16 letters that identify the sandbox in URLs and in the API.
    pub runtime_id: String,
    pub spec: Arc<SandboxSpec>,
    /// The stored spec has a sealed environment, also where the index has dropped it.
    pub has_sealed_env: bool,
    /// Bytes of command and environment in the stored spec, also where the index has dropped them.
    pub payload_bytes: usize,
    pub status: SandboxStatus,
}

impl Entry {
    /// Reads an object. `None` if it lacks metadata that the API server always sets.
    pub fn read(sandbox: &Sandbox, keys: &Keys) -> Option<Self> {
        let uid = sandbox.uid()?;
        let key = Key {
            namespace: sandbox.namespace()?,
            name: sandbox.metadata.name.clone()?,
        };
        // Only the gateway can derive the name from the session. A session in another object is
        // not trusted.
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
            trace: trace(sandbox),
            runtime_id,
            uid,
            has_sealed_env: sandbox.spec.sealed_env.is_some(),
            payload_bytes: payload_bytes(&sandbox.spec),
            spec: Arc::new(sandbox.spec.clone()),
            status: sandbox.status.clone().unwrap_or_default(),
        })
    }

    /// Drops what only a controller needs, and only for a sandbox that is to run: environments,
    /// which may be large, and the Pod template.
    pub(super) fn drop_controller_fields(&mut self) {
        let spec = Arc::make_mut(&mut self.spec);
        spec.sealed_env = None;
        spec.env = Vec::new();
        spec.pod_template = None;
    }

    /// Drops command and environment, which nothing needs after the end of a sandbox: the object of
    /// an expired one still has them.
    pub(super) fn drop_payload(&mut self) {
        let spec = Arc::make_mut(&mut self.spec);
        spec.sealed_env = None;
        spec.command = None;
        if let Some(session) = &mut spec.session {
            session.command_line = None;
        }
        self.payload_bytes = 0;
    }

    /// Name of the workspace PVC: that of the status, or else the one that is created for it.
    pub fn workspace_claim(&self) -> String {
        let own = || names::workspace_claim(&self.key.name);
        self.status.workspace_claim.clone().unwrap_or_else(own)
    }

    /// Returns the pool that the spec names.
    pub fn pool(&self) -> Option<Key> {
        Some(Key {
            namespace: self.key.namespace.clone(),
            name: self.spec.pool.clone()?,
        })
    }

    /// Returns the session that the gateway created this sandbox for. A session in the spec of
    /// another object does not count.
    pub fn session(&self) -> Option<&Session> {
        let session = self.spec.session.as_ref();
        session.filter(|_| self.runtime_id == self.key.name)
    }

    /// Returns whether this is a later version than `other`, or a later object of the same name.
    /// Versions that are not numbers cannot be compared.
    pub fn is_newer_than(&self, other: &Self) -> bool {
        let versions = self.version().zip(other.version());
        versions.is_some_and(|(own, others)| own > others)
    }

    /// Returns the resource version, if it is a number.
    pub fn version(&self) -> Option<u64> {
        self.resource_version.parse().ok()
    }

    /// Returns the reason of the automatic pause that is in effect, if any. It is in the status
    /// only, so that the spec stays the user's, and a wake annotation ends it.
    pub fn automatic_pause(&self) -> Option<PauseReason> {
        let status = &self.status;
        let reason = status.pause_reason?;
        let since = status.paused_at.as_ref()?.0;
        let is_paused = matches!(status.phase, Phase::Pausing | Phase::Paused);
        let woken = self.wake_at.is_some_and(|at| at >= since);
        let automatic =
            reason != PauseReason::Requested && self.spec.state == DesiredState::Running;
        (is_paused && automatic && !woken).then_some(reason)
    }

    /// Returns whether the sandbox has expired, which is final.
    pub fn is_expired(&self) -> bool {
        self.status.phase == Phase::Stopped && self.status.reason == Some(Reason::Expired)
    }

    /// Returns the desired state: `spec.state` combined with automatic pauses and expiry.
    pub fn desired_state(&self) -> DesiredState {
        match self.spec.state {
            _ if self.is_expired() => DesiredState::Stopped,
            DesiredState::Running if self.automatic_pause().is_some() => DesiredState::Paused,
            state => state,
        }
    }

    /// Returns whether requests can be forwarded: desired, ready, and with a known address.
    pub fn is_ready(&self) -> bool {
        self.desired_state() == DesiredState::Running
            && !self.deleting
            && self.status.phase == Phase::Running
            && self.status.pod_ip.is_some()
    }

    /// Returns whether the status describes the present spec. Between `/resume` and the next
    /// reconcile, it may describe a Pod that an earlier `/pause` has ended.
    pub fn is_observed(&self) -> bool {
        let observed = self.status.observed_generation;
        observed.is_none_or(|observed| observed >= self.generation)
    }

    /// Returns whether the sandbox has ever been ready.
    pub fn was_ready(&self) -> bool {
        self.status.ready_at.is_some()
    }

    /// Returns whether the sandbox has failed and its workspace exists.
    pub fn has_failed_with_workspace(&self) -> bool {
        self.status.phase == Phase::Failed && self.status.workspace_claim.is_some()
    }

    /// Returns whether a failed sandbox is to start again: its wake annotation is newer than its last
    /// start.
    pub fn is_restart_requested(&self) -> bool {
        let started = self.status.started_at.as_ref().map(|at| at.0);
        // A start that never was is before any wake.
        self.status.phase == Phase::Failed && self.wake_at > started
    }

    /// Returns the number of a named port; `runtime` falls back to the first port.
    pub fn port(&self, name: &str) -> Option<u16> {
        let ports = match &self.spec.ports[..] {
            [] => &self.status.pool_ports[..],
            own => own,
        };
        if ports.is_empty() {
            let known = DEFAULT_PORTS.iter().find(|(known, _)| *known == name);
            return known.map(|(_, port)| *port);
        }
        let named = ports.iter().find(|p| p.name == name);
        let first = || ports.first().filter(|_| name == RUNTIME);
        named.or_else(first).map(|p| p.port)
    }

    /// Returns whether the server of the sandbox has a plugin of this name.
    pub fn has_plugin(&self, name: &str) -> bool {
        self.status.plugins.iter().any(|plugin| plugin == name)
    }
}

/// Returns the bytes of command and sealed environment, which clients can make large.
pub fn payload_bytes(spec: &SandboxSpec) -> usize {
    let words = spec.command.iter().flatten();
    let words: usize = words.map(|word| word.len() + 1).sum();
    let session = spec.session.as_ref();
    let line = session.and_then(|session| session.command_line.as_ref());
    let texts = [line, spec.sealed_env.as_ref()];
    words + texts.into_iter().flatten().map(String::len).sum::<usize>()
}

/// Reads the wake annotation; a malformed value is ignored.
fn wake_at(sandbox: &Sandbox) -> Option<Timestamp> {
    let annotation = sandbox.annotations().get(names::WAKE_ANNOTATION);
    annotation?.parse().ok()
}

/// Reads the trace annotation; a malformed value is ignored.
fn trace(sandbox: &Sandbox) -> Option<TraceParent> {
    let annotation = sandbox.annotations().get(names::TRACE_ANNOTATION);
    TraceParent::parse(annotation?)
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}
