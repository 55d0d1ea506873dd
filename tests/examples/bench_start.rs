//! Cold and warm starts in standalone: from `POST /start` to the answer of the first action.
//!
//! The reference, in the same run, is a bare bubblewrap container that runs one command: what the
//! machine needs at least.

#![allow(clippy::unwrap_used, reason = "a benchmark may fail")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use tests::clients::{HttpClient, text};
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
    let api = HttpClient::unpooled(&[("X-API-Key", standalone.key())]);
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
        let info = start(&api, standalone.api(), &format!("bench-{round}")).await;
        first_action(&info).await;
        starts.push(begin.elapsed());
        let id = json!({"runtime_id": info["runtime_id"]});
        api.post(&format!("{}/stop", standalone.api()), &id).await;
    }
    starts.remove(0); // warms file caches
    starts
}

async fn start(api: &HttpClient, base: &str, session: &str) -> Value {
    let body = json!({
        "session_id": session, "image": "debian:12", "working_dir": "/workspace",
        "command": ["python", "-m", "openhands.runtime.action_execution_server", "60000",
            "--working-dir", "/workspace", "--no-enable-browser"],
    });
    let mut info = api.post(&format!("{base}/start"), &body).await.body;
    while info["pod_status"] != "Ready" {
        tokio::time::sleep(Duration::from_millis(2)).await;
        let id = info["runtime_id"].as_str().unwrap();
        info = api.get(&format!("{base}/runtime/{id}")).await.body;
    }
    info
}

async fn first_action(info: &Value) {
    let key = text(info, "session_api_key");
    let sandbox = HttpClient::unpooled(&[("X-Session-API-Key", &key)]);
    let action =
        json!({"action": {"action": "run", "args": {"command": "echo hi"}, "timeout": 30}});
    let url = format!("{}/execute_action", info["url"].as_str().unwrap());
    let answer = sandbox.post(&url, &action).await;
    assert_eq!(answer.body["content"], "hi", "{}", answer.body);
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
