//! Cold and warm starts in standalone: from `POST /start` to the answer of the first action.
//!
//! The reference, in the same run, is a bare bubblewrap container that runs one command: what the
//! machine needs at least.

#![allow(clippy::unwrap_used, reason = "a benchmark may fail")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tests::first_action::start_and_act;
use tests::session::client;
use tests::standalone::Standalone;
use tokio::time::Instant;

const SAMPLES: usize = 30;

#[tokio::main]
async fn main() {
    let binaries = PathBuf::from(
        std::env::args()
            .nth(1)
            .expect("usage: bench_start BINARIES"),
    );
    let cold = starts(&binaries, &[]).await;
    let warm = starts(&binaries, &["--warm-pods", "1"]).await;
    let bare: Vec<_> = (0..SAMPLES).map(|_| bare_container()).collect();

    let reference = percentile(&bare, 50);
    println!("bare bubblewrap container, one command:  p50 {reference:.1?}");
    for (kind, samples) in [("cold", &cold), ("warm", &warm)] {
        let (p50, max) = (percentile(samples, 50), percentile(samples, 100));
        println!("{kind} /start to first action, {SAMPLES} rounds: p50 {p50:.1?}, max {max:.1?}");
        println!("ratio {:.1}", p50.as_secs_f64() / reference.as_secs_f64());
    }
}

/// Times of starts, one after the other, in a standalone with these flags.
async fn starts(binaries: &Path, flags: &[&str]) -> Vec<Duration> {
    let state = tempfile::tempdir().unwrap();
    let program = binaries.join("sandbox-standalone");
    let standalone = Standalone::start_binary(&program, state.path(), flags);
    let client = client(standalone.api(), standalone.key());
    let mut starts = Vec::new();
    for round in 0..=SAMPLES {
        if !flags.is_empty() {
            let wait = [
                "wait",
                "--for=condition=Ready",
                "sbxp/warm",
                "--timeout=60s",
            ];
            let waited = standalone.command("kubectl").args(wait).output();
            assert!(waited.unwrap().status.success());
        }
        let begin = Instant::now();
        let sandbox = start_and_act(&client, "debian:12", &format!("bench-{round}")).await;
        starts.push(begin.elapsed());
        client.stop(&sandbox.info().runtime_id).await.unwrap();
    }
    starts.remove(0); // warms file caches
    starts
}

fn bare_container() -> Duration {
    let begin = Instant::now();
    let status = Command::new("bwrap")
        .args("--ro-bind / / --proc /proc --dev /dev --unshare-all".split(' '))
        .args(["bash", "-c", "echo hi"])
        .stdout(std::process::Stdio::null())
        .status();
    assert!(status.unwrap().success());
    begin.elapsed()
}

fn percentile(samples: &[Duration], percent: usize) -> Duration {
    let mut sorted = samples.to_vec();
    sorted.sort();
    sorted[(sorted.len() - 1) * percent / 100]
}
