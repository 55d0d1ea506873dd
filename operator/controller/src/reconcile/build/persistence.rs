//! Persistence of a Pod beyond the workspace: which level it has, by which mechanism, or the reason
//! for which it has none (`docs/persistence.md`).

use std::collections::BTreeSet;

use crds::contract::persistence::{PersistenceLevel, PodPersistence, RootMechanism, StateAccess};
use crds::sandbox::SandboxSpec;
use shared::index::Entry;

use super::BuildContext;
use super::security_profile::Profile;
use crate::config::{ControllerConfig, DefaultLevel, RootPersistence, UserNamespaces};
use crate::pod_features::PodFeatures;
use crate::rejected_persistence::RejectedPersistence;

/// Directory of the volume with the files of the workspace, if the volume has state as well.
pub(super) const WORKSPACE_DIR: &str = "workspace";
/// Directory of the volume that the supervisor keeps state in.
pub(super) const STATE_DIR: &str = "state";

/// Capabilities of a supervisor that reads and writes all files of the root, and takes from the
/// command what it must not have.
const ARCHIVE: &[&str] = &[
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "SETFCAP",
    "SETPCAP",
];
/// Capabilities of a supervisor that mounts the root.
pub(crate) const OVERLAY: &[&str] = &[
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "SETPCAP",
    "SYS_ADMIN",
    "SYS_CHROOT",
];

/// Capabilities of a supervisor that saves and restores processes of all users, with files that have
/// no path and connections within the Pod.
pub(crate) const MEMORY: &[&str] = &[
    "CHECKPOINT_RESTORE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "KILL",
    "NET_ADMIN",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_PTRACE",
];

/// Obstacle that keeps a Pod at level `Workspace` although the spec asks for more. Its text is the
/// reason in the status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PersistenceObstacle {
    #[error("the sandbox has no workspace volume")]
    NoVolume,
    #[error(
        "the volume was created for level Workspace and has no room for state; \
        a new sandbox gets one that has"
    )]
    PlainVolume,
    #[error("the entrypoint of the image runs without a supervisor; spec.command is needed")]
    NoSupervisor,
    #[error("the operator keeps no files outside of the workspace (--root-persistence)")]
    Disabled,
    #[error("the operator keeps no processes (--memory-persistence)")]
    NoMemory,
    #[error("changed files can only be read by a sandbox that starts as user 0")]
    OtherUser,
    #[error("processes can only be saved by a sandbox that starts as user 0")]
    OtherUserOfProcesses,
    #[error(
        "the changed files are in an overlay on the volume, and Pods have no user namespace to \
        mount it in"
    )]
    NoUserNamespace,
    #[error("Pod Security or another policy of the namespace rejects Pods that can save processes")]
    MemoryRejected,
    #[error(
        "Pod Security or another policy of the namespace rejects Pods that can save files outside \
        of the workspace"
    )]
    RootRejected,
    #[error(
        "the changed files are in an overlay on the volume, and Pod Security or another policy of \
        the namespace rejects Pods that can mount it"
    )]
    OverlayRejected,
}

/// The level of a sandbox: that of its spec, or else the default of the installation. Until its volume
/// is recorded, that of its Pod decides on an automatic one: the Pod may be warm, or older than the
/// answer of a probe.
pub fn level(
    entry: &Entry,
    config: &ControllerConfig,
    features: PodFeatures,
    of_pod: Option<PersistenceLevel>,
) -> PersistenceLevel {
    if let Some(level) = set_level(&entry.spec, config) {
        return level;
    }
    let keeps_root = match (&entry.status.workspace_claim, of_pod) {
        _ if entry.spec.session.is_none() => false,
        (Some(_), _) => entry.status.has_state_volume,
        (None, Some(level)) => level > PersistenceLevel::Workspace,
        (None, None) => is_kept_at_no_cost(&entry.spec, features),
    };
    if keeps_root {
        PersistenceLevel::Root
    } else {
        PersistenceLevel::Workspace
    }
}

/// The level of the spec or of the settings. `None`: automatic.
fn set_level(spec: &SandboxSpec, config: &ControllerConfig) -> Option<PersistenceLevel> {
    match (spec.persistence, config.persistence.default_level) {
        (Some(level), _) | (None, DefaultLevel::Level(level)) => Some(level),
        (None, DefaultLevel::Auto) => None,
    }
}

/// The level of the warm Pods for sandboxes of this spec. No probe decides on it: an automatic one is
/// `Root` where the node keeps the roots of all sandboxes of clients.
pub(crate) fn warm_level(spec: &SandboxSpec, config: &ControllerConfig) -> PersistenceLevel {
    set_level(spec, config).unwrap_or_else(|| {
        let is_node = config.persistence.root == RootPersistence::Node;
        if is_node && spec.session.is_some() && spec.workspace.is_some() {
            PersistenceLevel::Root
        } else {
            PersistenceLevel::Workspace
        }
    })
}

