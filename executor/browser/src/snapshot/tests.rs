//! A recorded page: scrolled by 10 pixels, with a button, a hidden paragraph and a frame that is
//! itself scrolled by 30 pixels and holds a link.

use std::collections::HashMap;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::ax::{AxNode, AxTree};
use super::dom::DomSnapshot;
use super::element::{ElementProperties, ElementTable};
use super::marks::{FrameTree, TreeNode, merge};
use crate::render::tree_text::tree_text;

const SNAPSHOT: &str = include_str!("recorded/snapshot.json");

fn snapshot() -> DomSnapshot {
    serde_json::from_str(SNAPSHOT).unwrap()
}

/// The trees of both frames. The child frame is in a session of its own if it has a prefix.
fn frames<N: TreeNode + serde::de::DeserializeOwned>(prefix: &str) -> Vec<FrameTree<N>> {
    let nodes: Vec<Vec<N>> = serde_json::from_str(include_str!("recorded/frames.json")).unwrap();
    let places = [
        ("MAIN", "", HashMap::from([(15, "CHILD".to_owned())])),
        ("CHILD", prefix, HashMap::new()),
    ];
    let frames = nodes.into_iter().zip(places);
    let frames = frames.map(|(nodes, (frame_id, prefix, child_frames))| FrameTree {
        frame_id: frame_id.to_owned(),
        id_prefix: prefix.to_owned(),
        child_frames,
        nodes,
    });
    frames.collect()
}

#[test]
fn table_reads_attributes_and_adds_up_positions() {
    let table = ElementTable::from_snapshot(&snapshot(), (0.0, 0.0));
    let bids: Vec<&str> = table.0.keys().map(String::as_str).collect();
    let expected = [
        "0", "1", "2", "3", "4", "5", "6", "a", "7", "a0", "a1", "a2", "a3", "a4",
    ];
    assert_eq!(bids, expected);
    let button = ElementProperties {
        visibility: Some(1.0),
        bbox: Some([0.0, 40.0, 33.78125, 21.0]),
        clickable: true,
        set_of_marks: Some(true),
    };
    assert_eq!(table.get("5"), Some(&button));
    let hidden = ElementProperties {
        visibility: Some(0.0),
        set_of_marks: Some(false),
        ..ElementProperties::default()
    };
    assert_eq!(table.get("6"), Some(&hidden));
    // The frame is at (100, 30) after scrolling, the link at (5, 6) in it.
    let link = table.get("a3").and_then(|link| link.bbox);
    assert_eq!(link, Some([105.0, 36.0, 20.0, 10.0]));
    assert_eq!(
        serde_json::to_value(&table).unwrap()["6"],
        json!({"visibility": 0.0, "bbox": null, "clickable": false, "set_of_marks": false}),
    );
}

#[test]
fn table_of_another_session_is_moved_to_its_owner_and_merged() {
    let mut remote = snapshot();
    remote.documents.remove(0);
    let mut table = ElementTable::default();
    table
        .0
        .insert("first".to_owned(), ElementProperties::default());
    table.merge(ElementTable::from_snapshot(&remote, (1000.0, 500.0)));
    assert_eq!(table.0.len(), 6);
    let link = table.get("a3").and_then(|link| link.bbox);
    assert_eq!(link, Some([1005.0, 506.0, 20.0, 10.0]));
}

#[test]
fn document_with_ids_of_its_own_is_read_by_the_other_attribute() {
    let mut page = snapshot();
    let bid = page.strings.iter().position(|text| text == "bid").unwrap();
    let own = i64::try_from(page.strings.len()).unwrap();
    page.strings.push("data-sandbox-bid".to_owned());
    for row in &mut page.documents[1].nodes.attributes {
        let name = row
            .iter()
            .step_by(2)
            .position(|name| usize::try_from(*name) == Ok(bid));
        if let Some(at) = name {
            row[2 * at] = own;
            // The attribute of the page itself: its value is that of the button.
            row.extend([i64::try_from(bid).unwrap(), row[2 * at + 1]]);
        }
    }
    let button = page.strings.iter().position(|text| text == "a3").unwrap();
    page.documents[1].nodes.attributes[1].push(i64::try_from(bid).unwrap());
    page.documents[1].nodes.attributes[1].push(i64::try_from(button).unwrap());
    let table = ElementTable::from_snapshot(&page, (0.0, 0.0));
    assert_eq!(table.0.len(), 14);
    assert_eq!(
        table.get("a3").and_then(|link| link.bbox),
        Some([105.0, 36.0, 20.0, 10.0])
    );
}

