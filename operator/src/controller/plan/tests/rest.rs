//! Pause, resume, stop, and the deadlines of what is at rest.

use crds::conditions::Reason;
use crds::sandbox::{PauseReason, Phase, PodStatus};

use super::*;

#[test]
fn pausing_deletes_the_pod_and_keeps_the_claim() {
    let mut world = World::running();
    world.want(DesiredState::Paused);
    let plan = world.step();
    assert_eq!(deletes_pod(&plan), Some(Grace::Own));
    assert_eq!(plan.actions.len(), 1);
    assert_eq!(plan.status.phase, Phase::Pausing);
    assert_eq!(plan.status.pod_status, Some(PodStatus::NotFound));
    assert_eq!(plan.status.pod_ip, None);
    assert_eq!(plan.status.paused_at, None);
    let ends = world.now;
    world.pod().deletion = Some(ends);
    assert_eq!(world.step().actions, []);
    world.facts = Facts::default();
    world.step();
    let status = world.status();
    assert_eq!(status.phase, Phase::Paused);
    assert!(status.paused_at.is_some());
    assert_eq!(status.pause_reason, Some(PauseReason::Requested));
    assert_eq!(status.workspace_claim.as_deref(), Some("a-workspace"));
    assert_eq!(condition(status, "Paused").as_deref(), Some("True"));
    assert_eq!(condition(status, "Ready").as_deref(), Some("False"));
}

#[test]
fn a_sandbox_can_be_born_paused() {
    let mut world = World::new();
    world.want(DesiredState::Paused);
    assert_eq!(world.step().actions, []);
    assert_eq!(world.status().phase, Phase::Paused);
}

#[test]
fn a_start_can_be_paused() {
    let mut world = World::new();
    world.step();
    world.facts.pod = Some(pod());
    world.want(DesiredState::Paused);
    assert_eq!(deletes_pod(&world.step()), Some(Grace::Own));
}

#[test]
fn a_pod_that_does_not_end_is_forced_while_pausing() {
    let mut world = World::running();
    world.want(DesiredState::Paused);
    world.step();
    let ends = world.now;
    world.pod().deletion = Some(ends);
    world.pass(30);
    assert_eq!(deletes_pod(&world.step()), Some(Grace::None));
}

#[test]
fn resuming_starts_anew() {
    let mut world = World::running();
    world.entry.status.restarts.count = 2;
    let started = world.status().started_at.clone();
    world.want(DesiredState::Paused);
    world.facts = Facts::default();
    world.step();
    world.pass(3600);
    world.want(DesiredState::Running);
    let plan = world.step();
    assert_eq!(creates_pod(&plan), Some(0));
    let status = world.status();
    assert_eq!(status.phase, Phase::Starting);
    assert_eq!(status.restarts.count, 0);
    assert!(status.started_at > started);
    assert_eq!((&status.paused_at, status.pause_reason), (&None, None));
    assert!(status.ready_at.is_some());
    assert_eq!(condition(status, "Paused"), None);
}

#[test]
fn resuming_before_the_old_pod_is_gone_waits_for_it() {
    let mut world = World::running();
    world.want(DesiredState::Paused);
    world.step();
    let ends = world.now + SignedDuration::from_secs(10);
    world.pod().deletion = Some(ends);
    world.step();
    world.want(DesiredState::Running);
    let plan = world.step();
    assert_eq!(plan.actions, []);
    assert_eq!(plan.status.phase, Phase::Starting);
    world.facts = Facts::default();
    let plan = world.step();
    assert_eq!(creates_pod(&plan), Some(0), "a resume is no restart");
    assert_eq!(plan.status.restarts.count, 0);
}

#[test]
fn what_is_paused_for_too_long_is_stopped() {
    let mut world = World::new();
    world.deadlines.delete_paused_after = Some(60 * MINUTE);
    world.want(DesiredState::Paused);
    let plan = world.step();
    assert_eq!(plan.next, Some(world.now + SignedDuration::from_hours(1)));
    world.pass(3600);
    expires(&mut world);
}

