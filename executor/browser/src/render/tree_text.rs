//! Text of the accessibility tree (section 2.7), byte for byte as models and clients know it.

use std::collections::HashMap;

use serde_json::Value;

use crate::snapshot::ax::{AxNode, AxTree, AxValue};
use crate::snapshot::element::ElementTable;

mod literal;

/// Roles that are left out with what belongs to them, not with their children.
const SKIPPED_ROLES: [&str; 2] = ["LineBreak", "InlineTextBox"];
const SKIPPED_PROPERTIES: [&str; 7] = [
    "editable",
    "readonly",
    "level",
    "settable",
    "multiline",
    "invalid",
    "focusable",
];
/// Properties that are named if they are true.
const FLAGS: [&str; 3] = ["required", "focused", "atomic"];
/// Deepest indentation, as deep as Chromium parses HTML. Only scripts build deeper trees, whose
/// text would grow with the square of the depth.
const MAX_INDENT: usize = 512;
/// Elements are visible from this share on.
const MIN_VISIBLE_RATIO: f64 = 0.5;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TreeError {
    /// The text is the one that clients know for a missing tree.
    #[error("'nodes'")]
    Empty,
}

/// Bytes of names that are searched for the texts in them. A page could otherwise make this slow:
/// a long name with thousands of texts.
const MAX_SEARCHED_BYTES: usize = 16 << 20;

/// A node that is still to be written.
struct Visit<'a> {
    index: usize,
    indent: usize,
    /// Empty if the parent has no row for its role or for want of a name.
    parent_name: &'a str,
    is_parent_hidden: bool,
}

/// Renders the tree. With `visible_only`, elements outside the viewport are left out.
pub fn tree_text(
    tree: &AxTree,
    elements: &ElementTable,
    visible_only: bool,
) -> Result<String, TreeError> {
    if tree.nodes.is_empty() {
        return Err(TreeError::Empty);
    }
    let by_id = tree.nodes.iter().enumerate();
    let by_id: HashMap<&str, usize> = by_id.map(|(at, node)| (&*node.node_id, at)).collect();
    let tabs = "\t".repeat(MAX_INDENT);
    let mut text = String::new();
    // Each node once: children may point at ancestors or share children.
    let mut is_queued = vec![false; tree.nodes.len()];
    is_queued[0] = true;
    let mut stack = vec![Visit {
        index: 0,
        indent: 0,
        parent_name: "",
        is_parent_hidden: false,
    }];
    let mut searched = 0;
    while let Some(mut visit) = stack.pop() {
        let node = &tree.nodes[visit.index];
        let row = Row::new(node, elements);
        let is_hidden = visible_only && row.as_ref().is_some_and(Row::is_hidden);
        let row_name = row.as_ref().map_or("", |row| row.name);
        searched += visit.parent_name.len();
        if searched > MAX_SEARCHED_BYTES {
            visit.parent_name = "";
        }
        let is_written = row.is_some_and(|row| {
            let is_written = !is_hidden && !row.is_redundant(&visit);
            if is_written {
                row.write(&mut text, &tabs[..visit.indent]);
            }
            is_written
        });
        let first_child = stack.len();
        for child in &node.child_ids {
            let Some(&index) = by_id.get(&**child) else {
                continue;
            };
            if std::mem::replace(&mut is_queued[index], true) {
                continue;
            }
            stack.push(Visit {
                index,
                indent: (visit.indent + usize::from(is_written)).min(MAX_INDENT),
                parent_name: row_name,
                is_parent_hidden: is_hidden,
            });
        }
        stack[first_child..].reverse();
    }
    Ok(text)
}

/// A node with a name and a role of its own.
struct Row<'a> {
    node: &'a AxNode,
    role: &'a str,
    name: &'a str,
    is_clickable: bool,
    /// `None` for elements that the table does not have.
    visibility: Option<f64>,
}

impl<'a> Row<'a> {
    fn new(node: &'a AxNode, elements: &ElementTable) -> Option<Self> {
        let role = node
            .role
            .as_ref()
            .and_then(AxValue::as_str)
            .unwrap_or_default();
        if SKIPPED_ROLES.contains(&role) {
            return None;
        }
        let name = node.name.as_ref()?.as_str().unwrap_or_default();
        // The texts of an element carry no properties, even if they carry its id.
        let bid = node.bid.as_ref().filter(|_| role != "StaticText");
        let element = bid.and_then(|bid| elements.get(bid));
        Some(Self {
            node,
            role,
            name,
            is_clickable: element.is_some_and(|element| element.clickable),
            visibility: element.map(|element| element.visibility.unwrap_or_default()),
        })
    }

    fn is_hidden(&self) -> bool {
        self.visibility
            .is_some_and(|ratio| ratio < MIN_VISIBLE_RATIO)
    }

    /// True for texts that the row of the parent shows, or that a hidden parent hides.
    fn is_redundant(&self, visit: &Visit<'_>) -> bool {
        self.role == "StaticText"
            && (visit.is_parent_hidden || visit.parent_name.contains(self.name))
    }

    fn write(&self, text: &mut String, indent: &str) {
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(indent);
        if let Some(bid) = &self.node.bid {
            text.extend(["[", bid, "] "]);
        }
        text.push_str(self.role);
        if self.role != "generic" || !self.name.is_empty() {
            text.push(' ');
            literal::push_string(text, literal::trim(self.name));
        }
        if let Some(value) = self
            .node
            .value
            .as_ref()
            .and_then(|value| value.value.as_ref())
        {
            text.push_str(" value=");
            literal::push(text, value);
        }
        if self.is_clickable {
            text.push_str(", clickable");
        }
        for property in &self.node.properties {
            let name = property.name.as_str();
            if let Some(value) = &property.value.value
                && !SKIPPED_PROPERTIES.contains(&name)
            {
                write_property(text, name, value);
            }
        }
    }
}

fn write_property(text: &mut String, name: &str, value: &Value) {
    if !FLAGS.contains(&name) {
        text.extend([", ", name, "="]);
        literal::push(text, value);
    } else if literal::is_true(value) {
        text.extend([", ", name]);
    }
}

#[cfg(test)]
mod tests;
