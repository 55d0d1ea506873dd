//! Ends of the supervisor or of CRIU in the middle of a dump or a restore.

use std::fs;
use std::path::PathBuf;

use crds::contract::control::Grant;
use crds::contract::persistence::{PersistenceLevel, SaveRequest, SnapshotRequest};
use rustix::process::getpid;
use serde_json::Value;

use super::super::snapshots::request_snapshot;
use super::super::volume::IMAGE;
use super::{Container, Volumes, ask, counter, kept, refused, save, saved_counter};
use crate::client::{send, set_mode, wait_until};
use crate::supervise::{message, ready, signer, state};

/// Step of CRIU's protocol at which the images are complete.
const DUMPED: &str = "post-dump";
/// Step at which all processes are there, and have not run yet.
const RESTORED: &str = "post-restore";

/// A program in place of CRIU that runs it up to a step.
struct HeldCriu {
    program: PathBuf,
    reached: PathBuf,
}

impl HeldCriu {
    /// `when` is `before` or `after` the supervisor has dealt with the step, `action` is `hold` or
    /// `kill`.
    fn new(volumes: &Volumes, step: &str, when: &str, action: &str) -> Self {
        let [program, script, reached] =
            ["held-criu", "held_criu.py", "reached"].map(|name| volumes.work().join(name));
        let _ = fs::remove_file(&reached);
        fs::write(&script, include_str!("held_criu.py")).unwrap();
        let words = [&script, &volumes.criu].map(|path| path.to_str().unwrap());
        let words = [&words[..], &[step, when, action]].concat().join(" ");
        let text = format!(
            "#!/bin/sh\nexec python3 {words} {} \"$@\"\n",
            reached.display()
        );
        fs::write(&program, text).unwrap();
        set_mode(&program, 0o755);
        Self { program, reached }
    }

    fn run(&self, volumes: &Volumes) -> Container {
        volumes.run_with(&counter(volumes), &self.program)
    }

    fn wait(&self) {
        wait_until(|| self.reached.exists());
    }
}

/// Number of `sleep 1000`, one per tree, in the PID namespace of a container.
fn trees(container: &Container) -> usize {
    let namespace = |pid: i32| fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
    let own = namespace(container.first_process());
    assert!(own.is_some() && own != namespace(getpid().as_raw_pid()));
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let sleeps = |pid: &i32| {
        let line = fs::read(format!("/proc/{pid}/cmdline"));
        line.is_ok_and(|line| line == b"sleep\x001000\0")
    };
    pids.filter(sleeps)
        .filter(|pid| namespace(*pid) == own)
        .count()
}

#[test]
fn supervisor_killed_in_a_dump_leaves_files_and_no_processes() {
    let test = "supervisor_killed_in_a_dump_leaves_files_and_no_processes";
    for (when, written) in [("before", "archive.partial"), ("after", "archive")] {
        let Some(volumes) = Volumes::new(test) else {
            return;
        };
        let criu = HeldCriu::new(&volumes, DUMPED, when, "hold");
        let mut container = criu.run(&volumes);
        let line = container.line();
        let number = line.strip_prefix("up ").unwrap();
        assert_eq!(ask(&volumes, &mut container), format!("{number} 1"));
        let grant = Grant::Save(SaveRequest {
            image: IMAGE.into(),
            stop_seconds: 0,
        });
        let token = message(grant).sign(&signer()).unwrap();
        let _call = send(container.address, "POST /v1/save", &[], token.as_bytes());
        criu.wait();
        assert!(volumes.saved(written).exists(), "{when}");
        container.kill();
        assert!(!volumes.saved("meta.json").exists(), "{when}");
        let reason = refused(&volumes, &counter(&volumes), number);
        assert_eq!(reason, "they were not saved", "{when}");
        // The remains are no obstacle to the next save.
        let number = saved_counter(&volumes);
        assert!(!volumes.saved("archive.partial").exists());
        let mut container = volumes.run(&counter(&volumes));
        assert_eq!(ask(&volumes, &mut container), format!("{number} 2"));
    }
}

/// Takes a snapshot of level `Memory`, and returns what it has.
fn snapshot(volumes: &Volumes, container: &Container, id: &str) -> Value {
    assert_eq!(state(&ready(container.address, 20)), "ready");
    let request = SnapshotRequest {
        id: id.into(),
        key: "E".repeat(43),
        level: PersistenceLevel::Memory,
        image: IMAGE.into(),
        workspace: volumes.work().to_str().unwrap().into(),
        others: Vec::new(),
    };
    let response = request_snapshot(container, request, 60);
    assert_eq!(response.status, 200, "{}", response.body);
    response.json()["kept"].clone()
}

