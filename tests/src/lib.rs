//! Harness for behaviour tests that cross crates. The behaviours are in `tests/tests/`, one file
//! each.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a harness may fail its test"
)]

pub mod audit;
pub mod binaries;
pub mod clients;
pub mod double;
pub mod http;
pub mod network_policy;
pub mod plugins;
pub mod session;
pub mod standalone;
pub mod tools;
pub mod world;
