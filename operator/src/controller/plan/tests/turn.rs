//! Sandboxes whose tenant has reached its limits.

use crds::conditions::Reason;
use crds::sandbox::{Phase, PodStatus};

use super::*;
use crate::controller::facts::Turn;

#[test]
fn a_start_counts_from_the_turn_and_not_from_the_wait_for_it() {
    let mut world = World::new();
    world.facts.turn = Turn::Waits("waits for its turn".into());
    let plan = world.step();
    assert!(plan.actions.is_empty());
    assert_eq!(world.status().reason, Some(Reason::QuotaExceeded));
    assert_eq!(world.status().pod_status, Some(PodStatus::Pending));
    world.pass(14 * 60);
    world.step();
    world.facts.turn = Turn::Has;
    assert_eq!(creates_pod(&world.step()), Some(0));
    assert_eq!(world.status().started_at.as_ref().unwrap().0, world.now);
    world.pass(14 * 60);
    world.step();
    assert_eq!(world.status().phase, Phase::Starting);
}

#[test]
fn what_never_fits_is_given_up_at_once() {
    let mut world = World::new();
    world.facts.turn = Turn::Never("the sandbox needs more than its API key may use".into());
    world.step();
    let status = world.status();
    assert_eq!(
        (status.phase, status.reason),
        (Phase::Failed, Some(Reason::QuotaExceeded))
    );
}
