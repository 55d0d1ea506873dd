//! Text of an observation, `content` of section 1.3: what the model reads. Clients parse it, so
//! each line is part of the interface.

use std::fmt::{self, Display, Formatter};

use super::tree_text::{TreeError, tree_text};
use crate::snapshot::ax::AxTree;
use crate::snapshot::element::ElementTable;

const NOTE: &str = "Note: [bid] is the unique alpha-numeric identifier at the beginning of lines \
    for each element in the AXTree. Always use bid to refer to elements in your actions.";
const COMPLETE: &str = "Accessibility tree of the COMPLETE webpage:";
const VISIBLE: &str = "Accessibility tree of the VISIBLE portion of the webpage (accessibility \
    tree of complete webpage is too large and you may need to scroll to view remaining portion of \
    the webpage):";

/// Content of `browse`.
#[derive(Debug)]
pub struct VisitContent<'a> {
    pub url: &'a str,
    pub error: Option<&'a str>,
    /// Markdown of the page, or the text of the error if there is no page.
    pub page: &'a str,
}

/// Content of `browse_interactive`.
#[derive(Debug)]
pub struct ProgramContent<'a> {
    pub url: &'a str,
    pub focused_bid: Option<&'a str>,
    pub screenshot_path: Option<&'a str>,
    pub error: Option<&'a str>,
    pub tree: &'a TreeBlock,
}

/// Tree text in the variant that was chosen for its length.
#[derive(Debug, PartialEq, Eq)]
pub enum TreeBlock {
    Complete(String),
    Visible(String),
    Failed(TreeError),
}

impl TreeBlock {
    /// Leaves out what is not visible if the whole text has more than `max_chars` characters.
    pub fn new(tree: &AxTree, elements: &ElementTable, max_chars: Option<usize>) -> Self {
        let complete = tree_text(tree, elements, false);
        let is_long = |text: &str| max_chars.is_some_and(|max| text.chars().nth(max).is_some());
        match complete {
            Ok(text) if is_long(&text) => {
                tree_text(tree, elements, true).map_or_else(Self::Failed, Self::Visible)
            }
            Ok(text) => Self::Complete(text),
            Err(error) => Self::Failed(error),
        }
    }
}

impl Display for VisitContent<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "[Current URL: {}]", self.url)?;
        if let Some(error) = self.error {
            write_error(f, "when trying to visit the URL", error)?;
        }
        writeln!(f, "============== BEGIN webpage content ==============")?;
        writeln!(f, "{}", self.page)?;
        writeln!(f, "============== END webpage content ==============")
    }
}

impl Display for ProgramContent<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "[Current URL: {}]", self.url)?;
        writeln!(
            f,
            "[Focused element bid: {}]",
            self.focused_bid.unwrap_or("None")
        )?;
        if let Some(path) = self.screenshot_path {
            writeln!(f, "[Screenshot saved to: {path}]")?;
        }
        writeln!(f)?;
        match self.error {
            Some(error) => write_error(f, "when executing the last action", error)?,
            None => writeln!(f, "[Action executed successfully.]")?,
        }
        self.tree.fmt(f)
    }
}

impl Display for TreeBlock {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (title, text) = match self {
            Self::Complete(text) => (COMPLETE, text),
            Self::Visible(text) => (VISIBLE, text),
            Self::Failed(error) => {
                let failed = "[Error encountered when processing the accessibility tree:";
                return write!(f, "\n{failed} {error}]");
            }
        };
        writeln!(f, "{title}\n{NOTE}")?;
        writeln!(f, "============== BEGIN accessibility tree ==============")?;
        writeln!(f, "{text}")?;
        writeln!(f, "============== END accessibility tree ==============")
    }
}

fn write_error(f: &mut Formatter<'_>, occasion: &str, error: &str) -> fmt::Result {
    writeln!(f, "================ BEGIN error message ===============")?;
    writeln!(f, "The following error occurred {occasion}:\n{error}")?;
    writeln!(f, "================ END error message ===============")
}

#[cfg(test)]
mod tests;
