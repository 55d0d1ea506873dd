//! Starts of sandboxes by the size of their image, and the disk that they use.

use std::path::Path;
use std::time::Duration;

use client::Client;
use tests::first_action::start_and_act;
use tests::registry::LocalRegistry;
use tests::standalone::Standalone;
use tokio::time::Instant;

use crate::{disk_use, percentile};

const ROUNDS: usize = 30;
const SANDBOXES: usize = 50;

/// Prints times from `/start` to the answer of the first action, after a first start of each image.
pub(crate) async fn compare(binaries: &Path, registry: &LocalRegistry, small: &str, many: &str) {
    let state = tempfile::tempdir().unwrap();
    let flags = ["--insecure-registries", &registry.host()];
    let program = binaries.join("sandbox-standalone");
    let standalone = Standalone::start_binary(&program, state.path(), &flags);
    let client = tests::session::client(standalone.api(), standalone.key());
    let (mut of_small, mut of_many) = (Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        for (image, samples) in [(small, &mut of_small), (many, &mut of_many)] {
            let (id, time) = start(&client, image, &format!("round-{round}")).await;
            samples.push(time);
            client.stop(&id).await.unwrap();
        }
    }
    let first = of_many.remove(0);
    of_small.remove(0);
    let (reference, p50) = (percentile(&of_small, 50), percentile(&of_many, 50));
    println!("/start to the first action, {ROUNDS} rounds, images pulled before:");
    println!(
        "  small image:     p50 {reference:.1?}, max {:.1?}",
        percentile(&of_small, 100)
    );
    println!(
        "  100 000 files:   p50 {p50:.1?}, max {:.1?}",
        percentile(&of_many, 100)
    );
    println!("  ratio {:.2}", p50.as_secs_f64() / reference.as_secs_f64());
    println!("  first start of it, with the pull: {first:.1?}");

    let before = disk_use(state.path());
    for number in 0..SANDBOXES {
        start(&client, many, &format!("disk-{number}")).await;
    }
    let added = disk_use(state.path()).saturating_sub(before);
    println!("{SANDBOXES} sandboxes of it: {added} KiB of disk beside {before} KiB");
}

/// Starts a sandbox; its id, and the time until its first action was answered.
async fn start(client: &Client, image: &str, session: &str) -> (String, Duration) {
    let session = format!("{session}-{}", image.replace([':', '/', '.'], "-"));
    let begin = Instant::now();
    let sandbox = start_and_act(client, image, &session).await;
    (sandbox.info().runtime_id.clone(), begin.elapsed())
}
