//! Starts that are queued or rejected by the quota of their API key.

use super::*;
use crate::facts::QuotaDecision;

#[test]
fn start_timeout_begins_when_quota_is_granted() {
    let mut fixture = PlanFixture::new();
    fixture.facts.quota = QuotaDecision::Queued("waiting for quota".into());
    let plan = fixture.plan_and_apply();
    assert!(plan.actions.is_empty());
    assert_eq!(fixture.status().reason, Some(Reason::QuotaExceeded));
    assert_eq!(fixture.status().pod_status, Some(PodStatus::Pending));
    fixture.advance(14 * 60);
    fixture.plan_and_apply();
    fixture.facts.quota = QuotaDecision::Admitted;
    assert_eq!(creates_pod(&fixture.plan_and_apply()), Some(0));
    assert_eq!(fixture.status().started_at.as_ref().unwrap().0, fixture.now);
    fixture.advance(14 * 60);
    fixture.plan_and_apply();
    assert_eq!(fixture.status().phase, Phase::Starting);
}

#[test]
fn start_fails_immediately_when_it_exceeds_quota() {
    let mut fixture = PlanFixture::new();
    fixture.facts.quota =
        QuotaDecision::Exceeded("the sandbox requests more than the API key allows".into());
    fixture.plan_and_apply();
    let status = fixture.status();
    assert_eq!(
        (status.phase, status.reason),
        (Phase::Failed, Some(Reason::QuotaExceeded))
    );
}
