use super::*;
use crate::facts::spec_revision::SpecRevision;

#[test]
fn running_sandbox_reports_that_a_changed_spec_needs_a_restart() {
    let mut fixture = PlanFixture::running();
    let needed = |fixture: &PlanFixture| {
        let mut all = fixture.status().conditions.iter();
        all.any(|c| c.type_ == "RestartNeeded" && c.status == "True" && c.reason == "SpecChanged")
    };
    assert!(!needed(&fixture));
    let revision = SpecRevision::new(1, &fixture.entry.spec);
    fixture.spec().resource_factor = Some(2.0);
    fixture.entry.generation = 2;
    fixture.facts.spec_changed = revision.differs_from(2, &fixture.entry.spec);
    fixture.plan_and_apply();
    assert!(needed(&fixture));
    fixture.facts.spec_changed = false;
    fixture.plan_and_apply();
    assert!(!needed(&fixture));
}

#[test]
fn pod_of_terminating_sandbox_is_force_deleted_when_its_node_is_dead() {
    let mut fixture = PlanFixture::running();
    fixture.entry.deleting = true;
    fixture.pod().grace_ends_at = Some(fixture.now);
    assert_eq!(fixture.plan_and_apply().actions, []);
    fixture.advance(30);
    let deletion = Action::DeletePod {
        uid: fixture.pod().uid.clone(),
        grace: DeletionGrace::Force,
    };
    assert_eq!(fixture.plan_and_apply().actions, [deletion]);
}
