//! Functions that operations call in pages.

/// A function with the shared ones around it.
macro_rules! function {
    ($name:literal) => {
        function!(text include_str!(concat!("../page_scripts/", $name)))
    };
    (text $text:expr) => {
        concat!(
            "(...input) => {\n",
            include_str!("../page_scripts/element.js"),
            "const operation =\n",
            $text,
            ";return operation(...input);}"
        )
    };
}

pub(super) const FIND_ELEMENT: &str = function!("find_element.js");
pub(super) const PREPARE_POINTER: &str = function!("prepare_pointer.js");
pub(super) const CHECK_POINTER: &str = function!("check_pointer.js");
pub(super) const RELEASE_POINTER: &str = function!("release_pointer.js");
pub(super) const FILL: &str = function!("fill.js");
pub(super) const SELECT_OPTIONS: &str = function!("select_options.js");
pub(super) const FOCUS: &str = function!("focus.js");
pub(super) const PREVIEW: &str = function!(text "preview");

pub(super) const CONTENT_SIZE: &str = include_str!("../page_scripts/content_size.js");
pub(super) const WATCH_DRAG: &str = include_str!("../page_scripts/watch_drag.js");
pub(super) const HAS_DRAG_STARTED: &str = include_str!("../page_scripts/has_drag_started.js");
pub(super) const SETTLE: &str = "() => new Promise((resolve) => setTimeout(resolve, 0))";