/// Says that it is over, and then lets go of what is left.
fn expires(world: &mut World) {
    assert_eq!(world.plan().actions, []);
    let plan = world.plan();
    assert_eq!(plan.status.phase, Phase::Stopped);
    assert_eq!(plan.status.reason, Some(Reason::Expired));
    world.entry.status = plan.status;
    assert_eq!(world.step().actions, [Action::DeleteClaim]);
    let plan = world.step();
    assert_eq!(plan.actions, []);
    assert_eq!(plan.status.reason, Some(Reason::Expired));
    assert_eq!(plan.next, Some(world.now + SignedDuration::from_hours(24)));
    // It is final: neither a wish nor a changed spec brings the files back.
    world.want(DesiredState::Running);
    world.entry.wake_at = Some(world.now);
    assert_eq!(world.step().actions, []);
    assert_eq!(world.status().phase, Phase::Stopped);
    world.pass(24 * 3600);
    assert_eq!(world.step().actions, [Action::DeleteSandbox]);
}

#[test]
fn what_failed_long_ago_is_stopped() {
    let mut world = World::new();
    world.deadlines.delete_paused_after = Some(60 * MINUTE);
    world.step();
    world.facts.pod = Some(PodFacts {
        trouble: Some(trouble(TroubleKind::ImageName, world.now)),
        ..pod()
    });
    world.step();
    world.facts.pod = None;
    let plan = world.step();
    assert_eq!(plan.next, Some(world.now + SignedDuration::from_hours(1)));
    world.pass(3600);
    expires(&mut world);
}

#[test]
fn stopping_deletes_pod_and_claim_and_leaves_a_tombstone() {
    let mut world = World::running();
    world.want(DesiredState::Stopped);
    let plan = world.step();
    assert_eq!(deletes_pod(&plan), Some(Grace::Own));
    assert!(plan.actions.contains(&Action::DeleteClaim));
    let status = world.status();
    assert_eq!(status.phase, Phase::Stopped);
    assert!(status.stopped_at.is_some());
    assert_eq!(status.workspace_claim, None);
    assert_eq!(status.pod_status, Some(PodStatus::NotFound));
    world.facts = Facts::default();
    let plan = world.step();
    assert_eq!(plan.actions, []);
    assert_eq!(plan.next, Some(world.now + SignedDuration::from_hours(24)));
    world.pass(24 * 3600);
    assert_eq!(world.step().actions, [Action::DeleteSandbox]);
}

#[test]
fn a_claim_that_no_status_mentions_is_deleted_too() {
    let mut world = World::new();
    world.want(DesiredState::Stopped);
    assert_eq!(world.step().actions, [Action::DeleteClaim]);
    world.spec().workspace = None;
    assert_eq!(world.step().actions, []);
}

#[test]
fn a_tombstone_without_deadline_stays() {
    let mut world = World::new();
    world.deadlines.delete_stopped_after = None;
    world.want(DesiredState::Stopped);
    world.step();
    world.pass(1_000_000);
    let plan = world.step();
    assert_eq!((plan.actions, plan.next), (vec![], None));
}

#[test]
fn what_is_paused_can_be_stopped() {
    let mut world = World::running();
    world.want(DesiredState::Paused);
    world.facts = Facts::default();
    world.step();
    world.want(DesiredState::Stopped);
    assert_eq!(world.step().actions, [Action::DeleteClaim]);
    assert_eq!(world.status().paused_at, None);
}

#[test]
fn the_pod_of_a_resume_whose_status_got_lost_is_kept() {
    let mut world = World::new();
    world.want(DesiredState::Paused);
    world.step();
    world.pass(10);
    world.want(DesiredState::Running);
    let plan = world.plan();
    assert_eq!(creates_pod(&plan), Some(0));
    world.facts.pod = Some(PodFacts {
        created_at: Some(world.now),
        ..pod()
    });
    let plan = world.step();
    assert_eq!(plan.actions, []);
    assert_eq!(plan.status.phase, Phase::Starting);
    assert!(plan.asks);
}
