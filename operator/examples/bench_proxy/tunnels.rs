//! Memory of tunnels that nobody uses at the moment.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::processes::resident_kib;
use super::way::Way;

const COUNT: usize = 10_000;

/// Allows this process, and those that it starts, as many descriptors as it may.
pub(crate) fn raise_limit() -> anyhow::Result<()> {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let limit = Rlimit {
        current: maximum,
        maximum,
    };
    Ok(setrlimit(Resource::Nofile, limit)?)
}

/// Opens many tunnels, the same number each way, uses each once, and prints what they cost in between.
pub(crate) async fn report(ways: &[Way]) -> anyhow::Result<()> {
    let Some(first) = ways.first() else {
        return Ok(());
    };
    let processes: Vec<_> = ways
        .iter()
        .flat_map(|way| &way.processes)
        .copied()
        .collect();
    let before = resident_kib(&processes)?;
    let mut tunnels = Vec::new();
    for way in ways.iter().cycle().take(COUNT) {
        let mut tunnel = way.tunnel().await?;
        tunnel.write_all(b"once").await?;
        tunnel.read_exact(&mut [0; 4]).await?;
        tunnels.push(tunnel);
    }
    let after = resident_kib(&processes)?;
    println!(
        "{COUNT} idle tunnels  {:<8} {} MiB resident in {} processes, {} MiB before: {} bytes each",
        first.name,
        after / 1024,
        processes.len(),
        before / 1024,
        after.saturating_sub(before) * 1024 / COUNT,
    );
    Ok(())
}
