//! The driver with a real Chromium, on pages of a server on the loopback interface.

#![allow(clippy::unwrap_used, clippy::panic)]

mod fixture;
mod tabs;
