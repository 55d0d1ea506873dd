//! Search for the highest persistence of a new Pod that admission policies admit.

use k8s_openapi::api::core::v1::Pod;

use crate::context::Context;
use crate::facts::PERSISTENCE_ANNOTATION;
use crate::pod_features::PodFeatures;
use crate::rejected_persistence::{AdmissionScope, RejectedPersistence};
use shared::kubernetes::owned_objects::CreateError;

/// State of the search: the kinds of Pods that are known to be rejected.
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

    /// Begins at the top, for a sandbox whose saved state a Pod with less persistence would leave out
    /// or discard.
    pub(crate) fn from_the_top(namespace: &str, class: Option<&str>) -> Self {
        Self {
            scope: (namespace.to_owned(), class.map(str::to_owned)),
            rejected: RejectedPersistence::default(),
            has_news: false,
        }
    }

    /// The features, without what is known to be rejected, for the next Pod to try.
    pub(crate) fn admitted(&self, features: PodFeatures) -> PodFeatures {
        PodFeatures {
            rejected: self.rejected,
            ..features
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
            let now = context.clock.now();
            context.rejections.insert(scope, rejected, now);
        }
    }
}
