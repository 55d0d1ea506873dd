//! Nodes with all fields, as Chromium sent them.

use serde_json::Value;

use super::{IFRAME, ROLE_DESCRIPTION, TreeNode, take_mark};

impl TreeNode for Value {
    fn id(&self) -> &str {
        self["nodeId"].as_str().unwrap_or_default()
    }

    fn is_iframe(&self) -> bool {
        self["role"]["value"] == IFRAME
    }

    fn backend_id(&self) -> Option<i64> {
        self["backendDOMNodeId"].as_i64()
    }

    fn take_mark(&mut self) {
        let Some(node) = self.as_object_mut() else {
            return;
        };
        let mut bid = None;
        if let Some(Value::Array(properties)) = node.get_mut("properties") {
            let at = properties
                .iter()
                .position(|property| property["name"] == ROLE_DESCRIPTION);
            if let Some(at) = at {
                let taken = properties[at]
                    .pointer_mut("/value/value")
                    .and_then(take_mark);
                if taken.as_ref().is_some_and(|taken| taken.is_empty) {
                    properties.remove(at);
                }
                bid = taken.and_then(|taken| taken.bid);
            }
        }
        let description = node
            .get_mut("description")
            .and_then(|text| text.get_mut("value"));
        if let Some(taken) = description.and_then(take_mark) {
            if taken.is_empty {
                node.remove("description");
            }
            bid = bid.or(taken.bid);
        }
        if let Some(bid) = bid {
            node.insert("browsergym_id".to_owned(), bid.into());
        }
    }

    fn add_child(&mut self, id: String) {
        if let Some(Value::Array(children)) = self.get_mut("childIds") {
            children.push(id.into());
        }
    }

    fn prefix_ids(&mut self, prefix: &str) {
        for field in ["nodeId", "parentId"] {
            if let Some(Value::String(id)) = self.get_mut(field) {
                id.insert_str(0, prefix);
            }
        }
        let children = self.get_mut("childIds").and_then(Value::as_array_mut);
        for id in children.into_iter().flatten() {
            if let Value::String(id) = id {
                id.insert_str(0, prefix);
            }
        }
    }
}
