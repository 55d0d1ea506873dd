//! Cost of a large pool without claims: memory and CPU of the controller, its restart, and
//! single claims.

use std::time::Duration;

use kube::Client;
use tokio::time::{Instant, sleep};

use crate::adapter::Adapter;
use crate::process::Process;
use crate::times::Times;

/// Time over which an idle controller is watched.
const REST: Duration = Duration::from_secs(30);
const CLAIMS: u32 = 50;

pub(crate) async fn measure(client: &Client, members: u32) {
    let controller = Process::start(&["controller"]);
    controller.line("reconciling");
    let empty = controller.rss();
    let adapter = Adapter::new("sandbox", client).await;
    let begin = Instant::now();
    adapter.prepare(members).await;
    println!(
        "{members} warm Pods after {:.1} s",
        begin.elapsed().as_secs_f64()
    );
    at_rest(&controller, empty, members).await;
    drop(controller);
    let begin = Instant::now();
    let controller = Process::start(&["controller"]);
    controller.line("reconciling");
    let reconciling = begin.elapsed();
    let at_rest_after = controller.wait_idle_since(begin);
    println!(
        "restart: reconciling after {:.2} s, at rest after {:.2} s, {:.2} s of CPU",
        reconciling.as_secs_f64(),
        at_rest_after.as_secs_f64(),
        controller.cpu().as_secs_f64()
    );
    at_rest(&controller, empty, members).await;
    let mut times = Vec::new();
    for number in 0..CLAIMS {
        let asked = Instant::now();
        times.push(adapter.start(&format!("claim-{number}")).await - asked);
        sleep(Duration::from_millis(100)).await;
    }
    println!("claims: {}", times.into_iter().collect::<Times>());
}

async fn at_rest(controller: &Process, empty: u64, members: u32) {
    sleep(REST).await;
    let (before, begin) = (controller.cpu(), Instant::now());
    sleep(REST).await;
    let cores =
        controller.cpu().saturating_sub(before).as_secs_f64() / begin.elapsed().as_secs_f64();
    let rss = controller.rss();
    let each = rss.saturating_sub(empty) / u64::from(members);
    println!(
        "at rest: RSS {} MiB, {each} bytes for each warm Pod, {cores:.4} cores",
        rss >> 20
    );
}
