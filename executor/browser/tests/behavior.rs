//! The driver with a real Chromium, on pages of a server on the loopback interface.

// Always true here; with it, clippy treats helpers as test code as well.
#![cfg(test)]

mod fixture;
mod observe;
mod operations;
mod recorded;
mod tabs;
