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
pub mod browser_session;
pub mod cli_tools;
pub mod clients;
pub mod containerd;
pub mod escapes;
pub mod fake_agent_server;
pub mod fault_injection;
pub mod first_action;
pub mod fork_session;
pub mod free_port;
pub mod image_archive;
pub mod image_builds;
pub mod make_run;
pub mod monitoring;
pub mod page;
pub mod persistence_session;
pub mod plugin_session;
pub mod prometheus;
pub mod registry;
pub mod runtime_tags;
pub mod session;
pub mod size;
pub mod standalone;
pub mod test_cluster;
pub mod tree;
