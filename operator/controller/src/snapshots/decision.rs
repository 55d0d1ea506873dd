//! Next step of a snapshot, from its object and the facts about its sandbox.

use crds::SandboxSnapshot;
use crds::sandbox::{DesiredState, Phase};
use crds::snapshot::SnapshotPhase;
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt as _;

use super::expiry;
use crate::facts::PodFacts;
use crate::reconcile::observe::Observed;

/// Time from the creation of a snapshot in which its sandbox has to get ready, and its turn to come.
const MAX_WAIT: SignedDuration = SignedDuration::from_mins(15);

/// The next step.
#[derive(Debug)]
pub(super) enum Step<'a> {
    /// It has expired.
    Delete,
    /// It is finished.
    Rest,
    /// The sandbox is not ready, with a sentence for people.
    Wait(&'static str),
    Fail(String),
    /// The supervisor of this Pod is asked.
    Take {
        source: &'a Observed,
        pod: &'a PodFacts,
    },
}

pub(super) fn decide<'a>(
    snapshot: &SandboxSnapshot,
    source: Option<&'a Observed>,
    now: Timestamp,
) -> Step<'a> {
    if snapshot.metadata.deletion_timestamp.is_some() {
        return Step::Rest;
    }
    if expiry(snapshot).is_some_and(|at| at <= now) {
        return Step::Delete;
    }
    if matches!(
        snapshot.phase(),
        SnapshotPhase::Ready | SnapshotPhase::Failed
    ) {
        return Step::Rest;
    }
    // A copy that has begun has a limit of its own.
    if snapshot.phase() == SnapshotPhase::Pending && is_overdue(snapshot, now) {
        return Step::Fail("it could not be taken in time".into());
    }
    match check(snapshot, source) {
        Ok(Some((source, pod))) => Step::Take { source, pod },
        Ok(None) => Step::Wait("the sandbox is starting"),
        Err(message) => Step::Fail(message),
    }
}

/// Pod whose supervisor can be asked; `None` if the sandbox is not ready yet.
fn check<'a>(
    snapshot: &SandboxSnapshot,
    source: Option<&'a Observed>,
) -> Result<Option<(&'a Observed, &'a PodFacts)>, String> {
    let name = &snapshot.spec.sandbox;
    let source = source.ok_or_else(|| format!("there is no sandbox {name}"))?;
    let (entry, known) = (&source.entry, snapshot.status.as_ref());
    let tenant = entry.session().map(|session| session.tenant.as_str());
    if snapshot
        .spec
        .tenant
        .as_deref()
        .is_some_and(|own| Some(own) != tenant)
    {
        return Err(format!("there is no sandbox {name}"));
    }
    let begun_with = known.and_then(|status| status.sandbox_uid.as_deref());
    if begun_with.is_some_and(|uid| uid != entry.uid) {
        return Err("the sandbox was deleted before its state was copied".into());
    }
    let is_ending = entry.desired_state() != DesiredState::Running || entry.deleting;
    let is_over = matches!(
        entry.status.phase,
        Phase::Pausing | Phase::Paused | Phase::Stopped | Phase::Failed
    );
    if is_ending || (is_over && entry.status.observed_generation == Some(entry.generation)) {
        return Err("the sandbox does not run; a snapshot is taken of one that runs".into());
    }
    let pod = source.facts.pod.as_ref();
    let Some(pod) = pod.filter(|_| entry.status.phase == Phase::Running) else {
        return Ok(None);
    };
    let begun_in = known.and_then(|status| status.pod_uid.as_deref());
    if begun_in.is_some_and(|uid| uid != pod.uid) {
        return Err("the Pod of the sandbox was lost before its state was copied".into());
    }
    if pod.persistence.is_none() {
        let reason = source
            .persistence_obstacle
            .map(|obstacle| format!(": {obstacle}"));
        return Err(format!(
            "the sandbox keeps its workspace alone, and has no room for a snapshot{}",
            reason.unwrap_or_default()
        ));
    }
    Ok(Some((source, pod)))
}

fn is_overdue(snapshot: &SandboxSnapshot, now: Timestamp) -> bool {
    let created_at = snapshot.creation_timestamp();
    created_at.is_some_and(|at| now.duration_since(at.0) > MAX_WAIT)
}
