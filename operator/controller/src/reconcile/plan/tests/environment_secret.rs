//! The environment Secret that a Pod lacks, and notes about the Pod in the status.

use super::*;

#[test]
fn missing_environment_secret_is_created() {
    let mut fixture = PlanFixture::starting();
    fixture.facts.pod = Some(pod());
    fixture.pod().container.state = ContainerState::Waiting;
    let problem = start_problem(StartProblemKind::MissingReference, fixture.now);
    for (missing, created) in [("a-1-sbx-env", true), ("mine", false)] {
        fixture.pod().start_problem = Some(StartProblem {
            message: format!("CreateContainerConfigError: secret {missing:?} not found"),
            ..problem.clone()
        });
        fixture.pod().environment_secret = Some("a-1-sbx-env".into());
        let actions = fixture.plan_and_apply().actions;
        let creates = actions.contains(&Action::CreateSecret);
        assert_eq!(creates, created, "{missing}");
    }
}

#[test]
fn namespace_is_isolated_before_the_first_pod_and_while_there_is_one() {
    let mut fixture = PlanFixture::new();
    fixture.facts.isolation_due = true;
    let first = fixture.plan_and_apply().actions;
    assert_eq!(first[0], Action::IsolateNamespace);
    let mut fixture = PlanFixture::running();
    fixture.facts.isolation_due = true;
    assert_eq!(fixture.plan_and_apply().actions, [Action::IsolateNamespace]);
    fixture.set_desired_state(DesiredState::Paused);
    fixture.facts.pod = None;
    assert_eq!(fixture.plan_and_apply().actions, []);
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
