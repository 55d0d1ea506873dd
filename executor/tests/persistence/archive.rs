//! Mechanism `archive`.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use crds::contract::control::Grant;
use crds::contract::persistence::RootMechanism::{Archive, Overlay};
use crds::contract::persistence::SaveRequest;
use rustix::process::Signal;
use tokio::time::Instant;

use super::volume::{Namespaces, Volume};
use super::{end, kept, kill, restored, save, shell, shell_of};
use crate::client::{TestProcess, send, wait_until};
use crate::supervise::{message, ready, signer, start, state};

/// Changes the root, and waits.
const CHANGE: &str = "echo 1 > /etc/new; rm /etc/removed; echo changed > /etc/of-image
    echo up; exec sleep 1000";
/// Prints the changes.
const SHOW: &str = "cat /etc/new /etc/of-image; ls /etc/removed 2>/dev/null; echo end
    exec sleep 1000";

#[test]
fn saved_root_is_restored_in_a_fresh_one() {
    let Some(volume) = Volume::new("saved_root_is_restored_in_a_fresh_one") else {
        return;
    };
    let root = Volume::root();
    let mut process = volume.supervise(&root, Archive);
    start(&process, &shell(CHANGE));
    assert_eq!(process.line(), "up");
    assert_eq!(
        restored(&process),
        serde_json::json!({"level": "Workspace"})
    );
    let kept = kept(&save(&process));
    assert_eq!(kept["level"], "Root", "{kept}");
    assert!(kept["bytes"].as_u64().unwrap() > 0 && kept["reason"].is_null());
    end(process);

    let fresh = Volume::root();
    let mut process = volume.supervise(&fresh, Archive);
    start(&process, &shell(SHOW));
    for line in ["1", "changed", "end"] {
        assert_eq!(process.line(), line);
    }
    let restored = restored(&process);
    assert_eq!(restored["level"], "Root", "{restored}");
    assert!(restored["reason"].is_null());
    // The mount of the Pod is not in the archive.
    let token = fs::read_to_string(fresh.path().join("srv/conf/token")).unwrap();
    assert_eq!(token, "");
    kill(process);

    let other = Volume::root();
    let mut process = volume.supervise(&other, Archive);
    start(&process, &shell_of(SHOW, "sha256:two"));
    for line in ["image", "/etc/removed", "end"] {
        assert_eq!(process.line(), line);
    }
    let restored = ready(process.address, 0).json()["restored"].clone();
    let reason = restored["reason"].as_str().unwrap();
    assert!(reason.starts_with("the image has changed from sha256:one to sha256:two"));
    kill(process);
}

#[test]
fn archive_is_written_when_the_command_ends_without_a_save() {
    let test = "archive_is_written_when_the_command_ends_without_a_save";
    let Some(volume) = Volume::new(test) else {
        return;
    };
    // By itself.
    let root = Volume::root();
    let process = volume.supervise(&root, Archive);
    start(&process, &shell("echo 1 > /etc/new; exit 3"));
    assert_eq!(process.wait().code(), Some(3));
    // By a signal to the container.
    let root = Volume::root();
    let mut process = volume.supervise(&root, Archive);
    let script = "trap 'echo 2 >> /etc/new; exit 4' TERM; echo up; while :; do sleep 0.01; done";
    start(&process, &shell(script));
    assert_eq!(process.line(), "up");
    process.signal(Signal::TERM);
    assert_eq!(process.wait().code(), Some(4));
    let root = Volume::root();
    let mut process = volume.supervise(&root, Archive);
    start(&process, &shell(SHOW));
    assert_eq!((process.line(), process.line()), ("1".into(), "2".into()));
    kill(process);
}

#[test]
fn full_volume_keeps_the_workspace_and_says_so() {
    let Some(volume) = Volume::new("full_volume_keeps_the_workspace_and_says_so") else {
        return;
    };
    let root = Volume::root();
    let mut command = volume.command(&root, Archive, Namespaces::Mount);
    let mut process = TestProcess::start(command.env("FULL", "1"));
    let script = "dd if=/dev/urandom of=/large bs=1M count=4 2>/dev/null; echo up
        exec sleep 1000";
    start(&process, &shell(script));
    assert_eq!(process.line(), "up");
    let kept = kept(&save(&process));
    assert_eq!(kept["level"], "Workspace");
    assert!(
        kept["reason"].as_str().unwrap().contains("No space left"),
        "{kept}"
    );
    let report = ready(process.address, 0);
    assert_eq!(state(&report), "exited");
    end(process);
}

#[test]
fn supervisor_killed_in_a_save_leaves_an_old_archive_or_a_new_one() {
    let test = "supervisor_killed_in_a_save_leaves_an_old_archive_or_a_new_one";
    let Some(volume) = Volume::new(test) else {
        return;
    };
    let length = |name: &str| fs::metadata(volume.path(name)).map_or(0, |found| found.len());
    let mut last = 0;
    for step in 0..5_u64 {
        let root = Volume::root();
        let mut process = volume.supervise(&root, Archive);
        let script = format!(
            "cat /generation 2>/dev/null || echo 0; echo {} > /generation
            dd if=/dev/zero of=/large bs=1M count=16 2>/dev/null; echo up; exec sleep 1000",
            step + 1
        );
        start(&process, &shell(&script));
        let generation: u64 = process.line().parse().unwrap();
        assert!(
            generation == last || generation == step,
            "{generation} after {last}"
        );
        assert!(step == 0 || generation > 0, "no archive at step {step}");
        last = generation;
        assert_eq!(process.line(), "up");
        if step == 0 {
            kept(&save(&process));
            end(process);
            continue;
        }
        let grant = Grant::Save(SaveRequest {
            image: super::IMAGE.into(),
            stop_seconds: 0,
        });
        let token = message(grant).sign(&signer()).unwrap();
        let before = fs::metadata(volume.path("archive")).unwrap();
        let _call = send(process.address, "POST /v1/save", &[], token.as_bytes());
        let is_new = || fs::metadata(volume.path("archive")).unwrap().ino() != before.ino();
        let wanted = (step - 1) * (6 << 20);
        wait_until(|| length("archive.new") > wanted || is_new());
        kill(process);
        assert!(length("archive") > 0);
    }
}

/// Prints figures of the binary: run with `--ignored --nocapture`.
#[test]
#[ignore = "measures"]
fn figures_of_save_and_restore() {
    let Some(volume) = Volume::new("figures_of_save_and_restore") else {
        return;
    };
    let script = "[ -e /f1 ] || for i in $(seq 128); do
            dd if=/dev/urandom of=/f$i bs=1M count=1 2>/dev/null; done
        echo up; exec sleep 1000";
    for mechanism in [Archive, Overlay] {
        for round in 0..4 {
            let root = Volume::root();
            let began = Instant::now();
            let mut process = volume.supervise(&root, mechanism);
            let listening = began.elapsed();
            let dormant = process.memory("VmRSS:");
            let began = Instant::now();
            start(&process, &shell(script));
            process.line();
            let up = began.elapsed();
            let running = process.memory("VmRSS:");
            let began = Instant::now();
            kept(&save(&process));
            let saved = began.elapsed();
            eprintln!(
                "{mechanism:?} {round}: listens after {listening:?}, up after {up:?} (round 0 \
                 writes 128 MiB, later ones restore), save {saved:?}, RSS dormant {dormant} KiB, \
                 running {running} KiB, peak {} KiB",
                process.peak()
            );
            end(process);
        }
    }
}
