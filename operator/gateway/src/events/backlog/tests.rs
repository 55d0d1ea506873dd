//! Tests of the choice of changes while the pages are read.

use shared::keys::Keys;

use super::*;

const NAMESPACE: &str = "ns";

fn change(name: &str, sequence: u64, is_removed: bool) -> Change {
    Change {
        key: Key {
            namespace: NAMESPACE.to_owned(),
            name: name.to_owned(),
        },
        sequence,
        is_removed,
    }
}

async fn backlog(runtime_id: Option<&str>) -> Backlog {
    let index = Index::new(Arc::new(Keys::derive(&[1; 32]).unwrap()));
    let scope = Scope {
        tenant: "t".to_owned(),
        namespace: NAMESPACE.to_owned(),
        runtime_id: runtime_id.map(str::to_owned),
    };
    Backlog::begin(&index, scope, None).await
}

#[tokio::test]
async fn change_is_needed_unless_a_page_includes_it() {
    let mut backlog = backlog(None).await;
    for (is_removed, expected) in [(false, false), (true, true)] {
        assert_eq!(backlog.needs(&change("a", 1, is_removed)), expected);
    }
    backlog.pages = vec![
        (change("c", 0, false).key, 5),
        (change("f", 0, false).key, 8),
    ];
    let mut assert_needed = |name, sequence, expected: [bool; 2]| {
        for (is_removed, expected) in [false, true].into_iter().zip(expected) {
            let needed = backlog.needs(&change(name, sequence, is_removed));
            assert_eq!(needed, expected, "{name} {sequence} {is_removed}");
        }
    };
    // In the first page and in the second.
    for (name, read) in [("a", 5), ("c", 5), ("d", 8), ("f", 8)] {
        assert_needed(name, read, [false, false]);
        assert_needed(name, read + 1, [true, true]);
    }
    // A page that is still to be read.
    assert_needed("g", 9, [false, true]);
    backlog.is_complete = true;
    for (name, sequence, expected) in [("a", 6, true), ("g", 8, false), ("g", 9, true)] {
        assert_eq!(
            backlog.needs(&change(name, sequence, false)),
            expected,
            "{name}"
        );
    }
    assert!(backlog.pages.is_empty(), "all later changes are needed");
    assert!(backlog.needs(&change("a", 10, false)));
}

#[tokio::test]
async fn change_of_another_sandbox_or_namespace_is_not_needed() {
    let mut backlog = backlog(Some("a")).await;
    backlog.is_complete = true;
    assert!(backlog.needs(&change("a", 1, false)));
    assert!(!backlog.needs(&change("b", 1, true)));
    let mut elsewhere = change("a", 1, true);
    elsewhere.key.namespace = "other".to_owned();
    assert!(!backlog.needs(&elsewhere));
}