#[test]
fn tree_text_spans_frames() {
    let expected = "RootWebArea 'T', focused, url='http://h/'\n\
        \t[3] generic\n\
        \t\t[4] generic\n\
        \t\t[5] button 'Go', clickable, roledescription='custom'\n\
        \t\t[a] Iframe ''\n\
        \t\t\tRootWebArea '', url='about:srcdoc'\n\
        \t\t\t\t[a2] generic\n\
        \t\t\t\t\t[a3] link 'In', clickable, url='http://h/x'";
    let elements = ElementTable::from_snapshot(&snapshot(), (0.0, 0.0));
    for prefix in ["", "1:"] {
        let typed = AxTree {
            nodes: merge::<AxNode>(frames(prefix)),
        };
        assert_eq!(tree_text(&typed, &elements, false).as_deref(), Ok(expected));
        let raw = AxTree::from_raw(&merge::<Value>(frames(prefix)));
        assert_eq!(tree_text(&raw, &elements, false).as_deref(), Ok(expected));
    }
}

#[test]
fn raw_nodes_keep_all_fields_and_lose_the_marks() {
    let nodes = merge::<Value>(frames("1:"));
    assert_eq!(nodes.len(), 14);
    let button = json!({
        "nodeId": "11", "ignored": false, "role": {"type": "role", "value": "button"},
        "name": {"type": "computedString", "value": "Go"},
        "properties": [
            {"name": "invalid", "value": {"type": "token", "value": "false"}},
            {"name": "focusable", "value": {"type": "booleanOrUndefined", "value": true}},
            {"name": "roledescription", "value": {"type": "string", "value": "custom"}},
        ],
        "parentId": "4", "childIds": ["12"], "backendDOMNodeId": 11, "browsergym_id": "5",
    });
    assert_eq!(nodes[4], button);
    assert_eq!(nodes[5]["childIds"], json!(["1:3"]));
    assert_eq!(nodes[5]["properties"], json!([]));
    let (id, parent, children) = (
        &nodes[9]["nodeId"],
        &nodes[9]["parentId"],
        &nodes[9]["childIds"],
    );
    assert_eq!(
        (id, parent, children),
        (&json!("1:19"), &json!("1:3"), &json!(["1:21"]))
    );
    assert!(
        !nodes
            .iter()
            .any(|node| node.to_string().contains("browsergym_id_"))
    );
}

#[test]
fn texts_that_only_look_like_marks_stay() {
    for (text, bid, rest) in [
        ("browsergym_id_12 a b", Some("12"), Some("a b")),
        ("browsergym_id_aB3", Some("aB3"), None),
        ("browsergym_id_ x", None, Some("browsergym_id_ x")),
        ("my browsergym_id_1 ", None, Some("my browsergym_id_1 ")),
    ] {
        let node = json!({"nodeId": "1", "description": {"value": text}});
        let mut typed: AxNode = serde_json::from_value(node.clone()).unwrap();
        typed.take_mark();
        let left = typed.description.as_ref().and_then(|left| left.as_str());
        assert_eq!((typed.bid.as_deref(), left), (bid, rest));
        let mut raw = node;
        raw.take_mark();
        let left = raw["description"]["value"].as_str();
        assert_eq!((raw["browsergym_id"].as_str(), left), (bid, rest));
    }
}

proptest! {
    /// A snapshot in which one number is replaced, wherever it points.
    #[test]
    fn no_index_of_a_snapshot_causes_a_panic(
        place in any::<prop::sample::Index>(),
        number in prop_oneof![Just(-1_i64), 0..20_i64, any::<i64>()],
    ) {
        let is_number = |at: &(usize, char)| at.1.is_ascii_digit();
        let columns = &SNAPSHOT[..SNAPSHOT.find("\"strings\"").unwrap()];
        let places: Vec<_> = columns.char_indices().filter(is_number).collect();
        let (at, _) = *place.get(&places);
        let text = format!("{}{number}{}", &SNAPSHOT[..at], &SNAPSHOT[at + 1..]);
        if let Ok(page) = serde_json::from_str::<DomSnapshot>(&text) {
            let _ = ElementTable::from_snapshot(&page, (f64::MAX, f64::MIN));
            let _ = crate::render::markdown::markdown(&page);
        }
    }
}
