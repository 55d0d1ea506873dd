//! What a plan says of a Pod that is not quite what the spec asks for, and when the Secret of one
//! without supervisor goes.

use super::*;

/// How often the Secret is deleted until nothing changes any more.
fn deletions(world: &mut World) -> usize {
    let steps = (0..3).map(|_| world.step().actions);
    let deletes = |actions: &Vec<Action>| actions.contains(&Action::DeleteSecret);
    steps.filter(deletes).count()
}

#[test]
fn a_secret_goes_once_with_the_pod_that_it_was_for() {
    let mut world = World::running();
    world.spec().command = None;
    world.want(DesiredState::Paused);
    let plan = world.step();
    assert!(
        !plan.actions.contains(&Action::DeleteSecret),
        "the Pod may start once more"
    );
    world.facts = Facts::default();
    assert_eq!(deletions(&mut world), 1);
    world.want(DesiredState::Stopped);
    assert_eq!(deletions(&mut world), 1);
}

#[test]
fn a_supervised_sandbox_has_no_secret() {
    let mut world = World::running();
    world.facts = Facts::default();
    for state in [DesiredState::Paused, DesiredState::Stopped] {
        world.want(state);
        assert_eq!(deletions(&mut world), 0);
    }
}

#[test]
fn the_status_tells_the_key_that_the_pod_has() {
    let mut world = World::running();
    world.spec().key_rotation = Some(1);
    world.entry.generation += 1;
    world.step();
    assert_eq!(world.status().key_rotation, None);
    world.pod().edition.key_rotation = 1;
    world.step();
    assert_eq!(world.status().key_rotation, Some(1));
    world.want(DesiredState::Paused);
    world.facts = Facts::default();
    world.step();
    assert_eq!(world.status().key_rotation, Some(1));
}

#[test]
fn what_the_owner_should_know_stands_in_the_message() {
    let mut world = World::running();
    assert_eq!(world.status().message, None);
    world.pod().edition.note = Some("no such class".into());
    assert_eq!(
        world.step().status.message.as_deref(),
        Some("no such class")
    );
    world.spec().workspace = None;
    let message = world.step().status.message.unwrap();
    assert!(
        message.starts_with("no such class; there is no workspace"),
        "{message}"
    );
}

#[test]
fn a_volume_that_does_not_come_is_named_with_its_class() {
    let why = "0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims";
    for (class, told) in [
        (Some("nope"), "claim a-workspace, storage class nope"),
        (
            None,
            "claim a-workspace, the cluster's default storage class",
        ),
    ] {
        let mut world = World::new();
        let workspace = world.spec().workspace.as_mut().unwrap();
        workspace.storage_class_name = class.map(str::to_owned);
        world.step();
        world.facts.pod = Some(pod());
        world.pod().container.state = ContainerState::Waiting;
        world.pod().unschedulable = Some(why.into());
        world.pass(5);
        let message = world.step().status.message.unwrap();
        assert!(
            message.starts_with(why) && message.contains(told),
            "{message}"
        );
    }
}
