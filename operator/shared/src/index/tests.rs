//! Tests of the index.

use std::time::Duration;

use serde_json::{Value, json};

use super::*;

pub(super) fn index() -> Arc<Index> {
    Arc::new(Index::new(Arc::new(Keys::derive(&[1; 32]).unwrap())))
}

pub(super) fn sandbox(name: &str, version: u32, spec: &Value) -> Sandbox {
    serde_json::from_value(json!({
        "apiVersion": "openhands.dev/v1alpha1",
        "kind": "Sandbox",
        "metadata": {"namespace": "ns", "name": name, "uid": format!("uid-{name}"),
            "resourceVersion": version.to_string()},
        "spec": spec,
    }))
    .unwrap()
}

/// The sandbox of a session, and its name.
pub(super) fn session(index: &Index, tenant: &str, id: &str, epoch: u32) -> (String, Sandbox) {
    let name = index.keys.session_runtime_id("ns", tenant, id, epoch);
    let spec = json!({"session": {"tenant": tenant, "id": id, "epoch": epoch}});
    (name.clone(), sandbox(&name, epoch + 1, &spec))
}

pub(super) fn key(name: &str) -> Key {
    Key {
        namespace: "ns".into(),
        name: name.into(),
    }
}

#[test]
fn older_version_is_ignored() {
    let index = index();
    index.apply(&sandbox("a", 10, &json!({"state": "Paused"})));
    index.apply(&sandbox("a", 9, &json!({"state": "Running"})));
    assert_eq!(index.get(&key("a")).unwrap().resource_version, "10");
}

#[test]
fn by_session_returns_newest_epoch() {
    let index = index();
    let (old, first) = session(&index, "t", "s", 0);
    let (new, second) = session(&index, "t", "s", 1);
    index.apply(&second);
    index.apply(&first);
    let newest = || index.by_session("t", "s").map(|e| e.key.name.clone());
    for name in [new, old] {
        assert_eq!(newest().as_ref(), Some(&name));
        index.remove(&key(&name), &format!("uid-{name}"));
    }
    assert_eq!(newest(), None);
}

#[test]
fn session_in_object_of_other_name_is_ignored() {
    let index = index();
    let spec = json!({"session": {"tenant": "t", "id": "s"}});
    let entry = index.apply(&sandbox("a", 1, &spec)).unwrap();
    assert!(entry.session().is_none());
    assert!(index.by_session("t", "s").is_none());
}

#[test]
fn runtime_id_is_the_name_only_for_its_own_session() {
    let index = index();
    let (name, mine) = session(&index, "t", "s", 0);
    let entry = index.apply(&mine).unwrap();
    assert_eq!(entry.runtime_id, name);
    let theirs = json!({"session": {"tenant": "other", "id": "s"}});
    let entry = index.apply(&sandbox(&name, 2, &theirs)).unwrap();
    assert_ne!(entry.runtime_id, name);
    assert!(index.by_runtime_id(&name).is_none());
}

#[test]
fn loopback_address_that_two_sandboxes_share_leads_to_neither() {
    let index = index();
    let address = |name: &str| {
        let id = index.keys.object_runtime_id(&format!("uid-{name}"));
        loopback_address(&id)
    };
    let mut names = HashMap::new();
    let (first, second) = (0..)
        .map(|n| format!("s{n}"))
        .find_map(|name| Some((names.insert(address(&name), name.clone())?, name)))
        .unwrap();
    let found = || {
        let entry = index.by_loopback_address(address(&first));
        entry.map(|entry| entry.key.name.clone())
    };
    index.apply(&sandbox(&first, 1, &json!({})));
    index.apply(&sandbox("other", 2, &json!({})));
    assert_eq!(found().as_ref(), Some(&first));
    index.apply(&sandbox(&second, 3, &json!({})));
    assert_eq!(found(), None);
    index.remove(&key(&first), &format!("uid-{first}"));
    assert_eq!(found().as_ref(), Some(&second));
    index.remove(&key(&second), &format!("uid-{second}"));
    assert_eq!(found(), None);
}

