//! Properties of the marked elements (section 2.6): `extra_element_properties` of an observation.

use indexmap::IndexMap;
use serde::Serialize;

#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct ElementProperties {
    /// Share of the element inside the viewport, from 0 to 1.
    pub visibility: Option<f64>,
    /// `[x, y, width, height]` in the viewport; `None` without a client rectangle.
    pub bbox: Option<[f64; 4]>,
    pub clickable: bool,
    pub set_of_marks: Option<bool>,
}

/// By id, in the order of the snapshot.
#[derive(Debug, Default, Serialize)]
#[serde(transparent)]
pub struct ElementTable(pub IndexMap<String, ElementProperties>);

impl ElementTable {
    pub fn get(&self, bid: &str) -> Option<&ElementProperties> {
        self.0.get(bid)
    }

    /// Adds the elements of another session. Ids that are known keep their place.
    pub fn merge(&mut self, other: Self) {
        self.0.extend(other.0);
    }
}
