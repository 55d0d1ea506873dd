//! Memory of idle tunnels.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::processes::resident_kib;
use super::target::Target;

const COUNT: usize = 10_000;

/// Raises the limit of open files of this process and its children.
pub(crate) fn raise_limit() -> anyhow::Result<()> {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let limit = Rlimit {
        current: maximum,
        maximum,
    };
    Ok(setrlimit(Resource::Nofile, limit)?)
}

/// Opens tunnels, spread evenly over the targets, uses each once, and prints their memory.
pub(crate) async fn report(targets: &[Target]) -> anyhow::Result<()> {
    let Some(first) = targets.first() else {
        return Ok(());
    };
    let processes: Vec<_> = targets
        .iter()
        .flat_map(|target| &target.processes)
        .copied()
        .collect();
    let before = resident_kib(&processes)?;
    let mut tunnels = Vec::new();
    for target in targets.iter().cycle().take(COUNT) {
        let mut tunnel = target.tunnel().await?;
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
