//! The client against scripted servers: repeated calls, sandboxes that wake, and streams that go on after
//! their connection broke.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod events;
mod fixture;
mod logs;
mod recovery;
mod server_info;
mod terminals;
mod waits;
