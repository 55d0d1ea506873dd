//! State that pauses keep and starts restore: the save before a pause, `status.persisted`,
//! `status.restored` and the incarnation.

use crds::contract::persistence::{KeptState, PersistenceLevel, RootMechanism};
use crds::sandbox::{PersistedState, Phase, RestoredState};
use jiff::Timestamp;

use super::Planner;
use crate::facts::{ContainerState, PodFacts, ProbeResult, SaveProgress};

/// Reason of a Pod that the controller created before a probe had found out that Pods can keep more.
const MADE_WITHOUT: &str = "the Pod was created before more was known to work";
/// Reason of a Pod that was deleted or lost before the end of a save. Its supervisor saves at
/// SIGTERM as well, which only the next start finds out.
const ENDED_BEFORE: &str = "the Pod ended before it reported a save";

impl Planner<'_> {
    /// Returns whether a Pod that is paused has to stay because its state is not saved, or because
    /// the status does not say yet what was kept.
    pub(super) fn awaits_save(&mut self, pod: &PodFacts) -> bool {
        pod.grace_ends_at.is_none() && self.continue_save(pod)
    }

    /// Has the supervisor of a terminating Pod end the command and save its state where no kubelet
    /// does, because the node is silent. The Pod is force-deleted in the end also without a
    /// response (`docs/decisions/015-force-delete-lost-pods.md`).
    pub(super) fn save_on_silent_node(&mut self, pod: &PodFacts) {
        // A save that has begun is followed to its end also if the node reports again.
        let saves = pod.node_silent || self.facts.save.is_some();
        if saves && pod.grace_ends_at.is_some() {
            self.continue_save(pod);
        }
    }

    /// Plans the save of a Pod, or records its result. Returns whether there was anything to do.
    fn continue_save(&mut self, pod: &PodFacts) -> bool {
        if self.is_saved(pod) {
            return false;
        }
        let runs = matches!(pod.container.state, ContainerState::Running { .. });
        if pod.persistence.is_none() || pod.ip.is_none() || !runs {
            return false;
        }
        match &self.facts.save {
            Some(SaveProgress::Done(kept, at)) => {
                self.record_persisted(pod, kept.clone(), *at);
                // Written before the Pod goes, so that a crash in between loses no fact.
                self.requeue_no_later_than(Some(self.now));
            }
            Some(SaveProgress::Saving) | None => self.plan.save = true,
        }
        true
    }

    /// Returns whether a save that has begun keeps a sandbox from being started again: the command
    /// has been stopped, and the Pod is replaced once its state is complete.
    pub(super) fn finishes_save(&mut self) -> bool {
        let pausing = self.input.entry.status.phase == Phase::Pausing;
        let Some(pod) = self.facts.pod.as_ref().filter(|_| pausing) else {
            return false;
        };
        match &self.facts.save {
            Some(SaveProgress::Saving) if pod.grace_ends_at.is_none() => {
                self.plan.save = true;
                true
            }
            Some(SaveProgress::Done(kept, at)) if !self.is_saved(pod) => {
                self.record_persisted(pod, kept.clone(), *at);
                false
            }
            _ => false,
        }
    }

    /// Returns whether the command of this Pod was stopped to save its state.
    pub(super) fn has_begun_save(&self, pod: &PodFacts) -> bool {
        self.facts.save.is_some() || self.is_saved(pod)
    }

    fn is_saved(&self, pod: &PodFacts) -> bool {
        let persisted = self.input.entry.status.persisted.as_ref();
        persisted.is_some_and(|persisted| persisted.pod_uid.as_ref() == Some(&pod.uid))
    }

    /// Records a save. `None`: the command had not begun, so that an earlier save still holds.
    fn record_persisted(&mut self, pod: &PodFacts, kept: Option<KeptState>, at: Timestamp) {
        let pod_uid = Some(pod.uid.clone());
        let Some(kept) = kept else {
            let persisted = self.plan.status.persisted.get_or_insert_default();
            persisted.pod_uid = pod_uid;
            return;
        };
        self.plan.status.persisted = Some(PersistedState {
            level: kept.level,
            at: Some(at.into()),
            size: kept.bytes.and_then(|bytes| i64::try_from(bytes).ok()),
            image_digest: pod.container.image.clone(),
            pod_uid,
            reason: kept.reason.or_else(|| self.reason_of(kept.level)),
        });
    }

    /// Records the end of a Pod that keeps its workspace only although more is asked for, while the
    /// Pod can still tell the reason.
    pub(super) fn record_end_below_level(&mut self, pod: &PodFacts) {
        if pod.persistence.is_none() && self.obstacle().is_some() {
            self.record_end_without_save();
        }
    }

    /// Records what a Pod has left that ended without a call to save: one of level `Workspace`, or
    /// one that its node or another client ended. A save since the sandbox was last ready stands.
    pub(super) fn record_end_without_save(&mut self) {
        let status = &self.plan.status;
        let saved = status.persisted.as_ref().and_then(|kept| kept.at.as_ref());
        let Some(ready) = status.ready_at.as_ref() else {
            return;
        };
        if status.workspace_claim.is_none() || saved.is_some_and(|saved| saved.0 >= ready.0) {
            return;
        }
        let (level, reason) = match status.root_mechanism {
            _ if self.input.level == PersistenceLevel::Workspace || self.obstacle().is_some() => {
                (PersistenceLevel::Workspace, self.obstacle())
            }
            // All changes are on the volume at any time.
            Some(RootMechanism::Node | RootMechanism::Overlay) => (PersistenceLevel::Root, None),
            Some(RootMechanism::Archive) | None => (PersistenceLevel::Workspace, None),
        };
        let unsaved = (level < self.input.level).then(|| ENDED_BEFORE.to_owned());
        self.plan.status.persisted = Some(PersistedState {
            level,
            at: Some(self.now.into()),
            reason: reason.or(unsaved),
            ..PersistedState::default()
        });
    }

    /// Reason for a level, if it is less than the one that is asked for.
    fn reason_of(&self, level: PersistenceLevel) -> Option<String> {
        self.obstacle().filter(|_| level < self.input.level)
    }

    /// Reason for a Pod that keeps its workspace only, if nothing hinders a new one from more.
    fn made_without(&self, pod: &PodFacts) -> Option<String> {
        let asks_for_more = self.input.level > PersistenceLevel::Workspace;
        (asks_for_more && pod.persistence.is_none()).then(|| MADE_WITHOUT.to_owned())
    }

    fn obstacle(&self) -> Option<String> {
        let obstacle = self.input.persistence_obstacle?;
        Some(obstacle.to_string())
    }

    /// Counts processes that are others than those with which the sandbox was last ready. An id tells
    /// them apart, also if they were saved before the sandbox was ready; without one the report of
    /// their Pod does.
    pub(super) fn record_processes(&mut self, pod: &PodFacts) {
        let before = &self.input.entry.status;
        let start = &self.facts.start;
        let is_known = self.is_known(pod);
        let id_before = before.processes_id.as_ref();
        let went_on = match (id_before, &start.processes_id) {
            (Some(before), Some(now)) => before == now,
            // Processes that began without an id never get one.
            (None, Some(_)) if before.ready_at.is_some() => is_known,
            _ => is_known || (pod.persistence.is_some() && start.has_saved_processes()),
        };
        let is_reported = self.facts.readiness == Some(ProbeResult::Ready);
        let status = &mut self.plan.status;
        status.incarnation = status.incarnation.saturating_add(u32::from(!went_on));
        if !is_known || is_reported {
            status.processes_id.clone_from(&start.processes_id);
        }
    }

    /// Counts a restart of processes that have no id.
    pub(super) fn count_unidentified_processes(&mut self, pod: &PodFacts) {
        let is_recorded = self.plan.status.pod_uid.as_ref() == Some(&pod.uid);
        let status = &mut self.plan.status;
        if status.processes_id.is_none() && is_recorded {
            status.incarnation = status.incarnation.saturating_add(1);
        }
    }

    /// Returns whether the sandbox was last ready with this Pod.
    fn is_known(&self, pod: &PodFacts) -> bool {
        let before = &self.input.entry.status;
        // An automatic pause that was cancelled has cleared the uid.
        let keeps = before.phase == Phase::Pausing && pod.restarts() <= before.restarts.count;
        keeps || before.pod_uid.as_ref() == Some(&pod.uid)
    }

    /// Records what a Pod that becomes ready began with.
    pub(super) fn record_restored(&mut self, pod: &PodFacts) {
        let before = &self.input.entry.status;
        if self.is_known(pod) {
            return;
        }
        let restored = match &self.facts.start.restored {
            Some(restored) if pod.persistence.is_some() => restored.clone(),
            _ => KeptState {
                reason: self.obstacle().or_else(|| self.made_without(pod)),
                ..KeptState::of(PersistenceLevel::Workspace)
            },
        };
        let is_first = before.incarnation == 0 && before.restored.is_none();
        let spec = &self.input.entry.spec;
        let begins_with_state = !is_first || spec.source.is_some();
        if begins_with_state && spec.workspace.is_some() {
            self.plan.status.restored = Some(RestoredState {
                level: restored.level,
                at: Some(self.now.into()),
                reason: restored.reason.or_else(|| self.reason_of(restored.level)),
            });
        }
    }
}
