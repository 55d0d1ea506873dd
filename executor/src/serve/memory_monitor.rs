//! Memory log of `RUNTIME_MEMORY_MONITOR`, for the search of leaks in a sandbox.

use std::fs;
use std::time::Duration;

const INTERVAL: Duration = Duration::from_secs(10);
/// Current and peak memory in the cgroup of the container, of version 2 and 1.
const FILES: [[&str; 2]; 2] = [
    [
        "/sys/fs/cgroup/memory.current",
        "/sys/fs/cgroup/memory.peak",
    ],
    [
        "/sys/fs/cgroup/memory/memory.usage_in_bytes",
        "/sys/fs/cgroup/memory/memory.max_usage_in_bytes",
    ],
];

/// Logs the memory of the container, until the future is dropped.
pub(super) async fn log_memory() {
    let read = |path: &str| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let exists = |files: &[&str; 2]| read(files[0]).is_some();
    let Some([current, peak]) = FILES.into_iter().find(exists) else {
        tracing::warn!("cannot read the memory of the sandbox: no memory cgroup");
        return;
    };
    loop {
        let (current, peak) = (read(current), read(peak));
        tracing::info!(current, peak, "memory of the sandbox in bytes");
        tokio::time::sleep(INTERVAL).await;
    }
}
