//! Cost of the controller with many sandboxes or warm Pods: time and CPU to start them, CPU and rate of
//! passes that find nothing to do, memory, time from its start to reconciling, and CPU when idle.
//!
//! The API is the embedded one in a process of its own, which also plays the node; the controller
//! is a process too, so that memory and CPU are its alone, and talks to the API over HTTP.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a benchmark may fail")]

#[path = "bench_controller/process.rs"]
mod process;
#[path = "bench_controller/roles.rs"]
mod roles;

use std::time::Duration;

use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::time::Instant;

use process::Process;

/// Reconciles of each sandbox in the phase without changes.
const REQUEUE_ROUNDS: u32 = 5;
const IDLE: Duration = Duration::from_secs(30);

#[tokio::main]
async fn main() {
    operator::kubernetes::client::install_crypto();
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["api", what, count] => roles::api(what, count.parse().unwrap()).await,
        ["controller", url, ready] => roles::controller(url, ready == "ready").await,
        [] => {
            for count in [0, 10_000, 100_000] {
                measure("sandboxes", count).await;
            }
            measure("warm Pods", 100_000).await;
        }
        ref sizes => {
            for count in sizes {
                let count = count.parse().expect("numbers of objects");
                measure("sandboxes", count).await;
                measure("warm Pods", count).await;
            }
        }
    }
}

async fn measure(what: &str, count: u32) {
    println!("\n{count} {what}");
    let api = Process::start(&["api", what, &count.to_string()]);
    let url = api.line("listening on ");
    if count > 0 {
        start_all(&api, &url, count);
    }
    let begin = Instant::now();
    let controller = Process::start(&["controller", &url, "ready"]);
    controller.line("reconciling");
    report("start to reconciling", begin.elapsed(), &controller);
    report(
        "start to at rest",
        controller.wait_idle_since(begin),
        &controller,
    );
    println!(
        "  RSS at rest {} MiB, at most {} MiB",
        controller.rss() >> 20,
        controller.peak() >> 20
    );
    if count > 0 {
        println!(
            "  RSS of each {} bytes (all of the process)",
            controller.rss() / u64::from(count)
        );
    }
    if count > 0 && what == "sandboxes" {
        passes(&url, &controller, count).await;
    }
    let before = controller.cpu();
    tokio::time::sleep(IDLE).await;
    let share = controller.cpu().saturating_sub(before).as_secs_f64() / IDLE.as_secs_f64();
    println!("  idle for {IDLE:?}: {share:.4} cores");
}

/// A first controller starts them all.
fn start_all(api: &Process, url: &str, count: u32) {
    let begin = Instant::now();
    let controller = Process::start(&["controller", url, "dormant"]);
    api.line("all run");
    let took = begin.elapsed();
    let cpu = controller.cpu();
    let per = |time: Duration| time.as_secs_f64() * 1e6 / f64::from(count);
    println!(
        "  started in {took:.1?}: {:.0} per s, {:.0} µs CPU of the controller each",
        f64::from(count) / took.as_secs_f64(),
        per(cpu)
    );
}

/// Changes the pool that all of them name, in a field that is of no interest to them: one pass
/// over each, which finds nothing to do.
async fn passes(url: &str, controller: &Process, count: u32) {
    let client = Client::try_from(kube::Config::new(url.parse().unwrap())).unwrap();
    let pools: Api<crds::SandboxPool> = Api::namespaced(client, "default");
    let (mut time, mut cpu) = (Duration::ZERO, Duration::ZERO);
    for round in 1..=REQUEUE_ROUNDS {
        let (begin, before) = (Instant::now(), controller.cpu());
        let patch = Patch::Merge(json!({"spec": {"replicas": round}}));
        let params = PatchParams::default();
        pools.patch("bench-0", &params, &patch).await.unwrap();
        time += controller.wait_idle_since(begin);
        cpu += controller.cpu().saturating_sub(before);
    }
    let all = f64::from(REQUEUE_ROUNDS) * f64::from(count);
    println!(
        "  passes without a change: {:.0} per s, {:.1} µs CPU each",
        all / time.as_secs_f64(),
        cpu.as_secs_f64() * 1e6 / all
    );
}

fn report(what: &str, took: Duration, controller: &Process) {
    println!("  {what} {took:.2?}, {:.2?} CPU", controller.cpu());
}
