//! Targets of readiness probes: a supervisor, which may have to be initialized first, or a port.

use std::sync::Arc;

use crds::contract::control::{Init, ReadyReport, SupervisorState};
use crds::contract::identity::IdentityKey;
use jiff::Timestamp;

use crate::probes::supervisor_client::SupervisorError;

/// Builds the init message of a sandbox when its Pod is dormant. A malformed one is reported by the
/// next reconcile.
pub(crate) type MakeInit = Arc<dyn Fn() -> Result<Init, SupervisorError> + Send + Sync>;

/// Target of a readiness probe.
#[derive(Clone)]
pub(crate) enum ProbeTarget {
    /// A supervisor, which may have to be initialized first.
    Supervisor {
        init: MakeInit,
        /// `None` for Pods of earlier versions.
        identity: Option<IdentityKey>,
        /// Time that decides on the keys: creation of the Sandbox, or of a Pod that was warm.
        created_at: Option<Timestamp>,
        owner: ExpectedOwner,
    },
    /// A port.
    Port(u16),
}

impl ProbeTarget {
    /// Returns whether the Pod was warm.
    pub(super) fn is_claimed(&self) -> bool {
        matches!(self, Self::Supervisor { owner, .. } if owner.is_required)
    }
}

/// Sandbox that an initialized supervisor has to belong to.
#[derive(Debug, Clone)]
pub(crate) struct ExpectedOwner {
    pub(crate) sandbox_uid: String,
    /// A supervisor that names no Sandbox is another one's. Pods of earlier versions name none.
    pub(crate) is_required: bool,
}

impl ExpectedOwner {
    pub(super) fn accepts(&self, report: &ReadyReport) -> bool {
        match &report.owner {
            Some(owner) => owner.sandbox_uid == self.sandbox_uid,
            None => report.state == SupervisorState::Dormant || !self.is_required,
        }
    }
}
