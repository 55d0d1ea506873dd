//! Sandboxes come back by themselves, as what they were, and say why they had to.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use tests::binaries::is_root_or_skips;
use tests::session::Session;
use tests::standalone::Standalone;

use crate::session;

/// The longest anything here may take; tests that go well need a few seconds.
const WAIT_TIMEOUT: Duration = Duration::from_mins(1);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A sandbox with a file in its workspace.
async fn begin(standalone: &Standalone) -> Session {
    let session = session::start(standalone, "s").await;
    session.run("echo kept > /workspace/file").await;
    session
}

/// Waits until the sandbox has been started again for this reason and is ready.
async fn comes_back(standalone: &Standalone, session: &Session, reason: &str) {
    let status = restarted(standalone, &session.id, 1).await;
    assert_eq!(status["restarts"]["reasons"], json!([reason]), "{status}");
    session.ready().await;
    // The same URL and key, in the same session, with the same files and environment.
    let said = session.run("cat /workspace/file; echo $GREETING").await;
    assert_eq!(said, "kept\nhello");
    let again = session::start(standalone, "s").await;
    assert_eq!(
        (&again.id, &again.url, &again.key),
        (&session.id, &session.url, &session.key)
    );
    let info = session.info().await;
    assert_eq!(info["restart_count"], 1, "{info}");
}

/// The status of a Sandbox once it runs again after so many restarts.
async fn restarted(standalone: &Standalone, name: &str, count: u64) -> Value {
    let mut last = Value::Null;
    for _ in 0..WAIT_TIMEOUT.as_millis() / POLL_INTERVAL.as_millis() {
        let text = standalone.run("kubectl", &["get", "sbx", name, "-o", "json"]);
        last = serde_json::from_str::<Value>(&text).unwrap()["status"].take();
        let restarts = last["restarts"]["count"].as_u64().unwrap_or(0);
        if restarts == count && last["phase"] == "Running" {
            return last;
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    panic!("{name} was not started again: {last}");
}

/// Processes of this sandbox whose name contains this, as the machine sees them. `own` is their
/// number inside, where 1 is the first.
async fn processes(session: &Session, own: impl Fn(u32, &str) -> bool) -> Vec<u32> {
    let inside = session.run("readlink /proc/self/ns/pid").await;
    let all = fs::read_dir("/proc").unwrap().flatten();
    let numbers = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    numbers
        .filter(|pid| {
            let process = PathBuf::from(format!("/proc/{pid}"));
            let namespace = fs::read_link(process.join("ns/pid"));
            namespace.is_ok_and(|ns| ns == Path::new(&inside))
                && number_inside(&process).is_some_and(|n| own(n, &command_line(&process)))
        })
        .collect()
}

fn number_inside(process: &Path) -> Option<u32> {
    let status = fs::read_to_string(process.join("status")).ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix("NSpid:"))?;
    line.split_whitespace().last()?.parse().ok()
}

fn command_line(process: &Path) -> String {
    let text = fs::read_to_string(process.join("cmdline")).unwrap_or_default();
    text.replace('\0', " ")
}

fn kill(pids: &[u32]) {
    assert_eq!(pids.len(), 1, "{pids:?}");
    let pid = pids[0].to_string();
    let killed = Command::new("kill").args(["-9", &pid]).status();
    assert!(killed.unwrap().success());
}

#[tokio::test]
async fn a_killed_supervisor_is_started_again() {
    if !is_root_or_skips("kill -9 of a supervisor in standalone") {
        return;
    }
    let state = tempfile::tempdir().unwrap();
    let standalone = Standalone::start(state.path(), &[]);
    let session = begin(&standalone).await;
    kill(&processes(&session, |number, _| number == 1).await);
    comes_back(&standalone, &session, "exit code 137").await;
}

#[tokio::test]
async fn a_killed_command_is_started_again() {
    if !is_root_or_skips("kill -9 of a command in standalone") {
        return;
    }
    let state = tempfile::tempdir().unwrap();
    let standalone = Standalone::start(state.path(), &[]);
    let session = begin(&standalone).await;
    let server = |number, line: &str| number > 1 && line.contains("sandbox-executor serve");
    kill(&processes(&session, server).await);
    comes_back(&standalone, &session, "exit code 137").await;
}

#[tokio::test]
async fn a_deleted_pod_is_replaced() {
    if !is_root_or_skips("a deleted Pod in standalone") {
        return;
    }
    let state = tempfile::tempdir().unwrap();
    let standalone = Standalone::start(state.path(), &[]);
    let session = begin(&standalone).await;
    standalone.run("kubectl", &["delete", "pod", &session.id, "--wait=false"]);
    comes_back(&standalone, &session, "Deleted").await;
}

/// Takes more memory than it may have, once.
const GREEDY: &str = "
[ -e /workspace/met ] && exec sleep infinity
echo kept > /workspace/met
sleep 2
exec tail /dev/zero
";

#[tokio::test]
async fn a_command_that_took_too_much_memory_is_started_again_and_it_is_said_so() {
    if !is_root_or_skips("too much memory in standalone") {
        return;
    }
    let state = tempfile::tempdir().unwrap();
    let standalone = Standalone::start(state.path(), &[]);
    if !state.path().join("node/cgroups").exists() {
        eprintln!("SKIPPED, no memory groups can be made here: too much memory in standalone");
        return;
    }
    let manifest = json!({
        "apiVersion": "openhands.dev/v1alpha1", "kind": "Sandbox", "metadata": {"name": "greedy"},
        "spec": {"image": "debian:12", "command": ["sh", "-c", GREEDY], "workspace": {"size": "1Gi"},
            "resources": {"limits": {"memory": "96Mi"}, "requests": {"memory": "96Mi"}}},
    });
    let file = state.path().join("greedy.json");
    fs::write(&file, manifest.to_string()).unwrap();
    standalone.run("kubectl", &["create", "-f", file.to_str().unwrap()]);
    let first = restarted(&standalone, "greedy", 0).await;
    let second = restarted(&standalone, "greedy", 1).await;
    assert_eq!(second["restarts"]["reasons"], json!(["OOMKilled"]));
    for field in ["url", "runtimeID", "podName", "podIP", "workspaceClaim"] {
        assert_eq!(second[field], first[field], "{field}");
    }
}
