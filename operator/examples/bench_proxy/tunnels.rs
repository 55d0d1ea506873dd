//! Memory of tunnels that nobody uses at the moment.

use anyhow::Context as _;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::load::Way;

const WANTED: usize = 10_000;
/// Descriptors for everything else.
const OTHERS: u64 = 500;

/// Allows this process, and those that it starts, as many descriptors as it may.
pub(crate) fn raise_limit() -> anyhow::Result<()> {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let limit = Rlimit {
        current: maximum,
        maximum,
    };
    Ok(setrlimit(Resource::Nofile, limit)?)
}

/// Opens many tunnels, uses each once, and prints what they cost the process in between.
pub(crate) async fn report(way: &Way) -> anyhow::Result<()> {
    if way.processes.is_empty() {
        return Ok(());
    }
    // The server and the load have an end each in this process, and so has the proxy in its own.
    let allowed = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let count = usize::try_from(allowed.saturating_sub(OTHERS) / 2)?.min(WANTED);
    let before = resident_kib(&way.processes)?;
    let mut tunnels = Vec::new();
    for _ in 0..count {
        let mut tunnel = way.tunnel().await?;
        tunnel.write_all(b"once").await?;
        tunnel.read_exact(&mut [0; 4]).await?;
        tunnels.push(tunnel);
    }
    let after = resident_kib(&way.processes)?;
    let each = after.saturating_sub(before) * 1024 / count.max(1);
    println!(
        "{count} idle tunnels  {:<8} {} MiB resident, {} MiB before: {each} bytes each",
        way.name,
        after / 1024,
        before / 1024,
    );
    Ok(())
}

fn resident_kib(processes: &[u32]) -> anyhow::Result<usize> {
    let resident = processes.iter().map(|process| {
        let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
        let line = status.lines().find(|l| l.starts_with("VmRSS:"));
        let kib = line.and_then(|line| line.split_whitespace().nth(1));
        Ok(kib.context("no VmRSS")?.parse::<usize>()?)
    });
    resident.sum()
}
