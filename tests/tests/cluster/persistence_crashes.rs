//! Saves that are interrupted or damaged on a real node: less comes back, with the reason, and files of
//! the workspace always do.

use std::fs;
use std::time::Duration;

use serde_json::Value;
use tests::cli_tools::run_checked;
use tests::persistence_session::{body_with_processes, pause};
use tests::session::Session;

use crate::installation::{API_KEY, IMAGE, api};
use crate::node_control::{criu, supervisor, volume};
use crate::test_namespace::TestNamespace;

const POLL: Duration = Duration::from_millis(2);
const POLLS: u32 = 30_000;

/// Starts a sandbox with files, and a process of this many MiB.
async fn started(name: &str, mib: u32) -> Session {
    let mut body = body_with_processes(name, IMAGE, "root");
    body["resource_factor"] = Value::from(4);
    let session = Session::start(&api(), API_KEY, &body).await;
    session
        .run("echo kept >/etc/kept; echo kept >/workspace/kept")
        .await;
    let hold = format!(
        "import os, time; data = os.urandom({mib} << 20); print(1, flush=True); time.sleep(10000)"
    );
    let start =
        format!("python3 -c '{hold}' >/tmp/held 2>&1 & until [ -s /tmp/held ]; do sleep 0.1; done");
    session.run(&start).await;
    session
}

const PROCESSES: &str = "grep -lsx python3 /proc/[0-9]*/comm | xargs -r grep -ls urandom | wc -l";

#[tokio::test]
#[ignore = "needs a real cluster: make test-cluster"]
async fn killed_save_keeps_the_files_and_says_why() {
    let ns = TestNamespace::of_gateway().await;
    let session = started("criu-killed", 300).await;
    let supervisor = supervisor(&ns.get(&session.id).await).expect("the Pod has a supervisor");
    let killing = tokio::task::spawn_blocking(move || {
        for _ in 0..POLLS {
            if let Some(pid) = criu(&supervisor) {
                run_checked("kill", &["-KILL", &pid]);
                return true;
            }
            std::thread::sleep(POLL);
        }
        false
    });
    let paused = pause(&session).await;
    assert!(killing.await.unwrap(), "CRIU never ran");
    assert_eq!(paused["persisted"]["level"], "Root", "{paused}");
    let reason = paused["persisted"]["reason"].as_str().unwrap();
    assert!(reason.starts_with("processes are not kept: "), "{reason}");
    comes_back_with_files(&session).await;
}

#[tokio::test]
#[ignore = "needs a real cluster: make test-cluster"]
async fn changed_archive_of_processes_is_not_used() {
    let ns = TestNamespace::of_gateway().await;
    let session = started("archive-changed", 8).await;
    let paused = pause(&session).await;
    assert_eq!(paused["persisted"]["level"], "Memory", "{paused}");
    let archive = volume(&ns, &session.id)
        .await
        .join("state/root/memory/archive");
    let mut content = fs::read(&archive).unwrap();
    let middle = content.len() / 2;
    content[middle] ^= 1;
    fs::write(&archive, content).unwrap();
    comes_back_with_files(&session).await;
}

/// The command has started anew, with its files, and can be paused again.
async fn comes_back_with_files(session: &Session) {
    let before = session.info().await["incarnation"].as_u64();
    session.resume().await;
    session.ready().await;
    let info = session.info().await;
    assert_eq!(info["restored"]["level"], "Root", "{info}");
    let reason = info["restored"]["reason"].as_str().unwrap_or_default();
    assert!(reason.starts_with("processes did not go on: "), "{info}");
    assert_eq!(
        info["incarnation"].as_u64(),
        before.map(|before| before + 1)
    );
    assert_eq!(
        session.run("cat /etc/kept /workspace/kept").await,
        "kept\nkept"
    );
    assert_eq!(session.run(PROCESSES).await, "0");
    let paused = pause(session).await;
    assert_eq!(paused["persisted"]["level"], "Memory", "{paused}");
    session.stop().await;
}
