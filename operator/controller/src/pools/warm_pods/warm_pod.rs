//! One warm Pod, as the index knows it.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::facts::{ContainerState, PodFacts, PodPhase};
use crate::pod_meter::{MeteredPod, PodMeter, PodUse};
use shared::kubernetes::slim::SlimPod;

/// Time after which the write of a claim or deletion has failed or succeeded.
pub(super) const OVERDUE: Duration = Duration::from_secs(30);

/// One warm Pod.
#[derive(Debug, Clone)]
pub(crate) struct WarmPod {
    pub(crate) resource_version: String,
    pub(crate) shape: String,
    pub(crate) revision: String,
    pub(crate) facts: Arc<PodFacts>,
    pub(super) taken: Option<Taken>,
    /// A watch or list has shown the Pod, so its absence from a list means that it is gone.
    pub(super) is_confirmed: bool,
    pub(super) _metered: Option<Arc<MeteredPod>>,
}

/// A claim or deletion that has begun. Its outcome is unknown if the API server did not answer.
#[derive(Debug, Clone)]
pub(super) struct Taken {
    pub(super) at: Instant,
    /// Uid of the sandbox that claims the Pod.
    pub(super) by: Option<String>,
}

impl WarmPod {
    pub(super) fn read(pod: &SlimPod, is_confirmed: bool, meter: &Arc<PodMeter>) -> Option<Self> {
        let facts = PodFacts::read(pod)?;
        Some(Self {
            resource_version: pod.metadata.resource_version.clone()?,
            shape: facts.shape.clone().unwrap_or_default(),
            revision: facts.revision.clone().unwrap_or_default(),
            facts: Arc::new(facts),
            taken: None,
            is_confirmed,
            _metered: meter.track(PodUse::Warm, pod).map(Arc::new),
        })
    }

    /// Returns whether a sandbox can claim it.
    pub(crate) fn is_ready(&self) -> bool {
        let facts = &self.facts;
        let runs = matches!(facts.container.state, ContainerState::Running { .. })
            && !facts.container.is_starting_up;
        let healthy = facts.phase == PodPhase::Running && !facts.node_silent;
        healthy && runs && facts.ip.is_some() && !self.is_ending()
    }

    /// Returns whether it is claimed, deleted, or about to be.
    pub(crate) fn is_ending(&self) -> bool {
        self.taken.is_some() || self.is_terminating()
    }

    pub(crate) fn is_terminating(&self) -> bool {
        self.facts.grace_ends_at.is_some()
    }

    /// Returns whether it will not be ready again. A node that is silent may come back; until then
    /// another Pod takes the place.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(
            self.facts.phase,
            PodPhase::Failed | PodPhase::Succeeded | PodPhase::Unknown
        ) || self.facts.node_silent
    }

    /// Time at which a claim or deletion has taken longer than any call.
    pub(crate) fn overdue_at(&self) -> Option<Instant> {
        self.taken.as_ref().map(|taken| taken.at + OVERDUE)
    }

    pub(super) fn is_being_claimed(&self) -> bool {
        self.taken.as_ref().is_some_and(|taken| taken.by.is_some())
    }

    pub(super) fn is_claimed_by(&self, sandbox_uid: &str) -> bool {
        let taken = self.taken.as_ref();
        taken.is_some_and(|taken| taken.by.as_deref() == Some(sandbox_uid))
    }

    /// Obstacle that keeps it from becoming ready.
    pub(crate) fn problem(&self) -> Option<String> {
        let facts = &self.facts;
        if facts.container.state == ContainerState::BackingOff {
            let end = facts.container.describe_termination();
            return Some(format!(
                "the container terminated ({end}) and is being restarted"
            ));
        }
        let problem = facts.start_problem.as_ref().map(|p| &p.message);
        problem.or(facts.unschedulable.as_ref()).cloned()
    }

    pub(super) fn version(&self) -> Option<u64> {
        self.resource_version.parse().ok()
    }
}
