//! What a model sees of a page: text of the accessibility tree, Markdown, marked screenshot. Pure
//! functions, so that recorded pages can test them without a browser.

pub mod content;
pub mod markdown;
pub mod tree_text;
