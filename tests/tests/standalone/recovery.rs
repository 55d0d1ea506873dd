//! Sandboxes come back by themselves, as what they were, and say why they had to.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;
use tests::session::Session;

use crate::fixture::{Fixture, standalone};

/// Does something to a sandbox, and waits until it has been started again for this reason.
async fn comes_back(fixture: &Fixture, sid: &str, reason: &str, harm: impl AsyncFn(&Session)) {
    let session = fixture.run(sid).await;
    session.run("echo kept > /workspace/file").await;
    harm(&session).await;
    let again = |info: &serde_json::Value| info["restart_count"] == 1;
    let info = fixture.until(sid, again).await;
    assert_eq!(info["restart_reasons"], json!([reason]), "{info}");
    session.ready().await;
    // The same URL and key, in the same session, with the same files and environment.
    let kept = session.run("cat /workspace/file; echo $GREETING").await;
    assert_eq!(kept, "kept\nhello");
    let found = fixture.run(sid).await;
    session.assert_same(&found);
    assert_eq!(session.info().await["restart_count"], 1);
}

/// Kills the process of this sandbox that `own` picks by its number inside, where 1 is the first, and
/// its command line.
async fn kill(session: &Session, own: impl Fn(u32, &str) -> bool) {
    let inside = session.run("readlink /proc/self/ns/pid").await;
    let all = fs::read_dir("/proc").unwrap().flatten();
    let numbers = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let picked = numbers.filter(|pid| {
        let process = PathBuf::from(format!("/proc/{pid}"));
        let namespace = fs::read_link(process.join("ns/pid"));
        namespace.is_ok_and(|ns| ns == Path::new(&inside))
            && number_inside(&process).is_some_and(|n| own(n, &command_line(&process)))
    });
    let pids: Vec<_> = picked.collect();
    assert_eq!(pids.len(), 1, "{pids:?}");
    let killed = Command::new("kill")
        .args(["-9", &pids[0].to_string()])
        .status();
    assert!(killed.unwrap().success());
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

#[tokio::test]
async fn killed_processes_and_deleted_pods_are_restarted_with_their_files() {
    let Some(fixture) = standalone() else { return };
    let kill_supervisor = async |session: &Session| {
        kill(session, |number, _| number == 1).await;
    };
    let kill_server = async |session: &Session| {
        let serves = |line: &str| line.contains("sandbox-executor serve");
        kill(session, |number, line| number > 1 && serves(line)).await;
    };
    let code = "exit code 137";
    comes_back(&fixture, "supervisor", code, kill_supervisor).await;
    comes_back(&fixture, "command", code, kill_server).await;
    let delete = async |session: &Session| {
        fixture.kubectl(&format!("delete pod {} --wait=false", session.id));
    };
    comes_back(&fixture, "pod", "Deleted", delete).await;
}
