//! Elements by the form that they have in Markdown.

use crate::snapshot::dom::StringIndex;

/// Longest name of an element below.
const MAX_NAME_BYTES: usize = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Element {
    /// Left out with all that it contains.
    Dropped,
    Inline,
    /// Inline, and apart from the words next to it.
    Spaced,
    /// Begins and ends with that many line ends.
    Block(usize),
    LineBreak,
    Rule,
    Heading(&'static str),
    Definition,
    Mark(Mark),
    /// The target is read when the element is opened.
    Link(Option<StringIndex>),
    Quote,
    Preformatted,
    BulletList,
    NumberList,
    Item,
    Table,
    Row,
    Cell,
}

/// Signs around words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mark {
    Strong,
    Emphasis,
    Code,
    Strike,
}

impl Mark {
    pub(super) const COUNT: usize = 4;

    pub(super) const fn sign(self) -> &'static str {
        match self {
            Self::Strong => "**",
            Self::Emphasis => "_",
            Self::Code => "`",
            Self::Strike => "~~",
        }
    }
}

impl Element {
    pub(super) fn from_name(name: &str) -> Self {
        // Generated content, which shows as `::marker` and the like.
        if name.starts_with(':') {
            return Self::Dropped;
        }
        if name.len() > MAX_NAME_BYTES {
            return Self::Inline;
        }
        match name.to_ascii_lowercase().as_str() {
            "head" | "title" | "script" | "style" | "noscript" | "template" | "img" | "iframe"
            | "frame" | "object" | "embed" => Self::Dropped,
            "p" | "div" | "section" | "article" | "header" | "footer" | "main" | "nav"
            | "aside" | "form" | "fieldset" | "figure" | "dl" | "details" | "dialog" | "body"
            | "search" | "hgroup" => Self::Block(2),
            "dt" | "address" | "caption" | "figcaption" | "legend" | "summary" | "menu" => {
                Self::Block(1)
            }
            "dd" => Self::Definition,
            "button" | "input" | "label" | "optgroup" | "option" | "select" | "textarea" => {
                Self::Spaced
            }
            "br" => Self::LineBreak,
            "hr" => Self::Rule,
            "h1" => Self::Heading("# "),
            "h2" => Self::Heading("## "),
            "h3" => Self::Heading("### "),
            "h4" => Self::Heading("#### "),
            "h5" => Self::Heading("##### "),
            "h6" => Self::Heading("###### "),
            "b" | "strong" => Self::Mark(Mark::Strong),
            "em" | "i" | "u" => Self::Mark(Mark::Emphasis),
            "code" | "kbd" | "samp" | "tt" => Self::Mark(Mark::Code),
            "del" | "s" | "strike" => Self::Mark(Mark::Strike),
            "a" => Self::Link(None),
            "blockquote" => Self::Quote,
            "pre" => Self::Preformatted,
            "ul" => Self::BulletList,
            "ol" => Self::NumberList,
            "li" => Self::Item,
            "table" => Self::Table,
            "tr" => Self::Row,
            "td" | "th" => Self::Cell,
            _ => Self::Inline,
        }
    }
}
