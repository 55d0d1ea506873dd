//! Drives Chromium over the `DevTools` protocol for the actions `browse` and `browse_interactive`
//! (`docs/specs/browser.md`): a program of calls in, an observation of the active page out.
//!
//! `program` and `render` are pure; `cdp` is the transport; nothing here knows the executor.

pub mod cdp;
pub mod chromium;
pub mod error;
pub mod keys;
pub mod observe;
pub mod operations;
pub mod program;
pub mod python_repr;
pub mod render;
pub mod snapshot;
pub mod step;
pub mod tabs;
