//! A volume that hangs in the middle of a dump.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

use super::super::save_within;
use super::{Volumes, ask, counter, kept, refused, saved_counter};
use crate::client::{open_gate, set_mode};
use crate::supervise::ready;

/// A program in place of CRIU that waits before it runs it.
struct WaitingCriu {
    directory: TempDir,
}

impl WaitingCriu {
    fn new(volumes: &Volumes) -> Self {
        let directory = tempfile::tempdir().unwrap();
        set_mode(&directory, 0o755);
        let gate = directory.path().join("gate");
        let made = Command::new("mkfifo").arg(&gate).status();
        assert!(made.unwrap().success());
        let (gate, criu) = (gate.display(), volumes.criu.display());
        let text = format!("#!/bin/sh\nread -r _ <{gate}\nexec {criu} \"$@\"\n");
        let this = Self { directory };
        fs::write(this.program(), text).unwrap();
        set_mode(this.program(), 0o755);
        this
    }

    fn program(&self) -> PathBuf {
        self.directory.path().join("waiting-criu")
    }

    /// Waits until CRIU is called. It runs when the result is dropped.
    fn called(&self) -> File {
        open_gate(&self.directory.path().join("gate"))
    }
}

#[test]
fn dump_ends_in_time_when_the_volume_hangs_and_the_next_one_keeps_processes() {
    let test = "dump_ends_in_time_when_the_volume_hangs_and_the_next_one_keeps_processes";
    let Some(mut volumes) = Volumes::on_own_file_system(test) else {
        return;
    };
    let usual = std::mem::replace(&mut volumes.seconds, 3);
    let criu = WaitingCriu::new(&volumes);
    let mut container = volumes.run_with(&counter(&volumes), &criu.program());
    let line = container.line();
    let number = line.strip_prefix("up ").unwrap();
    assert_eq!(ask(&volumes, &mut container), format!("{number} 1"));
    let workspace_file = volumes.work().join("kept");
    fs::write(&workspace_file, "kept").unwrap();
    save_within(&container, 0, 1);
    let gate = criu.called();
    assert!(volumes.saved("archive.partial").exists());
    let frozen = volumes.file_system().freeze();
    drop(gate);
    assert_eq!(ready(container.address, 0).status, 200);
    let kept = kept(&save_within(&container, 60, 1));
    assert_eq!(kept["level"], "Root", "{kept}");
    assert_eq!(
        kept["reason"],
        "processes are not kept: the save exceeds the limit of 3 s"
    );
    assert_eq!(ready(container.address, 0).status, 200);
    drop(frozen);
    container.end();
    assert_eq!(fs::read_to_string(&workspace_file).unwrap(), "kept");
    assert!(!volumes.saved("meta.json").exists());
    volumes.seconds = usual;
    let reason = refused(&volumes, &counter(&volumes), number);
    assert_eq!(reason, "they were not saved");
    // The next pause.
    let number = saved_counter(&volumes);
    let mut container = volumes.run(&counter(&volumes));
    assert_eq!(ask(&volumes, &mut container), format!("{number} 2"));
}
