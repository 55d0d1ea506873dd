//! The standalone binary, driven as its users drive it: over HTTP, with kubectl, and by the README.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod append_builds;
mod blackbox;
mod browser;
mod cdi_devices;
mod cli;
mod console;
mod escapes;
mod first_session;
mod fixture;
mod full_builds;
mod image_disk;
mod image_push;
mod images;
mod kubectl;
mod mcp;
mod monitoring;
mod network_policies;
mod own_plugins;
mod persistence;
mod persistence_crashes;
mod plugins;
mod pull_secrets;
mod readiness;
mod real_images;
mod replay_admin;
mod replay_enterprise;
mod replay_images;
mod replay_nested;
mod replay_sdk;
mod replay_v0;
mod replay_v1_app;
mod restart;
mod sessions;
mod snapshot_images;
mod warm_pods;
