//! Ports for programs that cannot choose one and print it. The tests of the executor include this
//! file, because they cannot depend on this crate.

use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};

/// Returns a free port outside of the ephemeral range. No other test gets it while this process
/// lives: the name of a socket reserves it.
pub fn free_port() -> u16 {
    let first = std::process::id() * 101;
    let ports = (0..19_000).map(|number| 13_000 + (first + number) % 19_000);
    let mut ports = ports.map(|port| u16::try_from(port).unwrap());
    let free = ports.find(|port| {
        let name = SocketAddr::from_abstract_name(format!("sandbox-test-port-{port}")).unwrap();
        let reservation = UnixListener::bind_addr(&name);
        let is_free = reservation.is_ok() && TcpListener::bind(("0.0.0.0", *port)).is_ok();
        if is_free {
            std::mem::forget(reservation);
        }
        is_free
    });
    free.expect("a free port")
}
