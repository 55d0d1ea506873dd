//! What a model sees of a page: text of the accessibility tree, Markdown, marked screenshot.
