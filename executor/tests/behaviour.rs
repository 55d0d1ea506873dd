//! Tests of the binary over HTTP, in temporary directories.

// Always true here; with it, clippy treats helpers as test code as well.
#![cfg(test)]

mod agent_skills;
mod browser;
mod client;
mod conformance;
mod dormant;
mod editor;
mod files;
mod fixture;
#[allow(unreachable_pub, reason = "public in its own crate")]
#[path = "../../tests/src/free_port.rs"]
mod free_port;
mod jupyter;
mod mcp;
mod minimal_images;
mod own_plugins;
mod persistence;
mod plugins;
mod prestart;
mod python_client;
mod serve;
mod soak;
mod supervise;
mod terminals;
mod transfer;
mod viewer;
mod vscode;