#[test]
fn criu_killed_in_a_snapshot_lets_processes_go_on_and_leaves_them_out() {
    let test = "criu_killed_in_a_snapshot_lets_processes_go_on_and_leaves_them_out";
    for when in ["before", "after"] {
        let Some(volumes) = Volumes::new(test) else {
            return;
        };
        fs::create_dir(volumes.store().join("changes")).unwrap();
        let criu = HeldCriu::new(&volumes, DUMPED, when, "kill");
        let mut container = criu.run(&volumes);
        let line = container.line();
        let number = line.strip_prefix("up ").unwrap();
        let kept = snapshot(&volumes, &container, "one");
        assert!(criu.reached.exists());
        assert_eq!(kept["level"], "Root", "{when}: {kept}");
        let reason = kept["reason"].as_str().unwrap();
        assert!(
            reason.starts_with("processes are not in the snapshot: "),
            "{reason}"
        );
        let snapshots = volumes.store().join("snapshots");
        assert!(snapshots.join("one/snapshot").exists());
        assert!(!snapshots.join("one/processes").exists(), "{when}");
        assert_eq!(ask(&volumes, &mut container), format!("{number} 1"));
        assert_eq!(trees(&container), 1);
        let kept = snapshot(&volumes, &container, "two");
        assert_eq!(kept["level"], "Memory", "{when}: {kept}");
        assert!(kept["reason"].is_null(), "{kept}");
        assert_eq!(ask(&volumes, &mut container), format!("{number} 2"));
    }
}

#[test]
fn supervisor_killed_in_a_restore_lets_processes_go_on_once_at_most() {
    let test = "supervisor_killed_in_a_restore_lets_processes_go_on_once_at_most";
    let Some(volumes) = Volumes::new(test) else {
        return;
    };
    // Before the mark: they have not run, and do so in the next container.
    let number = saved_counter(&volumes);
    let criu = HeldCriu::new(&volumes, RESTORED, "before", "hold");
    let container = criu.run(&volumes);
    criu.wait();
    assert!(volumes.saved("archive").exists() && !volumes.saved("used").exists());
    container.kill();
    let mut container = volumes.run(&counter(&volumes));
    assert_eq!(ask(&volumes, &mut container), format!("{number} 2"));
    container.kill();
    // After it, before their first instruction.
    let number = saved_counter(&volumes);
    let criu = HeldCriu::new(&volumes, RESTORED, "after", "hold");
    let container = criu.run(&volumes);
    let question = volumes.work().join("ask");
    fs::write(&question, "").unwrap();
    criu.wait();
    assert!(volumes.saved("used").exists() && !volumes.saved("archive").exists());
    assert_eq!(trees(&container), 1);
    container.kill();
    // No instruction has run.
    fs::remove_file(question).unwrap();
    let reason = refused(&volumes, &counter(&volumes), &number);
    assert_eq!(
        reason,
        "an earlier start has used them, and they go on once only"
    );
}

#[test]
fn criu_killed_in_a_restore_leaves_no_process_and_the_command_starts_anew() {
    let test = "criu_killed_in_a_restore_leaves_no_process_and_the_command_starts_anew";
    let Some(volumes) = Volumes::new(test) else {
        return;
    };
    // Before the mark there is a second attempt.
    let number = saved_counter(&volumes);
    let criu = HeldCriu::new(&volumes, RESTORED, "before", "kill");
    let mut container = criu.run(&volumes);
    assert_eq!(ask(&volumes, &mut container), format!("{number} 2"));
    assert!(criu.reached.exists());
    assert_eq!(
        (trees(&container), container.restored()["level"].as_str()),
        (1, Some("Memory"))
    );
    let kept = kept(&save(&container));
    assert_eq!(kept["level"], "Memory", "{kept}");
    container.end();
    // After it there is none.
    let criu = HeldCriu::new(&volumes, RESTORED, "after", "kill");
    let mut container = criu.run(&volumes);
    let line = container.line();
    assert_ne!(line.strip_prefix("up ").unwrap(), number);
    assert!(criu.reached.exists());
    let restored = container.restored();
    assert_eq!(restored["level"], "Root", "{restored}");
    assert_eq!(restored["reason"], "processes did not go on: CRIU failed");
    // The job of the new tree may not have begun before.
    wait_until(|| trees(&container) == 1);
    ask(&volumes, &mut container);
    assert_eq!(trees(&container), 1);
}
