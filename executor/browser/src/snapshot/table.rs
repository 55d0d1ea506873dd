//! Element table from a snapshot: what the marking script wrote into attributes, and boxes in the
//! viewport, for which the positions of all frames are added up.

use super::dom::{Document, DomSnapshot, StringIndex};
use super::element::{ElementProperties, ElementTable};

const BID: &str = "bid";
/// Takes the place of [`BID`] in documents that use that name themselves.
const OTHER_BID: &str = "data-sandbox-bid";
const VISIBILITY: &str = "browsergym_visibility_ratio";
const SET_OF_MARKS: &str = "browsergym_set_of_marks";
/// Longest id: a page can write the attribute too.
const MAX_BID_BYTES: usize = 64;

/// Position of the top left corner of a document in the viewport.
type Origin = (f64, f64);

impl ElementTable {
    /// `origin` is the position of the first document in the viewport: (0, 0) for the main frame,
    /// and the corner of its owner's box for a frame with a session of its own.
    pub fn from_snapshot(snapshot: &DomSnapshot, origin: (f64, f64)) -> Self {
        let names = AttributeNames::find(snapshot);
        let mut table = Self::default();
        for (index, origin) in origins(snapshot, origin) {
            if let Some(document) = snapshot.documents.get(index) {
                add_document(&mut table, snapshot, document, origin, &names);
            }
        }
        table
    }
}

/// Reachable documents in the order in which their owners are found, with their positions.
fn origins(snapshot: &DomSnapshot, main: Origin) -> Vec<(usize, Origin)> {
    let mut found: Vec<(usize, Origin)> = vec![(0, main)];
    let mut seen = vec![false; snapshot.documents.len()];
    if let Some(main) = seen.first_mut() {
        *main = true;
    }
    let mut to_visit = vec![0];
    while let Some(place) = to_visit.pop() {
        let Some((index, corner)) = found.get_mut(place) else {
            continue;
        };
        let Some(document) = snapshot.documents.get(*index) else {
            continue;
        };
        corner.0 -= document.scroll_offset_x;
        corner.1 -= document.scroll_offset_y;
        let corner = *corner;
        let children = &document.nodes.content_document_index;
        if children.index.is_empty() {
            continue;
        }
        let boxes = boxes(document);
        for (owner, child) in children.index.iter().zip(&children.value) {
            let Some(child) = usize::try_from(*child).ok() else {
                continue;
            };
            // Each document once, however the owners point.
            if seen
                .get_mut(child)
                .is_none_or(|seen| std::mem::replace(seen, true))
            {
                continue;
            }
            let owner = boxes
                .get(*owner)
                .and_then(|owner| owner.map(|(bounds, _)| bounds));
            let at = owner.map_or((0.0, 0.0), |[x, y, ..]| (corner.0 + x, corner.1 + y));
            to_visit.push(found.len());
            found.push((child, at));
        }
    }
    found
}

/// Bounds of a node, and whether it has a client rectangle.
type LayoutBox = ([f64; 4], bool);

/// Boxes by node.
fn boxes(document: &Document) -> Vec<Option<LayoutBox>> {
    let layout = &document.layout;
    let mut boxes = vec![None; document.nodes.parent_index.len()];
    for (row, (node, bounds)) in layout.node_index.iter().zip(&layout.bounds).enumerate() {
        let bounds = <[f64; 4]>::try_from(bounds.as_slice());
        if let (Some(place), Ok(bounds)) = (boxes.get_mut(*node), bounds) {
            let rect = layout.client_rects.get(row);
            *place = Some((bounds, rect.is_some_and(|rect| !rect.is_empty())));
        }
    }
    boxes
}

fn add_document(
    table: &mut ElementTable,
    snapshot: &DomSnapshot,
    document: &Document,
    origin: Origin,
    names: &AttributeNames,
) {
    let nodes = &document.nodes;
    let has = |name: Option<StringIndex>| {
        let all = nodes.attributes.iter().flat_map(|row| pairs(row));
        name.is_some() && all.into_iter().any(|(found, _)| Some(found) == name)
    };
    let bid_name = if has(names.other_bid) {
        names.other_bid
    } else {
        names.bid
    };
    let mut clickable = vec![false; nodes.attributes.len()];
    for index in &nodes.is_clickable.index {
        if let Some(clickable) = clickable.get_mut(*index) {
            *clickable = true;
        }
    }
    let boxes = boxes(document);
    for (node, (attributes, clickable)) in nodes.attributes.iter().zip(clickable).enumerate() {
        let mut bid = None;
        let mut properties = ElementProperties {
            clickable,
            ..ElementProperties::default()
        };
        for (name, value) in pairs(attributes) {
            let (name, value) = (Some(name), snapshot.string(value));
            if name == bid_name {
                bid = Some(value).filter(|value| is_bid(value));
            } else if name == names.visibility {
                properties.visibility = value.parse().ok().filter(|ratio: &f64| ratio.is_finite());
            } else if name == names.set_of_marks {
                properties.set_of_marks = Some(value == "1");
            }
        }
        let Some(bid) = bid else {
            continue;
        };
        let rendered = boxes
            .get(node)
            .copied()
            .flatten()
            .filter(|(_, is_rendered)| *is_rendered);
        let bbox = rendered.map(|([x, y, w, h], _)| [x + origin.0, y + origin.1, w, h]);
        properties.bbox = bbox.filter(|bbox| bbox.iter().all(|side| side.is_finite()));
        table.0.insert(bid.to_owned(), properties);
    }
}

fn is_bid(text: &str) -> bool {
    (1..=MAX_BID_BYTES).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphanumeric())
}

/// Names and values of a row of attributes.
fn pairs(row: &[StringIndex]) -> impl Iterator<Item = (StringIndex, StringIndex)> {
    row.as_chunks()
        .0
        .iter()
        .map(|[name, value]| (*name, *value))
}

/// Indexes of the names: attributes are compared by index. `None` if the page has no such name.
struct AttributeNames {
    bid: Option<StringIndex>,
    other_bid: Option<StringIndex>,
    visibility: Option<StringIndex>,
    set_of_marks: Option<StringIndex>,
}

impl AttributeNames {
    fn find(snapshot: &DomSnapshot) -> Self {
        let find = |name: &str| {
            let at = snapshot.strings.iter().position(|text| text == name)?;
            StringIndex::try_from(at).ok()
        };
        Self {
            bid: find(BID),
            other_bid: find(OTHER_BID),
            visibility: find(VISIBILITY),
            set_of_marks: find(SET_OF_MARKS),
        }
    }
}
