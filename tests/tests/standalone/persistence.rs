//! Pauses that keep changed files: the node keeps the root of sandboxes.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use client::{ForkRequest, Level};
use serde_json::Value;
use tempfile::TempDir;
use tests::binaries::{criu_or_skip, is_root_or_skips};
use tests::fork_session::{delete_all, fork, forks_go_on, snapshot};
use tests::persistence_session::interpreter::interpreter_survives_pauses;
use tests::persistence_session::{
    Workload, body_with_processes, changed_files_survive_pauses, pause, processes_survive_pauses,
    start_body,
};
use tests::plugin_session::IMAGE;
use tests::session::Session;
use tests::size::full_or;
use tests::standalone::Standalone;

use crate::fixture::{fixture, start};
use crate::plugins::image;

/// Tries of a look at a node that cleans up, and the time between them.
const MAX_POLLS: u32 = 300;
const POLL_INTERVAL: Duration = Duration::from_millis(100);

#[tokio::test]
async fn changed_files_survive_pauses_and_a_restart_of_the_process() {
    let Some(mut fixture) = fixture() else { return };
    let body = start_body("kept", "host");
    let session = Session::start(fixture.api(), fixture.key(), &body).await;
    changed_files_survive_pauses(&session, 10).await;
    session.pause().await;
    drop(fixture.standalone);
    fixture.standalone = start(fixture.state.path(), &["--url-form", "nested"]);
    let again = Session::start(fixture.api(), fixture.key(), &body).await;
    assert_eq!(again.id, session.id);
    let kept = again.run("cat /etc/kept-10").await;
    assert!(kept.contains("round 10"), "{kept}");
    again.stop().await;
}

/// Sandboxes of all kinds at once: in the long form, more than a thousand pauses. Nothing of them
/// is left when they have been stopped.
#[tokio::test]
async fn processes_survive_pauses_on_one_machine() {
    let Some((standalone, state)) = with_processes() else {
        return;
    };
    let helpers = children(standalone.id());
    let rounds = full_or(250, 10);
    let survive = async |image: &'static str, user: &'static str, kernel_mib| {
        let body = body_with_processes(&format!("{image}-{user}"), image, user);
        let session = Session::start(standalone.api(), standalone.key(), &body).await;
        let workload = Workload {
            rounds,
            directory: "/workspace",
            // The network is not in the user namespace of sandboxes.
            keeps_connections: false,
            kernel_mib,
            // Sandboxes have `no_new_privs`, by which `sudo` does not work.
            has_root_process: false,
        };
        processes_survive_pauses(&session, workload).await;
        session.stop().await;
    };
    let with_files = async || {
        let body = start_body("files", IMAGE);
        let session = Session::start(standalone.api(), standalone.key(), &body).await;
        changed_files_survive_pauses(&session, rounds).await;
        session.stop().await;
    };
    let with_interpreter = async || {
        let body = body_with_processes("interpreter", IMAGE, "openhands");
        let session = Session::start(standalone.api(), standalone.key(), &body).await;
        interpreter_survives_pauses(&session, rounds).await;
        session.stop().await;
    };
    // The host has no kernel.
    tokio::join!(
        survive(IMAGE, "root", 200),
        survive(IMAGE, "openhands", 32),
        survive("host", "root", 0),
        with_files(),
        with_interpreter(),
    );
    nothing_is_left(state.path(), standalone.id(), &helpers).await;
}

/// Forks of a sandbox that runs, one of them after a pause, and after the end of the sandbox.
#[tokio::test]
async fn forks_go_on_for_themselves() {
    let Some((standalone, state)) = with_processes() else {
        return;
    };
    let helpers = children(standalone.id());
    for image in [IMAGE, "host"] {
        let body = body_with_processes(&format!("parent-{image}"), image, "root");
        let session = Session::start(standalone.api(), standalone.key(), &body).await;
        let (forks, _) = forks_go_on(&session, full_or(8, 2), 16).await;
        let paused = pause(&forks[0]).await;
        assert_eq!(paused["persisted"]["level"], "Memory", "{paused}");
        forks[0].resume().await;
        forks[0].ready().await;
        let own = forks[0].run("echo $mine $(cat /etc/whose)").await;
        assert_eq!(own, "fork-0 fork-0");

        // Files alone, of a sandbox that has ended since.
        let files = snapshot(&session, Level::Root).await;
        assert_eq!(files.level, Some(Level::Root), "{files:?}");
        session.stop().await;
        let request = ForkRequest {
            session_ids: vec![format!("late-{image}")],
            environment: BTreeMap::from([("GREETING".into(), "hello".into())]),
            ..ForkRequest::default()
        };
        let late = fork(&session, &files, &request).await;
        let own = late[0]
            .run("echo \"$mine $GREETING $(cat /etc/whose /workspace/log)\"")
            .await;
        assert_eq!(own.trim(), "hello parent");
        for ended in forks.iter().chain(&late) {
            ended.stop().await;
        }
        assert_eq!(delete_all(&session).await, 2);
    }
    nothing_is_left(state.path(), standalone.id(), &helpers).await;
}

/// A standalone that keeps processes. `None` where it cannot run.
fn with_processes() -> Option<(Standalone, TempDir)> {
    if !is_root_or_skips() {
        return None;
    }
    let criu = criu_or_skip()?;
    let state = tempfile::tempdir().unwrap();
    let image = image(state.path())?;
    let flags = ["--memory-persistence", "--criu", criu.to_str()?, &image];
    Some((Standalone::start(state.path(), &flags), state))
}

/// Numbers of the children of a process.
fn children(process: u32) -> String {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let lists = threads.map(|it| std::fs::read_to_string(it.unwrap().path().join("children")));
    lists.map(Result::unwrap_or_default).collect()
}

/// Waits until Pods, volumes, mounts and processes of the node are gone, except for `helpers`.
async fn nothing_is_left(state: &Path, server: u32, helpers: &str) {
    let entries = |name: &str| -> Vec<String> {
        let directory = std::fs::read_dir(state.join("node").join(name)).unwrap();
        let names = directory.map(|entry| entry.unwrap().file_name());
        names.map(|it| it.to_string_lossy().into_owned()).collect()
    };
    let mounts = || {
        let all = std::fs::read_to_string(format!("/proc/{server}/mountinfo")).unwrap();
        let pods = state.join("node/pods");
        let of_pods = all
            .lines()
            .filter(|line| line.contains(pods.to_str().unwrap()));
        of_pods.map(str::to_owned).collect::<Vec<_>>()
    };
    let mut left = String::new();
    for _ in 0..MAX_POLLS {
        let (pods, volumes) = (entries("pods"), entries("volumes"));
        left = format!("{pods:?} {volumes:?} {:?} {}", mounts(), children(server));
        if left == format!("[] [] [] {helpers}") {
            return;
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    panic!("left: {left}");
}

#[tokio::test]
async fn unknown_level_is_refused() {
    let Some(fixture) = fixture() else { return };
    let mut body = start_body("level", "host");
    body["persistence"] = Value::from("Everything");
    let refused = fixture.wire().post(&fixture.url("/start"), &body).await;
    assert_eq!(refused.status, 400);
    let detail = refused.body["detail"].as_str().unwrap_or_default();
    assert!(detail.contains("Workspace, Root or Memory"), "{detail}");
}
