//! State that a save keeps, and a supervisor in a fresh root restores (`docs/specs/supervisor.md`,
//! section 11).

mod archive;
mod check_processes;
mod containers;
mod hanging_volume;
mod memory;
mod memory_executor;
mod memory_root;
mod overlay;
mod snapshots;
mod volume;

use std::fs;

use crds::contract::control::{Grant, Init};
use crds::contract::persistence::{SaveRequest, StateAccess};
use rustix::process::{Pid, Signal};
use serde_json::Value;

use self::volume::IMAGE;
use crate::client::{BINARY, HttpResponse, TestProcess};
use crate::supervise::{init, message, ready, signer, start, state, supervise_command};

/// Init message with access to the state.
fn shell(script: &str) -> Init {
    shell_of(script, IMAGE)
}

fn shell_of(script: &str, image: &str) -> Init {
    Init {
        state: Some(StateAccess {
            key: "A".repeat(43),
            image: image.into(),
            source: None,
        }),
        ..init(&["sh", "-c", script])
    }
}

/// Asks for a save, and waits until it is done.
fn save(process: &TestProcess) -> HttpResponse {
    save_within(process, 60, 20)
}

fn save_within(process: &TestProcess, timeout: u64, stop_seconds: u64) -> HttpResponse {
    let grant = Grant::Save(SaveRequest {
        image: IMAGE.into(),
        stop_seconds,
    });
    let token = message(grant).sign(&signer()).unwrap();
    let head = format!("POST /v1/save?timeout={timeout}");
    process.request(&head, &[], token.as_bytes())
}

/// State that a save has kept.
fn kept(response: &HttpResponse) -> Value {
    assert_eq!(response.status, 200, "{}", response.body);
    let report = response.json();
    assert_eq!(report["state"], "done");
    report["kept"].clone()
}

fn restored(process: &TestProcess) -> Value {
    ready(process.address, 0).json()["restored"].clone()
}

fn end(process: TestProcess) {
    process.signal(Signal::TERM);
    assert_eq!(process.wait().code(), Some(0));
}

/// Kills a supervisor without warning, as the end of its Pod does: with the command.
fn kill(process: TestProcess) {
    let pid = process.child.id();
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    process.signal(Signal::KILL);
    process.wait();
    for child in children.unwrap().split_whitespace() {
        let child = Pid::from_raw(child.parse().unwrap()).unwrap();
        // It may have ended.
        let _ = rustix::process::kill_process(child, Signal::KILL);
    }
}

#[test]
fn save_without_persistence_stops_the_command() {
    let directory = tempfile::tempdir().unwrap();
    let mut process = TestProcess::start(&mut supervise_command(BINARY, directory.path()));
    let early = save(&process);
    assert_eq!(early.status, 409, "{}", early.body);
    let init = shell("trap 'echo stopped; exit 3' TERM; echo up; while :; do sleep 0.01; done");
    start(&process, &init);
    assert_eq!(process.line(), "up");
    let wrong = message(Grant::Ready).sign(&signer()).unwrap();
    let wrong = process.request("POST /v1/save", &[], wrong.as_bytes());
    assert_eq!(wrong.status, 403);
    let response = save(&process);
    assert_eq!(kept(&response), serde_json::json!({"level": "Workspace"}));
    assert!(response.header("x-sandbox-proof").is_some());
    assert_eq!(process.line(), "stopped");
    // A repeated call reports on the same save, and nothing ends by itself.
    assert_eq!(kept(&save(&process))["level"], "Workspace");
    let report = ready(process.address, 60);
    assert_eq!(state(&report), "exited");
    let detail = "the command has stopped, and its state is saved";
    assert_eq!(report.json()["detail"], detail);
    assert!(report.json()["restored"].is_null());
    end(process);
}

#[test]
fn save_kills_a_command_that_does_not_stop() {
    let directory = tempfile::tempdir().unwrap();
    let mut process = TestProcess::start(&mut supervise_command(BINARY, directory.path()));
    start(
        &process,
        &shell("trap '' TERM; echo up; while :; do sleep 1; done"),
    );
    assert_eq!(process.line(), "up");
    let report = save_within(&process, 0, 1).json();
    assert_eq!(report["state"], "saving");
    kept(&save(&process));
    end(process);
}
