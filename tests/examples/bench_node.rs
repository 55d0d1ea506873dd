//! Warm starts on a real node (`make bench-node`): from `POST /start` to the answer of the first
//! action, with V0 bodies and a workspace, one by one and many at once.

#![allow(clippy::unwrap_used, reason = "a benchmark may fail")]

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use client::{Client, StartRequest};
use futures::future::join_all;
use serde_json::{Value, json};
use tests::cli_tools::{kubectl, kubectl_words, try_kubectl};
use tests::session::client;
use tokio::time::{Instant, sleep};

const IMAGE: &str = "localhost/sandbox-node:1";
const ONE_BY_ONE: usize = 50;
const AT_ONCE: usize = 30;
/// Time after which an idle Pod would have gone cold.
const IDLE: Duration = Duration::from_mins(6);

#[tokio::main]
async fn main() {
    let with_idle = std::env::args().any(|arg| arg == "idle");
    let bench = Bench::new();
    bench.fill(4);
    for action in ["echo hi", "node -v"] {
        let mut rounds = Vec::new();
        for _ in 0..=ONE_BY_ONE {
            rounds.extend(bench.round(action, 1).await);
            Bench::wait_full();
        }
        rounds.remove(0); // warms file caches
        report(&format!("{action}, one by one"), &rounds);
    }
    if with_idle {
        sleep(IDLE).await;
        report(
            "echo hi, after six minutes",
            &bench.round("echo hi", 4).await,
        );
    }
    bench.fill(AT_ONCE);
    for action in ["echo hi", "node -v"] {
        report(
            &format!("{action}, at once"),
            &bench.round(action, AT_ONCE).await,
        );
        Bench::wait_full();
    }
}

/// Times of one start.
struct Times {
    /// From the request to the answer of the first action.
    first: Duration,
    /// From the request to the answer of `/start`.
    accepted: Duration,
    /// Of the same action once more: what the program itself takes.
    again: Duration,
}

struct Bench {
    client: Client,
    command: Value,
}

impl Bench {
    fn new() -> Self {
        let url = std::env::var("OPERATOR_API").expect("hack/cluster.d/with-operator sets it");
        Self {
            client: client(&url, "cluster-test-key"),
            command: json!([
                "/openhands/micromamba/bin/micromamba",
                "run",
                "-n",
                "openhands",
                "poetry",
                "run",
                "python",
                "-u",
                "-m",
                "openhands.runtime.action_execution_server",
                "60000",
                "--working-dir",
                "/workspace",
                "--plugins",
                "agent_skills",
                "--username",
                "root",
                "--user-id",
                "0"
            ]),
        }
    }

    /// Makes the pool have so many ready Pods.
    fn fill(&self, members: usize) {
        let pool = json!({
            "apiVersion": "openhands.dev/v1alpha1", "kind": "SandboxPool",
            "metadata": {"name": "bench"},
            "spec": {
                "replicas": members, "claimedBy": "Matching", "prestart": "Executor",
                "template": {
                    "image": IMAGE, "command": self.command,
                    "workspace": {"size": "100Mi", "mountPath": "/workspace"},
                },
            },
        });
        try_kubectl(&["apply", "-f", "-"], &pool.to_string()).unwrap();
        kubectl_words(&format!(
            "wait --for=jsonpath={{.status.desired}}={members} sbxp/bench --timeout=60s"
        ));
        Self::wait_full();
    }

    fn wait_full() {
        kubectl_words("wait --for=condition=Ready sbxp/bench --timeout=300s");
    }

    /// Starts so many sandboxes at once and runs an action twice in each. The sandboxes are gone
    /// afterwards.
    async fn round(&self, action: &str, count: usize) -> Vec<Times> {
        let starts = (0..count).map(|_| self.start(action));
        let times = join_all(starts).await;
        kubectl(&["delete", "sandboxes", "--all", "--wait=true"]);
        times
    }

    async fn start(&self, action: &str) -> Times {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let session = format!("bench-{}-{number}", std::process::id());
        let request: StartRequest = serde_json::from_value(json!({
            "session_id": session, "image": IMAGE, "command": self.command,
            "working_dir": "/openhands/code/", "environment": {"SESSION": session},
        }))
        .unwrap();
        let begin = Instant::now();
        let info = self.client.start(&request).await.unwrap();
        let accepted = begin.elapsed();
        let sandbox = self.client.sandbox(info);
        let answer = async || loop {
            if let Ok(said) = sandbox.run(action).await {
                assert_eq!(said.exit_code(), Some(0), "{said:?}");
                return;
            }
            sleep(Duration::from_millis(2)).await;
        };
        answer().await;
        let first = begin.elapsed();
        let begin = Instant::now();
        answer().await;
        Times {
            first,
            accepted,
            again: begin.elapsed(),
        }
    }
}

fn report(what: &str, times: &[Times]) {
    println!("{what}: {} starts", times.len());
    let parts = [
        ("first action", times.iter().map(|t| t.first).collect()),
        (
            "of it until /start was answered",
            times.iter().map(|t| t.accepted).collect(),
        ),
        (
            "the same action again",
            times.iter().map(|t| t.again).collect::<Vec<_>>(),
        ),
    ];
    for (part, mut times) in parts {
        times.sort();
        let at = |percent: usize| times[(times.len() - 1) * percent / 100];
        let (half, most, all) = (at(50), at(90), at(100));
        println!("  {part}: p50 {half:.1?}, p90 {most:.1?}, max {all:.1?}");
    }
}
