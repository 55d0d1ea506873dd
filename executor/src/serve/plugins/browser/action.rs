//! Actions of the browser and their outcomes.

use super::Page;

/// One action.
#[derive(Debug, PartialEq)]
pub(in crate::serve) struct Browse {
    pub(in crate::serve) kind: BrowseKind,
    /// True if the observation contains the accessibility tree as an object.
    pub(in crate::serve) return_axtree: bool,
}

#[derive(Debug, PartialEq)]
pub(in crate::serve) enum BrowseKind {
    /// Visit a URL.
    Url(String),
    /// Run a program of calls.
    Program(String),
}

#[derive(Debug)]
pub(in crate::serve) enum BrowseOutcome {
    Page(Box<Page>),
    /// The step failed as a whole; the text of the exception.
    Failed(String),
    /// A file was downloaded to this path.
    Download {
        program: String,
        path: String,
    },
    /// There is no browser.
    Unsupported,
}
