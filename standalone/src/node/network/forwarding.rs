//! `ip_forward`: on while any node runs, and back to what it was when the last one stops.
//!
//! The old value lies in `/run`, which like the setting itself does not survive a reboot.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};

const SETTING: &str = "/proc/sys/net/ipv4/ip_forward";
const RECORD: &str = "/run/sandbox-standalone.ip_forward";

/// Holds off other nodes of this machine that come or go, until it is dropped.
pub(super) fn lock() -> io::Result<File> {
    let setting = File::open(SETTING)?;
    flock(&setting, FlockOperation::LockExclusive)?;
    Ok(setting)
}

/// Switches forwarding on. A record that exists is that of a node before us.
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

/// Puts the old value back; to be called by the last node.
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
