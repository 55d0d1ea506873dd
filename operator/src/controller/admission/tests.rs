use crds::sandbox::{SandboxSpec, SandboxStatus, Session};
use jiff::Timestamp;
use serde_json::json;

use super::*;

/// A tenant `t` with these limits, and what is asked of its sandboxes.
struct World {
    admission: Admission,
    tenants: Tenants,
}

impl World {
    fn new(limits: serde_json::Value) -> Self {
        let tenants = Tenants::fixed([]);
        let world = Self {
            admission: Admission::new(tenants.clone(), Arc::default()),
            tenants,
        };
        world.limit(limits);
        world
    }

    fn limit(&self, mut record: serde_json::Value) {
        record["name"] = "t".into();
        record["sha256"] = "0".repeat(64).into();
        let json = json!([record]).to_string();
        self.tenants.replace(json.as_bytes()).unwrap();
    }

    fn ask(&self, entry: &Entry, has_pod: bool) -> &'static str {
        match self.admission.ask(entry, has_pod, &Defaults::default()) {
            Turn::Has => "has",
            Turn::Waits(_) => "waits",
            Turn::Never(_) => "never",
        }
    }

    fn head(&self) -> Option<String> {
        let ledger = self.admission.ledger.lock();
        let head = ledger.accounts.get("t")?.head()?;
        Some(head.name.clone())
    }
}

/// The sandbox that was made at this second.
fn sandbox(made: i64) -> Entry {
    let name = format!("{made:016}");
    Entry {
        key: Key {
            namespace: "ns".into(),
            name: name.clone(),
        },
        uid: name.clone(),
        resource_version: "1".into(),
        generation: 1,
        created_at: Some(Timestamp::from_second(made).unwrap()),
        deleting: false,
        wake_at: None,
        // Named by its session, as far as an entry can tell.
        runtime_id: name,
        spec: Arc::new(SandboxSpec {
            session: Some(Session {
                tenant: "t".into(),
                id: made.to_string(),
                ..Session::default()
            }),
            ..SandboxSpec::default()
        }),
        status: SandboxStatus::default(),
    }
}

fn at_rest(mut entry: Entry) -> Entry {
    Arc::make_mut(&mut entry.spec).state = DesiredState::Paused;
    entry
}

#[test]
fn turns_are_taken_in_order_and_once() {
    let world = World::new(json!({"maxSandboxes": 2}));
    let all = [1, 2, 3, 4].map(sandbox);
    let asked = |order: [usize; 4]| order.map(|at| world.ask(&all[at], false));
    assert_eq!(asked([0, 1, 3, 2]), ["has", "has", "waits", "waits"]);
    assert_eq!(world.head(), Some(all[2].key.name.clone()));
    // A pass over a sandbox at rest whose Pod still goes frees nothing yet.
    assert_eq!(world.ask(&at_rest(all[0].clone()), true), "has");
    assert_eq!(world.ask(&all[2], false), "waits");
    world.ask(&at_rest(all[0].clone()), false);
    // Whoever asks first, the older one is next.
    assert_eq!(world.ask(&all[3], false), "waits");
    assert_eq!(world.ask(&all[2], false), "has");
    assert_eq!(asked([1, 2, 3, 0]), ["has", "has", "waits", "waits"]);
    world.admission.forget(&all[1].key);
    assert_eq!(world.ask(&all[0], false), "has");
}

#[test]
fn cpu_and_memory_count_with_their_factor_and_a_large_one_is_not_passed_by() {
    // By default a sandbox may use 2 CPU and 2 GiB.
    let world = World::new(json!({"maxCpu": "8", "maxMemory": "1Ti"}));
    let mut large = sandbox(2);
    Arc::make_mut(&mut large.spec).resource_factor = Some(4.0);
    let (small, late) = (sandbox(1), sandbox(3));
    assert_eq!(world.ask(&small, false), "has");
    assert_eq!(world.ask(&large, false), "waits");
    assert_eq!(world.ask(&late, false), "waits");
    world.admission.forget(&small.key);
    assert_eq!(world.ask(&large, false), "has");
    assert_eq!(world.ask(&late, false), "waits");

    let world = World::new(json!({"maxMemory": "2Gi"}));
    assert_eq!(world.ask(&large, false), "never");
    assert_eq!(world.ask(&small, false), "has");
    assert_eq!(world.ask(&late, false), "waits");
}

#[test]
fn limits_change_while_sandboxes_wait() {
    let world = World::new(json!({"maxSandboxes": 1}));
    let all = [1, 2, 3].map(sandbox);
    let ask = || all.each_ref().map(|entry| world.ask(entry, false));
    assert_eq!(ask(), ["has", "waits", "waits"]);
    // The key is gone: its last limits hold.
    world.tenants.clear();
    assert_eq!(ask(), ["has", "waits", "waits"]);
    world.limit(json!({"maxSandboxes": 2}));
    world.admission.call_all();
    assert_eq!(ask(), ["has", "has", "waits"]);
    // Nobody is turned out.
    world.limit(json!({"maxSandboxes": 1}));
    assert_eq!(ask(), ["has", "has", "waits"]);
    world.limit(json!({}));
    assert_eq!(ask(), ["has", "has", "has"]);
}

#[test]
fn a_new_controller_knows_who_had_its_turn() {
    let world = World::new(json!({"maxSandboxes": 2}));
    let mut all = [1, 2, 3, 4].map(sandbox);
    all[0].status.reason = Some(Reason::QuotaExceeded);
    all[2].status.pod_name = Some("lost".into());
    let pods = [false, true, false, false];
    let sandboxes = all.iter().zip(pods);
    world.admission.restore(sandboxes, &Defaults::default());
    let asked = [3, 0, 2, 1].map(|at: usize| world.ask(&all[at], pods[at]));
    assert_eq!(asked, ["waits", "waits", "has", "has"]);
    world.ask(&at_rest(all[2].clone()), false);
    assert_eq!(world.ask(&all[3], false), "waits");
    assert_eq!(world.ask(&all[0], false), "has");
}

#[test]
fn tenants_do_not_wait_for_each_other_and_leave_nothing_behind() {
    let world = World::new(json!({"maxSandboxes": 1}));
    let (first, second) = (sandbox(1), sandbox(2));
    let mut other = sandbox(3);
    let session = Arc::make_mut(&mut other.spec).session.as_mut().unwrap();
    session.tenant = "u".into();
    let mut of_nobody = sandbox(4);
    Arc::make_mut(&mut of_nobody.spec).session = None;
    assert_eq!(world.ask(&first, false), "has");
    assert_eq!(world.ask(&second, false), "waits");
    assert_eq!(world.ask(&other, false), "has");
    assert_eq!(world.ask(&of_nobody, false), "has");
    for entry in [&first, &second, &other, &of_nobody] {
        world.admission.forget(&entry.key);
    }
    let ledger = world.admission.ledger.lock();
    assert!(ledger.accounts.is_empty() && ledger.owners.is_empty());
}
