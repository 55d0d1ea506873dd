//! Starts of sandboxes by the size of their image, and the disk that they use.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use tests::clients::{HttpClient, text};
use tests::registry::LocalRegistry;
use tests::standalone::Standalone;
use tokio::time::Instant;

use crate::{disk_use, percentile};

const ROUNDS: usize = 30;
const SANDBOXES: usize = 50;
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Prints times from `/start` to the answer of the first action, after a first start of each image.
pub(crate) async fn compare(binaries: &Path, registry: &LocalRegistry, small: &str, many: &str) {
    let state = tempfile::tempdir().unwrap();
    let flags = ["--insecure-registries", &registry.host()];
    let program = binaries.join("sandbox-standalone");
    let standalone = Standalone::start_binary(&program, state.path(), &flags);
    let api = HttpClient::unpooled(&[("X-API-Key", standalone.key())]);
    let base = standalone.api();
    let (mut of_small, mut of_many) = (Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        for (image, samples) in [(small, &mut of_small), (many, &mut of_many)] {
            let (id, time) = start(&api, base, image, &format!("round-{round}")).await;
            samples.push(time);
            api.post(&format!("{base}/stop"), &json!({"runtime_id": id}))
                .await;
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
        start(&api, base, many, &format!("disk-{number}")).await;
    }
    let added = disk_use(state.path()).saturating_sub(before);
    println!("{SANDBOXES} sandboxes of it: {added} KiB of disk beside {before} KiB");
}

/// Starts a sandbox; its id, and the time until its first action was answered.
async fn start(api: &HttpClient, base: &str, image: &str, session: &str) -> (String, Duration) {
    let body = json!({
        "session_id": format!("{session}-{}", image.replace([':', '/', '.'], "-")), "image": image,
        "working_dir": "/workspace",
        "command": ["python", "-m", "openhands.runtime.action_execution_server", "60000",
            "--working-dir", "/workspace", "--no-enable-browser"],
    });
    let begin = Instant::now();
    let mut info = api.post(&format!("{base}/start"), &body).await.success();
    let id = text(&info, "runtime_id");
    while info["pod_status"] != "Ready" {
        tokio::time::sleep(POLL_INTERVAL).await;
        info = api.get(&format!("{base}/runtime/{id}")).await.success();
    }
    first_action(&info).await;
    (id, begin.elapsed())
}

async fn first_action(info: &Value) {
    let key = text(info, "session_api_key");
    let sandbox = HttpClient::unpooled(&[("X-Session-API-Key", &key)]);
    let action =
        json!({"action": {"action": "run", "args": {"command": "echo hi"}, "timeout": 30}});
    let url = format!("{}/execute_action", text(info, "url"));
    let answer = sandbox.post(&url, &action).await;
    assert_eq!(answer.body["content"], "hi", "{}", answer.body);
}
