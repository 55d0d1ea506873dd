//! Persistence that admission policies, such as Pod Security, keep from Pods: those Pods have
//! privileges that a policy may reject. A Pod that is rejected is created with less persistence.

use crds::contract::persistence::{PersistenceLevel, PodPersistence, RootMechanism};
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use shared::recent_map::RecentMap;

/// Age from which a rejection is forgotten. The next start then finds out whether the policies of
/// the namespace have changed, at the price of at most three rejected requests.
const MAX_AGE: SignedDuration = SignedDuration::from_mins(10);
/// Number of namespaces and runtime classes whose rejections are known.
const MAX_SCOPES: usize = 10_000;

/// Kinds of Pods that were rejected. Their order, from most to least privileges, is that of the
/// fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RejectedPersistence {
    /// Pods of level `Memory`, with either mechanism.
    pub memory: bool,
    /// Pods of level `Root` that mount an overlay.
    pub overlay: bool,
    /// Pods of level `Root` that write an archive.
    pub archive: bool,
}

impl RejectedPersistence {
    pub(crate) fn is_empty(self) -> bool {
        self == Self::default()
    }

    /// Adds the kind of a rejected Pod. Returns whether that is news, so that a Pod with less
    /// persistence can be built.
    pub(crate) fn add(&mut self, rejected: &PodPersistence) -> bool {
        let kind = match (rejected.level, rejected.root) {
            (PersistenceLevel::Memory, _) => &mut self.memory,
            (PersistenceLevel::Root, RootMechanism::Overlay) => &mut self.overlay,
            (PersistenceLevel::Root, RootMechanism::Archive) => &mut self.archive,
            // No Pod of these has a privilege more than one that keeps its workspace only.
            (PersistenceLevel::Root, RootMechanism::Node) | (PersistenceLevel::Workspace, _) => {
                return false;
            }
        };
        !std::mem::replace(kind, true)
    }
}

/// Namespace and runtime class of a Pod: those that Pod Security decides by, besides the Pod itself.
pub(crate) type AdmissionScope = (String, Option<String>);

/// Rejections of the last minutes, so that not every start begins with rejected requests. They
/// decide on new Pods only. The reason in a status is read from the Pod, which has an annotation.
#[derive(Debug, Default)]
pub(crate) struct RecentRejections(
    Mutex<RecentMap<AdmissionScope, (RejectedPersistence, Timestamp), MAX_SCOPES>>,
);

impl RecentRejections {
    pub(crate) fn get(&self, scope: &AdmissionScope, now: Timestamp) -> RejectedPersistence {
        let known = self.0.lock().get(scope).copied();
        let recent = known.filter(|(_, at)| now.duration_since(*at).abs() < MAX_AGE);
        recent.map_or_else(Default::default, |(rejected, _)| rejected)
    }

    pub(crate) fn insert(
        &self,
        scope: AdmissionScope,
        rejected: RejectedPersistence,
        now: Timestamp,
    ) {
        self.0.lock().insert(scope, (rejected, now));
    }
}
