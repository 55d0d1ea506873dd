//! The process node against the embedded API, with real processes.

#[path = "node_pods/harness.rs"]
mod harness;
#[path = "node_pods/lifecycle.rs"]
mod lifecycle;