#[test]
fn relist_removes_missing_entries() {
    let index = index();
    index.apply(&sandbox("a", 1, &json!({})));
    index.apply(&sandbox("b", 2, &json!({})));
    index.retain(&HashSet::from([key("b")]));
    assert!(index.is_synced());
    let left: Vec<_> = index.list(|_| true).iter().map(|e| e.key.clone()).collect();
    assert_eq!(left, [key("b")]);
    // It may reappear.
    index.apply(&sandbox("a", 1, &json!({})));
    assert!(index.get(&key("a")).is_some());
}

#[test]
fn late_response_does_not_resurrect_deleted_object() {
    let index = index();
    index.apply(&sandbox("a", 1, &json!({})));
    index.remove(&key("a"), "uid-a");
    let late = index.apply(&sandbox("a", 2, &json!({"state": "Paused"})));
    assert_eq!(late.unwrap().resource_version, "2");
    assert!(index.get(&key("a")).is_none());
    let id = index.keys.object_runtime_id("uid-a");
    assert!(index.by_runtime_id(&id).is_none());
}

#[test]
fn late_event_of_earlier_object_keeps_later_one_of_same_name() {
    let index = index();
    let mut later = sandbox("a", 9, &json!({}));
    later.metadata.uid = Some("later".into());
    index.apply(&later);
    index.apply(&sandbox("a", 5, &json!({"state": "Stopped"})));
    // The removal of the earlier one does not count either.
    index.remove(&key("a"), "uid-a");
    assert_eq!(index.get(&key("a")).unwrap().uid, "later");
}

#[tokio::test(start_paused = true)]
async fn wait_ends_with_change_or_timeout() {
    let index = index();
    index.apply(&sandbox("a", 1, &json!({})));
    let limit = Duration::from_mins(1);
    let a = key("a");
    let late = index.wait(&a, limit, |e| e.resource_version == "2");
    assert_eq!(late.await.unwrap().resource_version, "1");

    let waiting = index.wait(&a, limit, |e| e.resource_version == "2");
    let (found, ()) = tokio::join!(waiting, async {
        index.apply(&sandbox("a", 2, &json!({})));
    });
    assert_eq!(found.unwrap().resource_version, "2");
}

#[test]
fn phase_counts_follow_every_change() {
    let index = index();
    let mut a = sandbox("a", 1, &json!({}));
    index.apply(&a);
    let mut b = sandbox("b", 2, &json!({}));
    b.status = Some(crds::sandbox::SandboxStatus {
        reason: Some(crds::conditions::Reason::Unschedulable),
        ..Default::default()
    });
    index.apply(&b);
    let count = |phase| {
        let mut counts = index.phase_counts().into_iter();
        counts.find(|(name, _)| *name == phase)
    };
    assert_eq!(count("Pending"), Some(("Pending", 2)));
    a.status = Some(crds::sandbox::SandboxStatus {
        phase: crds::sandbox::Phase::Running,
        ..Default::default()
    });
    a.metadata.resource_version = Some("3".into());
    index.apply(&a);
    assert_eq!(count("Pending"), Some(("Pending", 1)));
    assert_eq!(count("Running"), Some(("Running", 1)));
    assert_eq!(index.starting_counts(), [("Unschedulable", 1)]);
    index.remove(&key("a"), "uid-a");
    index.retain(&HashSet::new());
    assert_eq!(index.starting_counts(), [("Unschedulable", 0)]);
    assert!(index.phase_counts().iter().all(|(_, n)| *n == 0));
}

#[test]
fn own_write_event_is_not_announced_and_relist_is() {
    let index = index();
    let mut changes = index.changes();
    let written = sandbox("a", 5, &json!({}));
    index.apply(&written);
    assert_eq!(changes.try_recv().ok(), Some(key("a")));
    index.apply(&written);
    assert!(changes.try_recv().is_err());
    index.retain(&HashSet::from([key("a")]));
    assert_eq!(changes.try_recv().ok(), Some(key("a")));
    index.apply(&sandbox("a", 6, &json!({})));
    assert_eq!(changes.try_recv().ok(), Some(key("a")));
}

