//! Markdown of a page (section 2.9): text, headings, links and tables of the main document,
//! hidden elements included. Documents of frames are left out: the tree text shows them.
//!
//! One pass over the nodes, which come in document order, with a stack of open elements: the
//! depth of a page costs no recursion.

use crate::snapshot::dom::{Document, DomSnapshot, StringIndex};

use self::element::{Element, Mark};
use self::writer::Writer;

mod element;
mod writer;

/// Size at which the text is cut: nodes can share a long string, so that a small snapshot can
/// stand for any amount of text.
const MAX_BYTES: usize = 16 << 20;
const CUT: &str = "[The rest of the page is left out]";
/// Deepest indentation of lists and quotes.
const MAX_NESTING: usize = 16;
/// Indentation of the descriptions in a list of definitions.
const DEFINITION: &str = "    ";
const ELEMENT_NODE: u8 = 1;
const TEXT_NODE: u8 = 3;
const DOCUMENT_NODE: u8 = 9;

/// Renders the main document.
pub fn markdown(snapshot: &DomSnapshot) -> String {
    let Some(document) = snapshot.documents.first() else {
        return String::new();
    };
    let mut page = Page {
        snapshot,
        document,
        writer: Writer::default(),
        lists: Vec::new(),
        tables: Vec::new(),
        marks: [0; Mark::COUNT],
    };
    let mut open: Vec<(usize, Element)> = Vec::new();
    for (index, parent) in document.nodes.parent_index.iter().enumerate() {
        while open
            .last()
            .is_some_and(|(node, _)| usize::try_from(*parent) != Ok(*node))
        {
            page.close_last(&mut open);
        }
        let is_dropped = open
            .last()
            .is_some_and(|(_, parent)| *parent == Element::Dropped);
        if let Some(element) = page.visit(index, is_dropped) {
            open.push((index, element));
        }
        if page.writer.len() > MAX_BYTES {
            page.writer.break_line(2);
            page.writer.word(CUT);
            break;
        }
    }
    while !open.is_empty() {
        page.close_last(&mut open);
    }
    page.writer.finish()
}

struct Page<'a> {
    snapshot: &'a DomSnapshot,
    document: &'a Document,
    writer: Writer,
    lists: Vec<List>,
    tables: Vec<Table>,
    /// Open elements by mark: only the outermost one is written.
    marks: [usize; Mark::COUNT],
}

enum List {
    Bullets,
    Numbers { next: i64 },
}

#[derive(Default)]
struct Table {
    rows: usize,
    columns: usize,
}

