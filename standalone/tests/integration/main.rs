//! The embedded API through kube-rs, and the process node against it. One binary, because each
//! test binary links the whole product.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod api;
mod node;
