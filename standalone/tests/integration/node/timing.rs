//! Time from Pod creation to the first instruction. Prints results without assertions: `cargo test
//! --release -p standalone --test integration -- --ignored --nocapture timing`

use std::time::{SystemTime, UNIX_EPOCH};

use futures::future::join_all;
use serde_json::json;
use standalone::node::PodNetwork;

use super::harness::{Machine, ended};

fn now() -> u128 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_micros()
}

/// Microseconds until `date` ran in the Pod, by the clock of this machine.
async fn start(machine: &Machine, number: usize) -> u128 {
    let name = format!("pod-{number}");
    let command = ["date", "+%s%6N"];
    let main = json!({"name": "main", "image": "any", "command": command});
    let before = now();
    machine
        .create(
            &name,
            json!({"restartPolicy": "Never", "containers": [main]}),
        )
        .await;
    machine.wait(&name, ended).await;
    machine.log(&name, "main").trim().parse::<u128>().unwrap() - before
}

fn print(what: &str, mut times: Vec<u128>) {
    times.sort_unstable();
    let at = |percent: usize| times[(times.len() - 1) * percent / 100];
    println!(
        "{what}: p50 {} µs, p99 {} µs, {} Pods",
        at(50),
        at(99),
        times.len()
    );
}

async fn measure(network: PodNetwork) {
    let machine = Machine::new();
    let node = machine.node_with(|config| config.pod_network = network);
    println!("{network:?}");
    let mut one_by_one = Vec::new();
    for number in 0..50 {
        one_by_one.push(start(&machine, number).await);
    }
    print("one by one", one_by_one);
    let at_once = join_all((100..200).map(|number| start(&machine, number))).await;
    print("100 at once", at_once);
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement"]
async fn creation_to_first_instruction() {
    measure(PodNetwork::detect()).await;
    measure(PodNetwork::Loopback).await;
}
