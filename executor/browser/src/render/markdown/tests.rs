use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

/// Snapshot of a page in short form: `["name", {attributes}, children…]`, texts as strings.
fn page(body: &Value) -> DomSnapshot {
    let mut snapshot = DomSnapshot::default();
    snapshot.documents.push(Document::default());
    add(&mut snapshot, -1, body);
    snapshot
}

fn add(snapshot: &mut DomSnapshot, parent: i64, node: &Value) {
    let index = i64::try_from(snapshot.documents[0].nodes.parent_index.len()).unwrap();
    let mut intern = |text: &str| {
        snapshot.strings.push(text.to_owned());
        i64::try_from(snapshot.strings.len()).unwrap() - 1
    };
    let (kind, name, value, attributes, children) = match node {
        Value::String(text) => (TEXT_NODE, intern("#text"), intern(text), vec![], &[][..]),
        Value::Array(parts) => {
            let name = intern(parts[0].as_str().unwrap());
            let pairs = parts[1].as_object().unwrap().iter();
            let pairs = pairs.flat_map(|(name, value)| [name.as_str(), value.as_str().unwrap()]);
            (
                ELEMENT_NODE,
                name,
                -1,
                pairs.map(&mut intern).collect(),
                &parts[2..],
            )
        }
        _ => panic!("{node}"),
    };
    let nodes = &mut snapshot.documents[0].nodes;
    nodes.parent_index.push(parent);
    nodes.node_type.push(kind);
    nodes.node_name.push(name);
    nodes.node_value.push(value);
    nodes.attributes.push(attributes);
    for child in children {
        add(snapshot, index, child);
    }
}

/// Pages in short form, each followed by its Markdown.
#[test]
fn elements_have_their_markdown() {
    let lines: Vec<&str> = include_str!("pages.jsonl").lines().collect();
    for [body, expected] in lines.as_chunks().0 {
        let expected: String = serde_json::from_str(expected).unwrap();
        assert_eq!(
            markdown(&page(&serde_json::from_str(body).unwrap())),
            expected
        );
    }
}

#[test]
fn very_deep_pages_and_shared_texts_stay_bounded() {
    let mut deep = page(&json!(["UL", {}, "x"]));
    let nodes = &mut deep.documents[0].nodes;
    let depth = 100_000;
    nodes.parent_index = (-1..depth).collect();
    nodes.node_type = vec![ELEMENT_NODE; 100_000];
    nodes.node_type.push(TEXT_NODE);
    nodes.node_name = vec![0; 100_001];
    nodes.node_value = vec![2; 100_001];
    assert_eq!(markdown(&deep), "x");

    let mut shared = page(&json!(["DIV", {}, "x"]));
    shared.strings.push("y".repeat(1 << 20));
    let nodes = &mut shared.documents[0].nodes;
    nodes.parent_index.extend([0; 99]);
    nodes.node_type.extend([TEXT_NODE; 99]);
    nodes.node_value.extend([3; 99]);
    let text = markdown(&shared);
    assert!(text.len() < MAX_BYTES + (2 << 20));
    assert!(text.ends_with(CUT));
}

proptest! {
    /// Elements of all kinds in each other, in any order and with any parents.
    #[test]
    fn every_nesting_gives_text(
        nodes in prop::collection::vec((-1..40_i64, prop::sample::select(vec![
            "UL", "LI", "TABLE", "TR", "TD", "PRE", "A", "B", "BLOCKQUOTE", "H1", "DD", "BR", "HR",
        ]), any::<bool>()), 1..40),
    ) {
        let mut snapshot = page(&json!("x"));
        for (parent, name, is_text) in nodes {
            let kind = if is_text { json!("word") } else { json!([name, {"href": "u"}]) };
            add(&mut snapshot, parent, &kind);
        }
        let words = snapshot.documents[0].nodes.node_type.iter().filter(|kind| **kind == TEXT_NODE);
        prop_assert_eq!(markdown(&snapshot).matches("word").count(), words.count() - 1);
    }
}
