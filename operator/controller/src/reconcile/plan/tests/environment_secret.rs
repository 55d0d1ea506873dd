//! Deletion of the environment Secret, and notes about the Pod in the status.

use super::*;

/// Number of Secret deletions until the plan is stable.
fn deletions(fixture: &mut PlanFixture) -> usize {
    let steps = (0..3).map(|_| fixture.plan_and_apply().actions);
    let deletes = |actions: &Vec<Action>| actions.contains(&Action::DeleteSecret);
    steps.filter(deletes).count()
}

#[test]
fn environment_secret_of_entrypoint_is_deleted_once_after_pod() {
    for (has_command, expected) in [(false, 1), (true, 0)] {
        let mut fixture = PlanFixture::running();
        if !has_command {
            fixture.spec().command = None;
        }
        fixture.set_desired_state(DesiredState::Paused);
        let actions = fixture.plan_and_apply().actions;
        let early = "the container may still restart";
        assert!(!actions.contains(&Action::DeleteSecret), "{early}");
        fixture.lose_pod();
        assert_eq!(deletions(&mut fixture), expected);
        fixture.set_desired_state(DesiredState::Stopped);
        assert_eq!(deletions(&mut fixture), expected);
    }
}

#[test]
fn status_reports_key_rotation_of_pod() {
    let mut fixture = PlanFixture::running();
    fixture.spec().key_rotation = Some(1);
    fixture.entry.generation += 1;
    assert_eq!(fixture.plan_and_apply().status.key_rotation, None);
    fixture.pod().key_rotation = 1;
    assert_eq!(fixture.plan_and_apply().status.key_rotation, Some(1));
    fixture.set_desired_state(DesiredState::Paused);
    fixture.lose_pod();
    assert_eq!(fixture.plan_and_apply().status.key_rotation, Some(1));
}

#[test]
fn pod_note_appears_in_status_message() {
    let mut fixture = PlanFixture::running();
    fixture.pod().note = Some("no such class".into());
    let message = fixture.plan_and_apply().status.message.unwrap();
    assert!(message.ends_with("; no such class"), "{message}");
    fixture.spec().workspace = None;
    let message = fixture.plan_and_apply().status.message.unwrap();
    let both = "; no such class; no workspace";
    assert!(message.contains(both), "{message}");
}

#[test]
fn unschedulable_message_names_claim_and_storage_class() {
    let why = "0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims";
    for (class, expected) in [
        (Some("nope"), "PVC a-workspace, storage class nope"),
        (
            None,
            "PVC a-workspace, default storage class of the cluster",
        ),
    ] {
        let mut fixture = PlanFixture::new();
        let workspace = fixture.spec().workspace.as_mut().unwrap();
        workspace.storage_class_name = class.map(str::to_owned);
        fixture.facts.pod = Some(pod());
        fixture.pod().container.state = ContainerState::Waiting;
        fixture.pod().unschedulable = Some(why.into());
        let message = fixture.after(5).status.message.unwrap();
        assert!(message.starts_with(why), "{message}");
        assert!(message.contains(expected), "{message}");
    }
}
