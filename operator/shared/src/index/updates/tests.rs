//! Tests of cursors, deletions and updates.

use std::collections::HashSet;

use serde_json::json;

use super::super::history::MAX_DELETIONS;
use super::super::tests::{index, key, sandbox, session};
use super::*;

const TENANT: &str = "t";

/// An index whose watch has listed nothing.
fn listed() -> Arc<Index> {
    let index = index();
    index.begin_list();
    index.retain(&HashSet::new());
    index
}

/// Delivers the sandbox of a session with a version, and returns its name.
fn deliver(index: &Index, id: &str, version: u64) -> String {
    let (name, mut sandbox) = session(index, TENANT, id, 0);
    sandbox.metadata.resource_version = Some(version.to_string());
    index.deliver(&sandbox);
    name
}

fn delete(index: &Index, name: &str, version: u64) {
    index.deliver_deletion(&key(name), &format!("uid-{name}"), Some(version));
}

/// Names of the sandboxes deleted after a cursor.
fn deleted(index: &Index, cursor: Cursor) -> Option<Vec<String>> {
    let deletions = index.deletions_after(cursor, TENANT)?.into_iter();
    Some(deletions.map(|deletion| deletion.key.name).collect())
}

#[test]
fn cursor_is_what_the_watch_has_delivered() {
    let index = index();
    let version = || index.cursor().version;
    index.begin_list();
    deliver(&index, "a", 20);
    assert_eq!(version(), 0, "a list has no order");
    deliver(&index, "b", 10);
    index.retain(&index.list(|_| true).iter().map(|e| e.key.clone()).collect());
    assert_eq!(version(), 20);
    index.apply(&sandbox("own-write", 40, &json!({})));
    assert_eq!(version(), 20);
    let c = deliver(&index, "c", 30);
    assert_eq!(version(), 30);
    delete(&index, &c, 50);
    delete(&index, "unknown", 60);
    assert_eq!(version(), 60);
}

#[test]
fn cursor_survives_as_text() {
    let index = listed();
    deliver(&index, "a", 7);
    let cursor = index.cursor();
    assert_eq!(cursor.to_string().parse::<Cursor>().ok(), Some(cursor));
    for text in [
        "",
        "7",
        "-",
        "7-",
        "-0",
        "x-0",
        "7-g",
        "7-100000000",
        "99999999999999999999-0",
    ] {
        assert!(text.parse::<Cursor>().is_err(), "{text}");
    }
}

#[test]
fn deletions_are_known_from_the_first_change_after_a_list() {
    let (index, other) = (listed(), listed());
    let names: Vec<_> = ["a", "b"]
        .iter()
        .zip(1..)
        .map(|(id, at)| deliver(&index, id, at))
        .collect();
    let cursor = index.cursor();
    for (name, version) in names.iter().zip(3..) {
        delete(&index, name, version);
    }
    assert_eq!(deleted(&index, cursor).as_ref(), Some(&names));
    assert_eq!(deleted(&index, index.cursor()).unwrap(), [""; 0]);
    assert!(index.deletions_after(cursor, "another").unwrap().is_empty());
    // The other one has heard nothing, and then only of what came after the cursor.
    assert_eq!(deleted(&other, cursor), None);
    deliver(&other, "c", 3);
    assert_eq!(deleted(&other, cursor), None);
    assert!(
        deleted(
            &other,
            Cursor {
                version: 3,
                ..cursor
            }
        )
        .is_some()
    );
    assert_eq!(
        deleted(
            &other,
            Cursor {
                version: 4,
                ..cursor
            }
        ),
        None,
        "it is behind"
    );
}

#[test]
fn new_list_ends_what_is_known_of_deletions() {
    let index = listed();
    let name = deliver(&index, "a", 1);
    let before = index.cursor();
    index.begin_list();
    assert_eq!(deleted(&index, before), None);
    deliver(&index, "b", 2);
    let during = index.cursor();
    index.retain(&HashSet::new());
    for old in [before, during] {
        assert_eq!(deleted(&index, old), None);
    }
    let after = index.cursor();
    assert!(index.get(&key(&name)).is_none() && after.version == 2);
    assert_eq!(deleted(&index, after).unwrap(), [""; 0]);
}

#[test]
fn deletion_that_a_lookup_found_is_told_to_every_cursor() {
    let index = listed();
    let name = deliver(&index, "a", 5);
    index.remove(&key(&name), &format!("uid-{name}"));
    deliver(&index, "b", 9);
    assert_eq!(deleted(&index, index.cursor()).unwrap(), [&*name]);
    // The session begins again, with the same name.
    let (_, mut again) = session(&index, TENANT, "a", 0);
    again.metadata.uid = Some("again".into());
    again.metadata.resource_version = Some("11".into());
    index.deliver(&again);
    assert_eq!(deleted(&index, index.cursor()).unwrap(), [""; 0]);
}

#[test]
fn forgotten_deletions_make_older_cursors_unusable() {
    let index = listed();
    let mut version = 0;
    let mut next = || {
        version += 1;
        version
    };
    let first = deliver(&index, "first", next());
    let oldest = index.cursor();
    delete(&index, &first, next());
    let older = index.cursor();
    for number in 0..MAX_DELETIONS {
        let name = deliver(&index, &number.to_string(), next());
        delete(&index, &name, next());
    }
    assert_eq!(deleted(&index, oldest), None);
    assert_eq!(deleted(&index, older).unwrap().len(), MAX_DELETIONS);
}

#[test]
fn updates_are_real_changes_in_order_of_versions() {
    let index = listed();
    let mut updates = index.updates();
    let name = deliver(&index, "a", 1);
    deliver(&index, "a", 1);
    index.begin_list();
    deliver(&index, "a", 1);
    index.retain(&HashSet::from([key(&name)]));
    deliver(&index, "a", 2);
    index.remove(&key(&name), &format!("uid-{name}"));
    index.remove(&key(&name), &format!("uid-{name}"));
    let seen: Vec<_> = std::iter::from_fn(|| updates.try_recv().ok()).collect();
    let seen = seen
        .iter()
        .map(|update| (&*update.entry.resource_version, update.is_removed));
    assert_eq!(
        seen.collect::<Vec<_>>(),
        [("1", false), ("2", false), ("2", true)]
    );
}

#[test]
fn pages_of_a_tenant_follow_each_other() {
    let index = listed();
    let mut names: Vec<_> = (1..6).map(|n| deliver(&index, &n.to_string(), n)).collect();
    names.sort();
    let mut found = Vec::new();
    let mut after = Bound::Unbounded;
    loop {
        let page = index.page_of_tenant(TENANT, (after, Bound::Unbounded), 2);
        assert_eq!(page.sequence, 5);
        let Some(last) = page.entries.last() else {
            break;
        };
        after = Bound::Excluded(last.key.clone());
        found.extend(page.entries.iter().map(|entry| entry.key.name.clone()));
    }
    assert_eq!(found, names);
}

#[tokio::test(start_paused = true)]
async fn version_is_waited_for_at_most_for_the_limit() {
    let index = listed();
    let begun = tokio::time::Instant::now();
    let limit = Duration::from_secs(3);
    index.wait_version(1, limit).await;
    assert_eq!(begun.elapsed(), limit);
    tokio::join!(index.wait_version(5, limit), async {
        deliver(&index, "a", 5);
    });
    index.wait_version(4, limit).await;
    assert_eq!(begun.elapsed(), limit);
}
