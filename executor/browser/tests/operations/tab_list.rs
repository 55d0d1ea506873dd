//! The list of tabs.
