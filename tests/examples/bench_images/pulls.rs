//! Pulls of one image by three programs, each into an empty store on the same disk.
//!
//! Nothing is deleted between pulls: ext4 passes over the inodes of deleted files for minutes, which
//! makes the next 100 000 files four times as slow.

use std::any::Any;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use tests::containerd::Containerd;
use tests::registry::LocalRegistry;
use tokio::time::Instant;

use crate::{content, percentile};

const ROUNDS: usize = 3;

/// Stores that are deleted at the end.
pub(crate) type Kept = Vec<Box<dyn Any>>;

const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Prints medians, the ratio of rates to `skopeo copy`, and the memory of our pull.
pub(crate) fn compare(binaries: &Path, registry: &LocalRegistry, image: &str) -> Kept {
    let mut kept = Kept::new();
    let program = binaries.join("sandbox-standalone");
    let (mut copies, mut own, mut others) = (Vec::new(), Vec::new(), Vec::new());
    let mut memory = 0;
    for _ in 0..ROUNDS {
        let target = tempfile::tempdir().unwrap();
        copies.push(timed(|| {
            content::download(image, &target.path().join("layout"));
        }));
        drop(target);
        let state = tempfile::tempdir().unwrap();
        own.push(timed(|| {
            memory = memory.max(pull(&program, registry, image, state.path()));
        }));
        kept.push(Box::new(state));
        let containerd = Containerd::start();
        others.push(timed(|| containerd.pull(image)));
        kept.push(Box::new(containerd));
    }
    let reference = percentile(&copies, 50);
    println!("  skopeo copy (no unpacking):  p50 {reference:.2?}");
    for (name, samples) in [("images pull", &own), ("ctr images pull", &others)] {
        let p50 = percentile(samples, 50);
        let rate = 100.0 * reference.as_secs_f64() / p50.as_secs_f64();
        println!("  {name}: p50 {p50:.2?}, {rate:.0} % of skopeo's rate");
    }
    println!("  images pull: peak RSS {} MiB", memory >> 10);
    kept
}

/// Time of the work, with what it has written on the disk.
fn timed(work: impl FnOnce()) -> Duration {
    rustix::fs::sync();
    let begin = Instant::now();
    work();
    rustix::fs::sync();
    begin.elapsed()
}

/// Pulls with our program; its peak RSS in KiB.
fn pull(program: &Path, registry: &LocalRegistry, image: &str, state: &Path) -> u64 {
    let mut child = Command::new(program)
        .args(["--insecure-registries", &registry.host(), "--state-dir"])
        .arg(state)
        .args(["images", "pull", image])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let status = format!("/proc/{}/status", child.id());
    let mut peak = 0;
    loop {
        if let Some(ended) = child.try_wait().unwrap() {
            assert!(ended.success());
            return peak;
        }
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let number = line.and_then(|line| line.split_whitespace().next());
        peak = number
            .and_then(|number| number.parse().ok())
            .unwrap_or(peak);
        std::thread::sleep(POLL_INTERVAL);
    }
}
