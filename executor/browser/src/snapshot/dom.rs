//! Flat snapshot of the documents of a page (`DOMSnapshot.captureSnapshot`): columns instead of
//! nodes, and texts as indexes into one table.

use serde::Deserialize;

/// Index into [`DomSnapshot::strings`]; -1 is no string.
pub type StringIndex = i64;

#[derive(Debug, Default, Deserialize)]
pub struct DomSnapshot {
    /// The main document first.
    pub documents: Vec<Document>,
    pub strings: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Document {
    #[serde(rename = "documentURL")]
    pub document_url: StringIndex,
    pub frame_id: StringIndex,
    pub nodes: Nodes,
    pub layout: Layout,
    pub scroll_offset_x: f64,
    pub scroll_offset_y: f64,
}

/// Columns of the nodes, in document order.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Nodes {
    /// -1 for the document itself.
    pub parent_index: Vec<i64>,
    /// As `Node.nodeType`: 1 element, 3 text, 8 comment, 9 document, 10 doctype.
    pub node_type: Vec<u8>,
    pub node_name: Vec<StringIndex>,
    pub node_value: Vec<StringIndex>,
    pub backend_node_id: Vec<i64>,
    /// Name and value alternate.
    pub attributes: Vec<Vec<StringIndex>>,
    pub is_clickable: RareBoolean,
    pub content_document_index: RareInteger,
}

/// Columns of the layout boxes.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Layout {
    /// Index of the node of each box.
    pub node_index: Vec<usize>,
    /// `[x, y, width, height]` in the document; may be empty.
    pub bounds: Vec<Vec<f64>>,
    /// Rectangles relative to the viewport; empty without a client rectangle.
    pub client_rects: Vec<Vec<f64>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct RareBoolean {
    pub index: Vec<usize>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct RareInteger {
    pub index: Vec<usize>,
    pub value: Vec<i64>,
}

impl DomSnapshot {
    pub fn string(&self, index: StringIndex) -> &str {
        let found = usize::try_from(index)
            .ok()
            .and_then(|at| self.strings.get(at));
        found.map_or("", String::as_str)
    }
}
