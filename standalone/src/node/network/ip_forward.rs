//! `ip_forward`: on while any node runs; restored when the last one stops.
//!
//! The old value is stored in `/run`, which does not survive a reboot either.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};

const SETTING: &str = "/proc/sys/net/ipv4/ip_forward";
const RECORD: &str = "/run/sandbox-standalone.ip_forward";

/// Excludes other nodes that start or stop, until the lock is dropped.
pub(super) fn lock() -> io::Result<File> {
    let setting = File::open(SETTING)?;
    flock(&setting, FlockOperation::LockExclusive)?;
    Ok(setting)
}

/// Enables forwarding. An existing record was made by an earlier node.
pub(super) fn enable() -> io::Result<()> {
    let now = fs::read_to_string(SETTING)?;
    if !Path::new(RECORD).exists() {
        fs::write(RECORD, &now)?;
    }
    if now.trim() == "1" {
        Ok(())
    } else {
        fs::write(SETTING, "1")
    }
}

/// Restores the old value; called by the last node.
pub(super) fn restore() -> io::Result<()> {
    let before = match fs::read_to_string(RECORD) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        before => before?,
    };
    if before.trim() == "0" {
        fs::write(SETTING, "0")?;
    }
    fs::remove_file(RECORD)
}
