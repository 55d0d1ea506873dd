use crds::sandbox::{SandboxSpec, Session};
use jiff::Timestamp;
use serde_json::json;

use super::*;
use crate::tests::{entry, key};

/// Quota of a tenant `t`.
struct QuotaFixture {
    quota: QuotaQueue,
    tenants: Tenants,
}

impl QuotaFixture {
    fn new(limits: serde_json::Value) -> Self {
        let tenants = Tenants::fixed([]);
        let fixture = Self {
            quota: QuotaQueue::new(tenants.clone(), Arc::default()),
            tenants,
        };
        fixture.limit(limits);
        fixture
    }

    fn limit(&self, mut record: serde_json::Value) {
        record["name"] = "t".into();
        record["sha256"] = "0".repeat(64).into();
        let json = json!([record]).to_string();
        self.tenants.replace(json.as_bytes()).unwrap();
    }

    fn decide(&self, entry: &Entry, has_pod: bool) -> &'static str {
        match self.quota.request(entry, has_pod, &Defaults::default()) {
            QuotaDecision::Admitted => "admitted",
            QuotaDecision::Queued(_) => "queued",
            QuotaDecision::Exceeded(_) => "exceeded",
        }
    }
}

/// A sandbox created at this second.
fn sandbox(made: i64) -> Entry {
    let name = format!("{made:016}");
    let session = Session {
        tenant: "t".into(),
        id: made.to_string(),
        ..Session::default()
    };
    Entry {
        key: key(&name),
        uid: name.clone(),
        created_at: Some(Timestamp::from_second(made).unwrap()),
        runtime_id: name,
        ..entry(SandboxSpec {
            session: Some(session),
            ..SandboxSpec::default()
        })
    }
}

fn paused(mut entry: Entry) -> Entry {
    Arc::make_mut(&mut entry.spec).state = DesiredState::Paused;
    entry
}

#[test]
fn quota_is_granted_in_creation_order() {
    let fixture = QuotaFixture::new(json!({"maxSandboxes": 2}));
    let all = [1, 2, 3, 4].map(sandbox);
    let decisions = |order: [usize; 4]| order.map(|at| fixture.decide(&all[at], false));
    assert_eq!(
        decisions([0, 1, 3, 2]),
        ["admitted", "admitted", "queued", "queued"]
    );
    // A paused sandbox whose Pod is still terminating frees nothing yet.
    assert_eq!(fixture.decide(&paused(all[0].clone()), true), "admitted");
    assert_eq!(fixture.decide(&all[2], false), "queued");
    fixture.decide(&paused(all[0].clone()), false);
    // The older one is admitted first, whichever is reconciled first.
    assert_eq!(fixture.decide(&all[3], false), "queued");
    assert_eq!(fixture.decide(&all[2], false), "admitted");
    assert_eq!(
        decisions([1, 2, 3, 0]),
        ["admitted", "admitted", "queued", "queued"]
    );
    fixture.quota.forget(&all[1].key);
    assert_eq!(fixture.decide(&all[0], false), "admitted");
}

#[test]
fn quota_counts_scaled_resources_and_keeps_order() {
    // A sandbox has 2 CPU and 2 GiB by default.
    let fixture = QuotaFixture::new(json!({"maxCpu": "8", "maxMemory": "1Ti"}));
    let mut large = sandbox(2);
    Arc::make_mut(&mut large.spec).resource_factor = Some(4.0);
    let (small, late) = (sandbox(1), sandbox(3));
    assert_eq!(fixture.decide(&small, false), "admitted");
    assert_eq!(fixture.decide(&large, false), "queued");
    assert_eq!(fixture.decide(&late, false), "queued");
    fixture.quota.forget(&small.key);
    assert_eq!(fixture.decide(&large, false), "admitted");
    assert_eq!(fixture.decide(&late, false), "queued");

    let fixture = QuotaFixture::new(json!({"maxMemory": "2Gi"}));
    assert_eq!(fixture.decide(&large, false), "exceeded");
    assert_eq!(fixture.decide(&small, false), "admitted");
    assert_eq!(fixture.decide(&late, false), "queued");
}

#[test]
fn limits_change_while_sandboxes_wait() {
    let fixture = QuotaFixture::new(json!({"maxSandboxes": 1}));
    let all = [1, 2, 3].map(sandbox);
    let decide = || all.each_ref().map(|entry| fixture.decide(entry, false));
    assert_eq!(decide(), ["admitted", "queued", "queued"]);
    // Without the key, its last limits hold.
    fixture.tenants.clear();
    assert_eq!(decide(), ["admitted", "queued", "queued"]);
    fixture.limit(json!({"maxSandboxes": 2}));
    fixture.quota.requeue_heads();
    assert_eq!(decide(), ["admitted", "admitted", "queued"]);
    // Admitted sandboxes stay admitted.
    fixture.limit(json!({"maxSandboxes": 1}));
    assert_eq!(decide(), ["admitted", "admitted", "queued"]);
    fixture.limit(json!({}));
    assert_eq!(decide(), ["admitted", "admitted", "admitted"]);
}

#[test]
fn new_controller_restores_admitted_sandboxes() {
    let fixture = QuotaFixture::new(json!({"maxSandboxes": 2}));
    let mut all = [1, 2, 3, 4].map(sandbox);
    all[0].status.reason = Some(Reason::QuotaExceeded);
    all[2].status.pod_name = Some("lost".into());
    let pods = [false, true, false, false];
    let sandboxes = all.iter().zip(pods);
    fixture.quota.restore(sandboxes, &Defaults::default());
    let decisions = [3, 0, 2, 1].map(|at: usize| fixture.decide(&all[at], pods[at]));
    assert_eq!(decisions, ["queued", "queued", "admitted", "admitted"]);
    fixture.decide(&paused(all[2].clone()), false);
    assert_eq!(fixture.decide(&all[3], false), "queued");
    assert_eq!(fixture.decide(&all[0], false), "admitted");
}

#[test]
fn tenant_queues_are_independent_and_are_dropped_when_empty() {
    let fixture = QuotaFixture::new(json!({"maxSandboxes": 1}));
    let (first, second) = (sandbox(1), sandbox(2));
    let mut other = sandbox(3);
    let session = Arc::make_mut(&mut other.spec).session.as_mut().unwrap();
    session.tenant = "u".into();
    let mut without_session = sandbox(4);
    Arc::make_mut(&mut without_session.spec).session = None;
    assert_eq!(fixture.decide(&first, false), "admitted");
    assert_eq!(fixture.decide(&second, false), "queued");
    assert_eq!(fixture.decide(&other, false), "admitted");
    assert_eq!(fixture.decide(&without_session, false), "admitted");
    for entry in [&first, &second, &other, &without_session] {
        fixture.quota.forget(&entry.key);
    }
    let state = fixture.quota.state.lock();
    assert!(state.usage_by_tenant.is_empty() && state.owners.is_empty());
}
