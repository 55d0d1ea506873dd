//! Cost of event streams: CPU of a gateway with 5 000 sandboxes of one tenant, at rest and at 50 changes
//! a second, without streams and with 200, and CPU of the idle times that as many consoles ask for.
//!
//! `cargo run --release -p operator --example bench_events [seconds]`. The gateway is a process of
//! its own, so that its CPU is its alone; the clients read in this one.

mod clients;
mod gateway;
#[path = "../bench_proxy/processes.rs"]
#[allow(dead_code, reason = "no process is pinned here")]
mod processes;

use std::time::Duration;

use clients::{Clients, call};
use processes::{ChildProcess, cpu_time, resident_kib};
use tokio::time::Instant;

const STREAMS: usize = 200;
const CHANGES_PER_SECOND: u32 = 50;
const CALLS: u32 = 200;
/// Interval of a console.
const IDLE_INTERVAL: Duration = Duration::from_secs(30);

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let first = std::env::args().nth(1);
    if first.as_deref() == Some(gateway::ROLE) {
        return gateway::run().await;
    }
    let time = Duration::from_secs(first.map_or(Ok(30), |text| text.parse())?);
    for changes in [0, CHANGES_PER_SECOND] {
        println!(
            "{} sandboxes, {changes} changes per second",
            gateway::SANDBOXES
        );
        measure(changes, time).await?;
    }
    Ok(())
}

async fn measure(changes: u32, time: Duration) -> anyhow::Result<()> {
    let gateway = ChildProcess::start(&[gateway::ROLE, &changes.to_string()])?;
    let processes = [gateway.id()];
    report("no stream", &processes, time).await?;
    for path in ["/list/idle", "/list"] {
        let before = cpu_time(&processes)?;
        let bytes = call(gateway.address, path, CALLS).await?;
        let cpu = cpu_time(&processes)?.saturating_sub(before) / CALLS;
        let share = cpu.as_secs_f64() * f64::from(CALLS) / IDLE_INTERVAL.as_secs_f64();
        println!(
            "  {path}: {cpu:.2?} CPU, {} KiB; {share:.4} cores for {CALLS} in {IDLE_INTERVAL:?}",
            bytes >> 10
        );
    }
    let (begun, before) = (Instant::now(), cpu_time(&processes)?);
    let mut clients = Clients::connect(gateway.address, STREAMS).await?;
    let bytes = clients.wait_listed().await?;
    let cpu = cpu_time(&processes)?.saturating_sub(before);
    let took = begun.elapsed();
    println!(
        "  {STREAMS} lists at once: {took:.2?}, {cpu:.2?} CPU, {} MiB together",
        bytes >> 20
    );
    clients.reset();
    report(&format!("{STREAMS} streams"), &processes, time).await?;
    clients.report(time)
}

/// Prints the CPU share and the memory of the gateway.
async fn report(what: &str, processes: &[u32], time: Duration) -> anyhow::Result<()> {
    let (begun, before) = (Instant::now(), cpu_time(processes)?);
    tokio::time::sleep(time).await;
    let cpu = cpu_time(processes)?.saturating_sub(before).as_secs_f64();
    let share = cpu / begun.elapsed().as_secs_f64();
    let memory = resident_kib(processes)? >> 10;
    println!("  {what}: {share:.4} cores, {memory} MiB");
    Ok(())
}
