//! The same measurement on every target, and the difference to the first.

use std::future::Future;
use std::time::Duration;

use super::processes;
use super::target::Target;

/// Latencies and throughput.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Measured {
    count: u32,
    per_second: f64,
    p50: Duration,
    p99: Duration,
}

impl Measured {
    pub(crate) fn of(mut latencies: Vec<Duration>, limit: Duration) -> anyhow::Result<Self> {
        latencies.sort_unstable();
        let at = |part: usize| latencies.get(latencies.len() * part / 1000).copied();
        let count = u32::try_from(latencies.len())?;
        Ok(Self {
            count,
            per_second: f64::from(count) / limit.as_secs_f64(),
            p50: at(500).unwrap_or_default(),
            p99: at(990).unwrap_or_default(),
        })
    }

    fn print(&self, target: &Target, used: Duration, direct: Option<&Self>) {
        let (name, Self { p50, p99, .. }) = (target.name, self);
        let per_second = self.per_second;
        print!("  {name:<8} {per_second:>8.0}/s   p50 {p50:>9.1?}   p99 {p99:>9.1?}");
        if let Some(direct) = direct {
            let added = |with: Duration, without: Duration| {
                (with.as_secs_f64() - without.as_secs_f64()) * 1e6
            };
            let (p50, p99) = (added(self.p50, direct.p50), added(self.p99, direct.p99));
            let each = used / self.count.max(1);
            print!("   added p50 {p50:>6.0} us   p99 {p99:>6.0} us   CPU {each:>7.1?} each");
        }
        println!();
    }
}

/// Measures every target and prints the difference to the first.
pub(crate) async fn compare<F>(
    targets: &[Target],
    measure: impl Fn(Target) -> F,
) -> anyhow::Result<()>
where
    F: Future<Output = anyhow::Result<Measured>>,
{
    let mut direct: Option<Measured> = None;
    for target in targets {
        let before = processes::cpu_time(&target.processes)?;
        let measured = measure(target.clone()).await?;
        let used = processes::cpu_time(&target.processes)?.saturating_sub(before);
        measured.print(target, used, direct.as_ref());
        direct.get_or_insert(measured);
    }
    Ok(())
}
