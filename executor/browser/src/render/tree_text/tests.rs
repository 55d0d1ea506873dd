use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::snapshot::element::ElementProperties;

fn tree(nodes: &Value) -> AxTree {
    serde_json::from_value(json!({ "nodes": nodes })).unwrap()
}

fn elements(rows: &[(&str, bool, Option<f64>)]) -> ElementTable {
    let rows = rows.iter().map(|(bid, clickable, visibility)| {
        let properties = ElementProperties {
            visibility: *visibility,
            clickable: *clickable,
            ..ElementProperties::default()
        };
        ((*bid).to_owned(), properties)
    });
    ElementTable(rows.collect())
}

fn node(id: &str, role: &str, name: &str, children: &[&str]) -> Value {
    json!({
        "nodeId": id, "role": {"value": role}, "name": {"value": name}, "childIds": children,
    })
}

/// Nodes as Chromium sends them, each followed by its row. The element 20 is clickable.
#[test]
fn rows_show_id_role_name_value_and_properties() {
    let lines: Vec<&str> = include_str!("rows.jsonl").lines().collect();
    let elements = elements(&[("20", true, None)]);
    for [node, expected] in lines.as_chunks().0 {
        let mut node: Value = serde_json::from_str(node).unwrap();
        node["nodeId"] = json!("1");
        let text = tree_text(&tree(&json!([node])), &elements, false);
        assert_eq!(text.as_deref(), Ok(*expected));
    }
}

#[test]
fn numbers_look_as_in_python() {
    for (number, expected) in [
        (json!(-0.0), "0"),
        (json!(1.5), "1.5"),
        (json!(0.000_015), "1.5e-05"),
        (json!(1e20), "100000000000000000000"),
        (json!(1.5e300), "1.5e+300"),
        (json!(-1e21), "-1e+21"),
    ] {
        let mut text = String::new();
        literal::push(&mut text, &number);
        assert_eq!(text, expected);
    }
}

#[test]
fn skipped_nodes_leave_their_children_in_place() {
    let ignored = json!({
        "nodeId": "2", "ignored": true, "role": {"value": "none"},
        "childIds": ["3", "4", "missing"],
    });
    let nodes = json!([
        node("1", "RootWebArea", "T", &["2", "5"]),
        ignored,
        node("3", "button", "Go on", &["6", "7", "8"]),
        node("4", "LineBreak", "\n", &["9"]),
        node("5", "paragraph", "", &["5", "1"]),
        node("6", "StaticText", "Go", &["10"]),
        node("7", "StaticText", "Stop", &["11"]),
        node("8", "image", "x", &[]),
        node("9", "InlineTextBox", "\n", &[]),
        node("10", "InlineTextBox", "Go", &[]),
        node("11", "InlineTextBox", "Stop", &[]),
    ]);
    let expected = "RootWebArea 'T'\n\tbutton 'Go on'\n\t\tStaticText 'Stop'\n\t\timage 'x'\n\
        \tparagraph ''";
    let text = tree_text(&tree(&nodes), &ElementTable::default(), false);
    assert_eq!(text.as_deref(), Ok(expected));
}

#[test]
fn visible_variant_drops_hidden_elements_and_their_own_texts() {
    let mut nodes = json!([
        node("1", "RootWebArea", "T", &["2"]),
        node("2", "paragraph", "", &["3", "4"]),
        node("3", "StaticText", "hidden", &[]),
        node("4", "link", "seen", &["5"]),
        node("5", "StaticText", "more", &[]),
    ]);
    nodes[1]["browsergym_id"] = json!("7");
    nodes[3]["browsergym_id"] = json!("8");
    let seen = ("8", false, Some(0.5));
    for hidden in [("7", true, None), ("7", true, Some(0.49))] {
        let text = tree_text(&tree(&nodes), &elements(&[hidden, seen]), true);
        let expected = "RootWebArea 'T'\n\t[8] link 'seen'\n\t\tStaticText 'more'";
        assert_eq!(text.as_deref(), Ok(expected));
    }
}

#[test]
fn missing_tree_is_an_error_that_clients_know() {
    let error = tree_text(&AxTree::default(), &ElementTable::default(), false).unwrap_err();
    assert_eq!(error.to_string(), "'nodes'");
}

#[test]
fn indentation_of_very_deep_trees_is_bounded() {
    let nodes = (0..100_000).map(|id| AxNode {
        node_id: id.to_string(),
        role: Some(AxValue {
            value: Some(json!("generic")),
        }),
        name: Some(AxValue::default()),
        child_ids: vec![(id + 1).to_string()],
        ..AxNode::default()
    });
    let tree = AxTree {
        nodes: nodes.collect(),
    };
    let text = tree_text(&tree, &ElementTable::default(), false).unwrap();
    assert_eq!(text.lines().count(), 100_000);
    let last = text.lines().last().unwrap();
    assert_eq!(last.trim_start_matches('\t').len() + MAX_INDENT, last.len());
}

proptest! {
    /// Any graph of nodes, with cycles, several parents and missing children.
    #[test]
    fn every_graph_gives_each_node_at_most_once(
        edges in prop::collection::vec(prop::collection::vec(0_usize..24, 0..6), 1..20),
        names in prop::collection::vec(any::<String>(), 20),
    ) {
        let nodes = edges.iter().zip(&names).enumerate().map(|(id, (children, name))| {
            let children: Vec<_> = children.iter().map(usize::to_string).collect();
            let children: Vec<&str> = children.iter().map(|id| &**id).collect();
            node(&id.to_string(), "heading", name, &children)
        });
        let nodes: Value = nodes.collect();
        let text = tree_text(&tree(&nodes), &ElementTable::default(), false).unwrap();
        prop_assert!(text.starts_with("heading "));
        prop_assert!(text.split('\n').count() <= edges.len());
    }
}
