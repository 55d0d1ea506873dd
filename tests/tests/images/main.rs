//! Pulled and unpacked images beside those of containerd.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod containerd;
