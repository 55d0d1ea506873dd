//! The process node against the embedded API, with real processes.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

#[path = "node_pods/harness.rs"]
mod harness;
#[path = "node_pods/identity.rs"]
mod identity;
#[path = "node_pods/isolation.rs"]
mod isolation;
#[path = "node_pods/lifecycle.rs"]
mod lifecycle;
#[path = "node_pods/limits.rs"]
mod limits;
#[path = "node_pods/restart.rs"]
mod restart;
#[path = "node_pods/storage.rs"]
mod storage;
#[path = "node_pods/timing.rs"]
mod timing;