#[test]
fn of_tenant_lists_only_the_sessions_of_the_tenant() {
    let index = index();
    let mut names = Vec::new();
    for (tenant, id) in [("t", "a"), ("t", "b"), ("u", "a")] {
        let (name, sandbox) = session(&index, tenant, id, 0);
        index.apply(&sandbox);
        names.push(key(&name));
    }
    index.apply(&sandbox("kubectl", 1, &json!({})));
    let listed = |tenant: &str| {
        let entries = index.of_tenant(tenant);
        entries.iter().map(|e| e.key.clone()).collect::<Vec<_>>()
    };
    let mut expected = names[..2].to_vec();
    expected.sort();
    assert_eq!(listed("t"), expected);
    index.remove(&names[2], &format!("uid-{}", names[2].name));
    assert!(listed("u").is_empty() && index.tables.read().by_tenant.len() == 1);
}

#[test]
fn commands_and_environments_of_a_tenant_are_counted_until_it_has_stopped() {
    let index = Index::without_environments(index().keys.clone());
    let change = |version: u32, command: &Value, phase: &str| {
        let (name, mut sandbox) = session(&index, "t", "s", 0);
        sandbox.metadata.resource_version = Some(version.to_string());
        sandbox.spec.command = serde_json::from_value(command.clone()).unwrap();
        sandbox.spec.sealed_env = Some("sealed".into());
        sandbox.spec.session.as_mut().unwrap().command_line = Some("ab c".into());
        sandbox.status = Some(serde_json::from_value(json!({"phase": phase})).unwrap());
        index.apply(&sandbox);
        let totals = index.tenant_totals("t");
        (name, totals.sandboxes, totals.payload_bytes)
    };
    let (name, count, bytes) = change(1, &json!(["ab", "c"]), "Running");
    assert_eq!((count, bytes), (1, 5 + 4 + 6));
    let (_, count, bytes) = change(2, &json!(["ab"]), "Paused");
    assert_eq!((count, bytes), (1, 3 + 4 + 6));
    let (_, count, bytes) = change(3, &json!(["ab"]), "Stopped");
    assert_eq!((count, bytes), (1, 0));
    let stopped = index.get(&key(&name)).unwrap();
    assert!(stopped.has_sealed_env && stopped.spec.command.is_none());
    index.remove(&key(&name), &stopped.uid);
    assert_eq!(index.tenant_totals("t"), TenantTotals::default());
}

#[tokio::test(start_paused = true)]
async fn wait_wakes_only_for_its_own_key() {
    let index = index();
    for name in ["a", "b"] {
        index.apply(&sandbox(name, 1, &json!({})));
    }
    let checks = std::cell::Cell::new(0);
    let a = key("a");
    let waiting = index.wait(&a, Duration::from_mins(1), |entry| {
        checks.set(checks.get() + 1);
        entry.resource_version == "9"
    });
    let changes = async {
        for version in 2..8 {
            index.apply(&sandbox("b", version, &json!({})));
            tokio::task::yield_now().await;
        }
        assert_eq!((checks.get(), index.waiters.len()), (1, 1));
        index.apply(&sandbox("a", 9, &json!({})));
    };
    tokio::join!(waiting, changes);
    assert_eq!((checks.get(), index.waiters.len()), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn wait_delivered_ends_with_the_watch_event_of_the_write() {
    let index = index();
    let (a, limit) = (key("a"), Duration::from_mins(1));
    let written = sandbox("a", 5, &json!({}));
    index.apply(&written);
    let start = Instant::now();
    tokio::join!(index.wait_delivered(&a, limit), async {
        index.deliver(&sandbox("a", 4, &json!({})));
        tokio::time::sleep(limit / 2).await;
        index.deliver(&written);
    });
    assert_eq!(start.elapsed(), limit / 2);
    index.wait_delivered(&a, limit).await;
    assert_eq!(start.elapsed(), limit / 2);
    assert!(!index.changed_within(&a, limit), "an own write is no news");
}

#[test]
fn environments_are_dropped_where_no_controller_needs_them() {
    let running = sandbox("a", 1, &json!({"sealedEnv": "v1.x"}));
    let stopped = sandbox("b", 1, &json!({"sealedEnv": "v1.x", "state": "Stopped"}));
    let (full, slim) = (index(), index());
    let slim = Index::without_environments(slim.keys.clone());
    let kept = |index: &Index, sandbox| {
        let entry = index.apply(sandbox).unwrap();
        entry.spec.sealed_env.is_some()
    };
    assert!(kept(&full, &running) && !kept(&full, &stopped));
    assert!(!kept(&slim, &running));
}
