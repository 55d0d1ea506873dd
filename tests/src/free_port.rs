//! Ports for programs that cannot choose one and print it. The tests of the executor include this
//! file, because they cannot depend on this crate.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU32, Ordering};

/// Returns a free port outside of the ephemeral range, different for each call of a process.
/// Processes begin at different ports.
pub fn free_port() -> u16 {
    static GIVEN: AtomicU32 = AtomicU32::new(0);
    let first = std::process::id() * 101;
    loop {
        let number = first + GIVEN.fetch_add(1, Ordering::Relaxed);
        let port = u16::try_from(13_000 + number % 19_000).unwrap();
        if TcpListener::bind(("0.0.0.0", port)).is_ok() {
            return port;
        }
    }
}
