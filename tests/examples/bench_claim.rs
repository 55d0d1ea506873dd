//! Claims of warm Pods on a real API server with fake nodes (`make bench-claim`): time from the
//! request of a client until it sees the sandbox ready, writes, and cost of the controller.
//!
//! The controller is a process of its own. Supervisors answer at once, because nothing listens
//! behind the addresses of Pods that only the API knows. The driver is neutral: what it creates and
//! what it waits for are up to an adapter.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a benchmark may fail")]

#[path = "bench_claim/adapter.rs"]
mod adapter;
#[path = "bench_claim/agent_sandbox.rs"]
mod agent_sandbox;
#[path = "bench_claim/cpu_use.rs"]
mod cpu_use;
#[path = "bench_claim/idle.rs"]
mod idle;
#[path = "bench_claim/load.rs"]
mod load;
#[path = "bench_controller/process.rs"]
#[allow(dead_code, reason = "shared with the benchmark of the controller")]
mod process;
#[path = "bench_claim/times.rs"]
mod times;

use std::time::Duration;

use kube::Client;
use tests::audit::{Writes, writes};
use tests::cli_tools::define_resources;
use tests::test_cluster::{ScriptedSupervisors, run_controller};
use tokio_util::sync::CancellationToken;

use adapter::Adapter;
use cpu_use::CpuUse;
use load::{LOADS, Load};
use process::Process;

/// User of the controller in the audit log.
const CONTROLLER: &str = "the-controller";
/// Time for the audit log to be written.
const AUDIT_DELAY: Duration = Duration::from_secs(2);

#[tokio::main]
async fn main() {
    operator::kubernetes::client::install_crypto();
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    if let ["controller"] = args[..] {
        operator::logging::init(None);
        let supervisors = ScriptedSupervisors::of_ready_commands(false);
        return run_controller(
            client(CONTROLLER).await,
            supervisors,
            CancellationToken::new(),
        )
        .await;
    }
    define_resources();
    let client = client("the-user").await;
    if let ["idle", members] = args[..] {
        return idle::measure(&client, members.parse().unwrap()).await;
    }
    if args.contains(&"agent-sandbox") {
        agent_sandbox::define_resources(&client).await;
    }
    for name in ["bare-pod", "sandbox", "start", "agent-sandbox"] {
        let chosen = args.is_empty() && name != "agent-sandbox" || args.contains(&name);
        let loads = LOADS.iter().filter(|load| chosen && is_chosen(load, &args));
        for load in loads {
            // Another process each time: the supervisors of the last one know addresses of its Pods.
            let controller = controller(name);
            let adapter = Adapter::new(name, &client).await;
            measure(&adapter, name, load, &controller).await;
        }
    }
}

fn controller(adapter: &str) -> Process {
    if adapter == "agent-sandbox" {
        return agent_sandbox::controller();
    }
    let controller = Process::start(&["controller"]);
    controller.line("reconciling");
    controller
}

/// Arguments are names of adapters and loads; without a load all of them run.
fn is_chosen(load: &Load, args: &[&str]) -> bool {
    let none = || LOADS.iter().all(|load| !args.contains(&load.name));
    args.contains(&load.name) || none()
}

async fn measure(adapter: &Adapter, name: &str, load: &Load, controller: &Process) {
    adapter.prepare(load.members).await;
    let (before, cpu, all) = (writes(CONTROLLER), controller.cpu(), CpuUse::now());
    let times = load::run(adapter, load).await;
    let cpu = controller.cpu().saturating_sub(cpu);
    let cores = CpuUse::now().since(&all);
    tokio::time::sleep(AUDIT_DELAY).await;
    let new = difference(&before, &writes(CONTROLLER));
    let count = times.len();
    println!("\n{name}, {}: {count} ready", load.name);
    println!("  {times}");
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    let per = |total: f64| total / count.max(1) as f64;
    println!(
        "  controller: {:.1} ms CPU each, RSS {} MiB, at most {} MiB",
        per(cpu.as_secs_f64() * 1e3),
        controller.rss() >> 20,
        controller.peak() >> 20
    );
    println!("  cores in use: {cores}");
    for (deed, number) in new {
        #[expect(clippy::cast_precision_loss, reason = "small numbers")]
        let each = per(number as f64);
        println!("  {each:.2} {deed} each");
    }
    adapter.clean().await;
}

fn difference(before: &Writes, after: &Writes) -> Writes {
    let new = after.iter().map(|(deed, count)| {
        let earlier = before.get(deed).copied().unwrap_or_default();
        (deed.clone(), count - earlier)
    });
    new.filter(|(_, count)| *count > 0).collect()
}

/// A client of the cluster that goes by a name.
async fn client(name: &str) -> Client {
    let mut config = kube::Config::infer().await.unwrap();
    config.auth_info.impersonate = Some(name.to_owned());
    config.auth_info.impersonate_groups = Some(vec!["system:masters".to_owned()]);
    Client::try_from(config).unwrap()
}
