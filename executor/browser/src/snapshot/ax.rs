//! Accessibility tree (`Accessibility.getFullAXTree`) of all frames, merged.

use serde::Deserialize;
use serde_json::Value;

/// Nodes in the order of Chromium, those of the main frame first. The first node is the root.
#[derive(Debug, Default, Deserialize)]
pub struct AxTree {
    pub nodes: Vec<AxNode>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AxNode {
    pub node_id: String,
    #[serde(default)]
    pub ignored: bool,
    pub role: Option<AxValue>,
    /// Absent for ignored nodes.
    pub name: Option<AxValue>,
    pub description: Option<AxValue>,
    pub value: Option<AxValue>,
    #[serde(default)]
    pub properties: Vec<AxProperty>,
    #[serde(default)]
    pub child_ids: Vec<String>,
    #[serde(rename = "backendDOMNodeId")]
    pub backend_dom_node_id: Option<i64>,
    pub frame_id: Option<String>,
    /// Id of the element that the node stands for (section 2.5), taken from the mark.
    #[serde(rename = "browsergym_id")]
    pub bid: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
pub struct AxValue {
    /// String, number, boolean, or absent.
    pub value: Option<Value>,
}

impl AxValue {
    pub fn as_str(&self) -> Option<&str> {
        self.value.as_ref()?.as_str()
    }
}

#[derive(Debug, Deserialize)]
pub struct AxProperty {
    pub name: String,
    pub value: AxValue,
}