/// Returns whether changed files of a new sandbox are on its volume as they are written.
fn is_kept_at_no_cost(spec: &SandboxSpec, features: PodFeatures) -> bool {
    let is_written_at_once = match features.root() {
        Some(RootMechanism::Node) => true,
        Some(RootMechanism::Overlay) => !has_other_user(spec),
        Some(RootMechanism::Archive) | None => false,
    };
    spec.workspace.is_some() && spec.command.is_some() && is_written_at_once
}

/// Reason for which Pods of this sandbox keep less than the spec asks for.
pub fn obstacle(
    entry: &Entry,
    requested: PersistenceLevel,
    config: &ControllerConfig,
    features: PodFeatures,
) -> Option<PersistenceObstacle> {
    match pod_persistence(entry, requested, config, features) {
        Err(obstacle) => Some(obstacle),
        Ok(Some(pod)) if pod.level < requested => Some(if !config.persistence.memory {
            PersistenceObstacle::NoMemory
        } else if has_other_user(&entry.spec) {
            PersistenceObstacle::OtherUserOfProcesses
        } else {
            PersistenceObstacle::MemoryRejected
        }),
        Ok(_) => None,
    }
}

/// Returns whether the spec names another user than 0.
fn has_other_user(spec: &SandboxSpec) -> bool {
    let context = spec.security_context.as_ref();
    let user = context.and_then(|context| context.run_as_user);
    user.is_some_and(|user| user != 0)
}

/// Returns whether the volume of a sandbox has state besides the workspace: a recorded one as it was
/// created, a new one by the spec.
pub fn has_state_volume(entry: &Entry, level: PersistenceLevel) -> bool {
    match entry.status.workspace_claim {
        Some(_) => entry.status.has_state_volume,
        None => level > PersistenceLevel::Workspace,
    }
}

/// Persistence of a Pod that is built now. `None`: the spec asks for level `Workspace`.
pub fn pod_persistence(
    entry: &Entry,
    level: PersistenceLevel,
    config: &ControllerConfig,
    features: PodFeatures,
) -> Result<Option<PodPersistence>, PersistenceObstacle> {
    let spec = &*entry.spec;
    if level == PersistenceLevel::Workspace {
        return Ok(None);
    }
    let root = entry.status.root_mechanism.or(features.root());
    let root = root.ok_or(PersistenceObstacle::Disabled)?;
    let has_namespace = features.user_namespaces != UserNamespaces::Never;
    if spec.workspace.is_none() {
        Err(PersistenceObstacle::NoVolume)
    } else if !has_state_volume(entry, level) {
        Err(PersistenceObstacle::PlainVolume)
    } else if spec.command.is_none() {
        Err(PersistenceObstacle::NoSupervisor)
    } else if root != RootMechanism::Node && has_other_user(spec) {
        Err(PersistenceObstacle::OtherUser)
    } else if root == RootMechanism::Overlay && !has_namespace {
        Err(PersistenceObstacle::NoUserNamespace)
    } else if root == RootMechanism::Overlay && features.rejected.overlay {
        // Only a volume that has an overlay already: a new one gets an archive. An archive beside
        // the overlay would hide the files that are in it.
        Err(PersistenceObstacle::OverlayRejected)
    } else if root == RootMechanism::Archive && features.rejected.archive {
        Err(PersistenceObstacle::RootRejected)
    } else {
        let profile = Profile::of(spec, config);
        let lacking = |name: &&&&str| !profile.capabilities().any(|own| own == ***name);
        let of_root = match root {
            RootMechanism::Node => &[],
            RootMechanism::Archive => ARCHIVE,
            RootMechanism::Overlay => OVERLAY,
        };
        let keeps_memory = level == PersistenceLevel::Memory
            && config.persistence.memory
            && !has_other_user(spec)
            && !features.rejected.memory;
        let of_memory = if keeps_memory { MEMORY } else { &[] };
        let needed: BTreeSet<_> = of_root.iter().chain(of_memory).collect();
        Ok(Some(PodPersistence {
            level: if keeps_memory {
                level
            } else {
                PersistenceLevel::Root
            },
            root,
            limits: config.persistence.limits,
            withheld: needed
                .iter()
                .filter(lacking)
                .map(|name| (**name).to_owned())
                .collect(),
        }))
    }
}

impl BuildContext<'_> {
    /// Persistence of the Pod that is built.
    pub(super) fn persistence(&self) -> Option<PodPersistence> {
        let persistence = pod_persistence(self.entry, self.level, self.config, self.features);
        persistence.ok().flatten()
    }

    /// Persistence that policies have rejected, if the sandbox asks for any.
    pub(super) fn rejected_persistence(&self) -> Option<RejectedPersistence> {
        let is_asked_for = self.level > PersistenceLevel::Workspace;
        let rejected = self.features.rejected;
        (is_asked_for && !rejected.is_empty()).then_some(rejected)
    }

    /// Access to the state of the sandbox, for the init message of a Pod that runs this image.
    pub(in crate::reconcile) fn state_access(&self, image: &str) -> StateAccess {
        StateAccess {
            key: self.key_set().state_key(&self.entry.uid),
            image: image.to_owned(),
            source: None,
        }
    }
}
