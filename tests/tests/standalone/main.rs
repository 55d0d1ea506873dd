//! The standalone binary, driven as its users drive it: over HTTP, with kubectl, and by the README.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod bad_input;
mod first_session;
mod idle;
mod isolation;
mod kubectl;
mod recovery;
mod restart;
mod session;
