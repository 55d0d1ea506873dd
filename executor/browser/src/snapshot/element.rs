//! Properties of the marked elements (section 2.6): `extra_element_properties` of an observation.

use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};

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
#[derive(Debug, Default)]
pub struct ElementTable(pub Vec<(String, ElementProperties)>);

impl Serialize for ElementTable {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (bid, properties) in &self.0 {
            map.serialize_entry(bid, properties)?;
        }
        map.end()
    }
}
