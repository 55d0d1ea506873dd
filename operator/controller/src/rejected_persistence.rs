//! Persistence that admission policies, such as Pod Security, keep from Pods: those Pods have
//! privileges that a policy may reject. A Pod that is rejected is created with less persistence.

use crds::contract::persistence::{PersistenceLevel, PodPersistence, RootMechanism};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::context::Context;
use crate::facts::PERSISTENCE_ANNOTATION;
use crate::pod_features::PodFeatures;
use shared::kubernetes::owned_objects::CreateError;
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
    fn add(&mut self, rejected: &PodPersistence) -> bool {
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
type AdmissionScope = (String, Option<String>);

/// Rejections of the last minutes, so that not every start begins with rejected requests. They
/// decide on new Pods only. The reason in a status is read from the Pod, which has an annotation.
#[derive(Debug, Default)]
pub(crate) struct RecentRejections(
    Mutex<RecentMap<AdmissionScope, (RejectedPersistence, Timestamp), MAX_SCOPES>>,
);

impl RecentRejections {
    fn get(&self, scope: &AdmissionScope, now: Timestamp) -> RejectedPersistence {
        let known = self.0.lock().get(scope).copied();
        let recent = known.filter(|(_, at)| now.duration_since(*at).abs() < MAX_AGE);
        recent.map_or_else(Default::default, |(rejected, _)| rejected)
    }
}

/// Search for the highest persistence of a new Pod that the policies admit.
#[derive(Debug)]
pub(crate) struct AdmissionSearch {
    scope: AdmissionScope,
    rejected: RejectedPersistence,
    has_news: bool,
}

impl AdmissionSearch {
    /// Begins below the kinds that were rejected in the last minutes.
    pub(crate) fn new(context: &Context, namespace: &str, class: Option<&str>) -> Self {
        let scope = (namespace.to_owned(), class.map(str::to_owned));
        Self {
            rejected: context.rejections.get(&scope, context.clock.now()),
            scope,
            has_news: false,
        }
    }

    /// Features of the next Pod to try.
    pub(crate) fn features(&self, context: &Context) -> PodFeatures {
        PodFeatures {
            rejected: self.rejected,
            ..context.pod_features()
        }
    }

    /// Notes the rejection of this Pod. Returns whether a Pod with less persistence is to be tried,
    /// which happens at most three times.
    pub(crate) fn descend(&mut self, pod: &Pod, error: &CreateError) -> bool {
        let annotations = pod.metadata.annotations.as_ref();
        let persistence = annotations.and_then(|all| all.get(PERSISTENCE_ANNOTATION));
        let persistence = persistence.and_then(|text| serde_json::from_str(text).ok());
        let is_lower = error.is_policy_rejection()
            && persistence.is_some_and(|persistence| self.rejected.add(&persistence));
        self.has_news |= is_lower;
        is_lower
    }

    /// Remembers the rejections once a Pod was created. A Pod that is rejected with any persistence
    /// has another fault, which is no matter of other Pods.
    pub(crate) fn record(self, context: &Context) {
        if self.has_news {
            let Self {
                scope, rejected, ..
            } = self;
            let (namespace, class) = &scope;
            tracing::info!(
                namespace,
                class,
                ?rejected,
                "admission policies reject persistence; Pods are created with less"
            );
            let known = (rejected, context.clock.now());
            context.rejections.0.lock().insert(scope, known);
        }
    }
}
