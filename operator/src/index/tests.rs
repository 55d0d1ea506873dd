//! The index on its own.

use std::time::Duration;

use serde_json::{Value, json};

use super::*;

fn index() -> Arc<Index> {
    Arc::new(Index::new(Arc::new(Keys::derive(&[1; 32]).unwrap())))
}

fn sandbox(name: &str, version: u32, spec: &Value) -> Sandbox {
    serde_json::from_value(json!({
        "apiVersion": "openhands.dev/v1alpha1",
        "kind": "Sandbox",
        "metadata": {"namespace": "ns", "name": name, "uid": format!("uid-{name}"),
            "resourceVersion": version.to_string()},
        "spec": spec,
    }))
    .unwrap()
}

fn key(name: &str) -> Key {
    Key {
        namespace: "ns".into(),
        name: name.into(),
    }
}

#[test]
fn an_older_version_does_not_undo_a_newer_one() {
    let index = index();
    index.apply(&sandbox("a", 10, &json!({"state": "Paused"})));
    index.apply(&sandbox("a", 9, &json!({"state": "Running"})));
    assert_eq!(index.get(&key("a")).unwrap().resource_version, "10");
}

#[test]
fn the_newest_epoch_answers_for_a_session() {
    let index = index();
    let of = |epoch: u32| {
        let name = index.keys.session_runtime_id("ns", "t", "s", epoch);
        let spec = json!({"session": {"tenant": "t", "id": "s", "epoch": epoch}});
        (name.clone(), sandbox(&name, epoch + 1, &spec))
    };
    let (old, new) = (of(0), of(1));
    index.apply(&new.1);
    index.apply(&old.1);
    let newest = || index.by_session("t", "s").map(|e| e.key.name.clone());
    assert_eq!(newest(), Some(new.0.clone()));
    index.remove(&key(&new.0), &format!("uid-{}", new.0));
    assert_eq!(newest(), Some(old.0.clone()));
    index.remove(&key(&old.0), &format!("uid-{}", old.0));
    assert_eq!(newest(), None);
}

#[test]
fn a_session_in_an_object_of_another_name_is_none() {
    let index = index();
    let spec = json!({"session": {"tenant": "t", "id": "s"}});
    let entry = index.apply(&sandbox("a", 1, &spec)).unwrap();
    assert!(entry.session().is_none());
    assert!(index.by_session("t", "s").is_none());
}

#[test]
fn a_name_is_an_id_only_for_the_session_it_was_derived_from() {
    let index = index();
    let name = index.keys.session_runtime_id("ns", "t", "s", 0);
    let mine = json!({"session": {"tenant": "t", "id": "s"}});
    let entry = index.apply(&sandbox(&name, 1, &mine)).unwrap();
    assert_eq!(entry.runtime_id, name);
    let theirs = json!({"session": {"tenant": "other", "id": "s"}});
    let entry = index.apply(&sandbox(&name, 2, &theirs)).unwrap();
    assert_ne!(entry.runtime_id, name);
    assert!(index.by_runtime_id(&name).is_none());
}

#[test]
fn a_relist_forgets_what_it_does_not_mention() {
    let index = index();
    index.apply(&sandbox("a", 1, &json!({})));
    index.apply(&sandbox("b", 2, &json!({})));
    index.retain(&HashSet::from([key("b")]));
    assert!(index.synced());
    let left: Vec<_> = index.list(|_| true).iter().map(|e| e.key.clone()).collect();
    assert_eq!(left, [key("b")]);
}

#[test]
fn the_removal_of_an_earlier_object_spares_the_later_one_of_its_name() {
    let index = index();
    index.apply(&sandbox("a", 1, &json!({})));
    index.remove(&key("a"), "another uid");
    assert!(index.get(&key("a")).is_some());
}

#[test]
fn the_late_answer_to_a_write_does_not_bring_back_what_is_gone() {
    let index = index();
    index.apply(&sandbox("a", 1, &json!({})));
    index.remove(&key("a"), "uid-a");
    let late = index.apply(&sandbox("a", 2, &json!({"state": "Paused"})));
    assert_eq!(late.unwrap().resource_version, "2");
    assert!(index.get(&key("a")).is_none());
    assert!(
        index
            .by_runtime_id(&index.keys.object_runtime_id("uid-a"))
            .is_none()
    );
}

#[test]
fn late_news_of_an_earlier_object_spares_the_later_one_of_its_name() {
    let index = index();
    let mut later = sandbox("a", 9, &json!({}));
    later.metadata.uid = Some("later".into());
    index.apply(&later);
    index.apply(&sandbox("a", 5, &json!({"state": "Stopped"})));
    index.remove(&key("a"), "uid-a");
    assert_eq!(index.get(&key("a")).unwrap().uid, "later");
}

#[test]
fn what_a_relist_did_not_mention_may_come_back() {
    let index = index();
    index.apply(&sandbox("a", 1, &json!({})));
    index.retain(&HashSet::new());
    index.apply(&sandbox("a", 1, &json!({})));
    assert!(index.get(&key("a")).is_some());
}

#[tokio::test(start_paused = true)]
async fn waiting_ends_with_the_change_or_with_time() {
    let index = index();
    index.apply(&sandbox("a", 1, &json!({})));
    let limit = Duration::from_mins(1);
    let a = key("a");
    let late = index.wait(&a, limit, |e| e.resource_version == "2");
    assert_eq!(late.await.unwrap().resource_version, "1");

    let waiting = tokio::spawn({
        let index = index.clone();
        async move {
            index
                .wait(&key("a"), limit, |e| e.resource_version == "2")
                .await
        }
    });
    tokio::task::yield_now().await;
    index.apply(&sandbox("a", 2, &json!({})));
    assert_eq!(waiting.await.unwrap().unwrap().resource_version, "2");
}

#[test]
fn the_census_follows_every_change() {
    let index = index();
    let mut a = sandbox("a", 1, &json!({}));
    index.apply(&a);
    index.apply(&sandbox("b", 2, &json!({})));
    let count = |phase| index.census().into_iter().find(|(name, _)| *name == phase);
    assert_eq!(count("Pending"), Some(("Pending", 2)));
    a.status = Some(crds::sandbox::SandboxStatus {
        phase: crds::sandbox::Phase::Running,
        ..Default::default()
    });
    a.metadata.resource_version = Some("3".into());
    index.apply(&a);
    assert_eq!(count("Pending"), Some(("Pending", 1)));
    assert_eq!(count("Running"), Some(("Running", 1)));
    index.remove(&key("a"), "uid-a");
    index.retain(&HashSet::new());
    assert!(index.census().iter().all(|(_, n)| *n == 0));
}

#[test]
fn the_echo_of_a_write_is_no_news_and_a_list_is_an_occasion_to_look() {
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
