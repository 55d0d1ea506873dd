//! Resource usage of the server process in `/server_info` (`docs/specs/executor.md`, section 2.2).
#![expect(clippy::cast_precision_loss, reason = "percentages")]

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::sync::LazyLock;

use parking_lot::Mutex;
use serde::Serialize;
use tokio::time::Instant;

#[derive(Debug, Serialize)]
pub(super) struct Resources {
    cpu_percent: f64,
    memory: Memory,
    disk: Disk,
    io: Io,
}

#[derive(Debug, Serialize)]
struct Memory {
    rss: u64,
    vms: u64,
    percent: f64,
}

#[derive(Debug, Default, Serialize)]
struct Disk {
    total: u64,
    used: u64,
    free: u64,
    percent: f64,
}

#[derive(Debug, Default, Serialize)]
struct Io {
    read_bytes: u64,
    write_bytes: u64,
}

/// Stays open, because a process that hides its environment cannot open the file.
static IO_COUNTERS: LazyLock<Option<File>> = LazyLock::new(|| File::open("/proc/self/io").ok());

pub(super) fn open_io_counters() {
    LazyLock::force(&IO_COUNTERS);
}

/// Measures resources. Keeps the last CPU time, so that no measurement has to wait.
#[derive(Debug)]
pub(super) struct Meter(Mutex<(Instant, u64)>);

impl Meter {
    pub(super) fn new() -> Self {
        Self(Mutex::new((Instant::now(), cpu_ticks())))
    }

    pub(super) fn measure(&self) -> Resources {
        Resources {
            cpu_percent: self.cpu_percent(),
            memory: memory(),
            disk: disk(),
            io: io(),
        }
    }

    /// CPU usage since the last call.
    fn cpu_percent(&self) -> f64 {
        let (now, ticks) = (Instant::now(), cpu_ticks());
        let (then, before) = std::mem::replace(&mut *self.0.lock(), (now, ticks));
        let seconds = now.duration_since(then).as_secs_f64();
        let used = ticks.saturating_sub(before) as f64;
        let percent = 100.0 * used / rustix::param::clock_ticks_per_second() as f64 / seconds;
        if percent.is_finite() {
            round(percent)
        } else {
            0.0
        }
    }
}

/// User and system time: fields 14 and 15, counted after the name, which may contain blanks.
fn cpu_ticks() -> u64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default();
    let times = fields.split_whitespace().skip(11).take(2);
    times.filter_map(|field| field.parse::<u64>().ok()).sum()
}

fn memory() -> Memory {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let total = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib = |text: &str, name| 1024 * field(text, name);
    let rss = kib(&status, "VmRSS:");
    let total = kib(&total, "MemTotal:").max(1);
    Memory {
        rss,
        vms: kib(&status, "VmSize:"),
        percent: 100.0 * rss as f64 / total as f64,
    }
}

fn disk() -> Disk {
    let Ok(found) = rustix::fs::statvfs("/") else {
        return Disk::default();
    };
    let used = (found.f_blocks - found.f_bfree) * found.f_frsize;
    let free = found.f_bavail * found.f_frsize;
    let percent = 100.0 * used as f64 / (used + free).max(1) as f64;
    Disk {
        total: found.f_blocks * found.f_frsize,
        used,
        free,
        percent: round(percent),
    }
}

fn io() -> Io {
    let mut text = [0; 512];
    let read = IO_COUNTERS.as_ref().map(|file| file.read_at(&mut text, 0));
    let Some(Ok(length)) = read else {
        return Io::default();
    };
    let text = String::from_utf8_lossy(&text[..length]);
    Io {
        read_bytes: field(&text, "read_bytes:"),
        write_bytes: field(&text, "write_bytes:"),
    }
}

/// Returns the number after `name` at the start of a line.
fn field(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|rest| rest.split_whitespace().next());
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}

fn round(percent: f64) -> f64 {
    (percent * 10.0).round() / 10.0
}
