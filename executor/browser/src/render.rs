//! Parts of a page that a model sees: text of the accessibility tree, Markdown, marked screenshot.
//! Pure functions, so that recorded pages can test them without a browser.

mod bitmap_font;
pub mod content;
pub mod markdown;
pub mod marks_image;
pub mod tree_text;