impl Page<'_> {
    /// Begins a node. Returns the element if there is one to be closed.
    fn visit(&mut self, index: usize, is_dropped: bool) -> Option<Element> {
        let nodes = &self.document.nodes;
        match *nodes.node_type.get(index)? {
            TEXT_NODE if !is_dropped => {
                let text = self.snapshot.string(*nodes.node_value.get(index)?);
                self.writer.text(text);
                None
            }
            ELEMENT_NODE | DOCUMENT_NODE if is_dropped => Some(Element::Dropped),
            DOCUMENT_NODE => Some(Element::Inline),
            ELEMENT_NODE => {
                let name = self.snapshot.string(*nodes.node_name.get(index)?);
                let mut element = Element::from_name(name);
                self.open(index, &mut element);
                Some(element)
            }
            _ => None,
        }
    }

    fn open(&mut self, index: usize, element: &mut Element) {
        let writer = &mut self.writer;
        match element {
            Element::Dropped | Element::Inline => {}
            Element::Spaced => writer.space(),
            Element::Block(breaks) => writer.break_line(*breaks),
            Element::LineBreak => writer.add_break(),
            Element::Rule => {
                writer.break_line(2);
                writer.word("* * *");
                writer.break_line(2);
            }
            Element::Heading(sign) => {
                writer.break_line(2);
                writer.open_line(sign);
            }
            Element::Definition => {
                writer.break_line(1);
                writer.open_line(DEFINITION);
            }
            Element::Mark(mark) => {
                let count = &mut self.marks[*mark as usize];
                *count += 1;
                if *count == 1 {
                    writer.open(mark.sign());
                }
            }
            Element::Link(target) => {
                *target = self.attribute(index, "href").filter(|at| {
                    // Places in the same page say nothing to a reader of the text.
                    !self.snapshot.string(*at).starts_with('#')
                });
                if target.is_some() {
                    self.writer.open(writer::LINK);
                }
            }
            Element::Quote => writer.open_quote(),
            Element::Preformatted => writer.open_preformatted(),
            Element::BulletList | Element::NumberList => {
                writer.break_line(if self.lists.is_empty() { 2 } else { 1 });
                let list = if *element == Element::NumberList {
                    let start = self
                        .attribute(index, "start")
                        .map(|at| self.snapshot.string(at));
                    List::Numbers {
                        next: start.and_then(|text| text.parse().ok()).unwrap_or(1),
                    }
                } else {
                    List::Bullets
                };
                self.lists.push(list);
            }
            Element::Item => self.open_item(),
            Element::Table => {
                writer.break_line(2);
                self.tables.push(Table::default());
            }
            Element::Row => writer.break_line(1),
            Element::Cell => {
                if let Some(table) = self.tables.last_mut() {
                    writer.open_cell(table.columns == 0);
                    table.columns += 1;
                }
            }
        }
    }

    fn open_item(&mut self) {
        let indent = "  ".repeat(self.lists.len().clamp(1, MAX_NESTING));
        let sign = match self.lists.last_mut() {
            Some(List::Numbers { next }) => {
                let number = *next;
                *next = next.saturating_add(1);
                format!("{indent}{number}. ")
            }
            _ => format!("{indent}* "),
        };
        self.writer.break_line(1);
        self.writer.open_item(sign);
    }

    fn close_last(&mut self, open: &mut Vec<(usize, Element)>) {
        let Some((_, element)) = open.pop() else {
            return;
        };
        let writer = &mut self.writer;
        match element {
            Element::Dropped
            | Element::Inline
            | Element::LineBreak
            | Element::Rule
            | Element::Link(None) => {}
            Element::Spaced => writer.space(),
            Element::Block(breaks) => writer.break_line(breaks),
            Element::Heading(sign) => {
                writer.close_line(sign);
                writer.break_line(2);
            }
            Element::Definition => {
                writer.close_line(DEFINITION);
                writer.break_line(1);
            }
            Element::Mark(mark) => {
                let count = &mut self.marks[mark as usize];
                *count -= 1;
                if *count == 0 {
                    writer.close(mark.sign(), mark.sign());
                }
            }
            Element::Link(Some(target)) => writer.close_link(self.snapshot.string(target)),
            Element::Quote => writer.close_quote(),
            Element::Preformatted => writer.close_preformatted(),
            Element::BulletList | Element::NumberList => {
                self.lists.pop();
                writer.break_line(if self.lists.is_empty() { 2 } else { 1 });
            }
            Element::Item => {
                writer.close_item();
                writer.break_line(1);
            }
            Element::Table => {
                self.tables.pop();
                writer.break_line(2);
            }
            Element::Row => self.close_row(),
            Element::Cell => writer.close_cell(),
        }
    }

    /// Ends a row; below the first one goes the line that makes Markdown see a table.
    fn close_row(&mut self) {
        self.writer.close_row();
        if let Some(table) = self.tables.last_mut() {
            if table.rows == 0 && table.columns > 1 {
                let rule = vec!["---"; table.columns].join("|");
                self.writer.word(&rule);
                self.writer.break_line(1);
            }
            table.rows += 1;
            table.columns = 0;
        }
    }

    fn attribute(&self, index: usize, name: &str) -> Option<StringIndex> {
        let row = self.document.nodes.attributes.get(index)?;
        let mut pairs = row.as_chunks().0.iter();
        let found = pairs.find(|[at, _]| self.snapshot.string(*at) == name)?;
        Some(found[1])
    }
}

#[cfg(test)]
mod tests;
