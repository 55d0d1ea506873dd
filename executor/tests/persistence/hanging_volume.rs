//! A volume that hangs: a file system of its own, which stands still in the middle of a save.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use crds::contract::persistence::RootMechanism::{self, Archive, Overlay};
use rustix::thread::UnshareFlags;
use serde_json::json;
use tempfile::TempDir;

use super::volume::{Namespaces, Volume};
use super::{end, kept, kill, restored, save, save_within, shell};
use crate::client::{TestProcess, is_root};
use crate::supervise::{ready, start};

/// Size of a file system.
const BYTES: u64 = 256 << 20;

/// Freezes the file system `$1` until the input ends. It is thawed in any case.
const FREEZE: &str =
    "fsfreeze --freeze \"$1\" && echo frozen && cat; exec fsfreeze --unfreeze \"$1\"";

/// A file system at a directory, in the mount namespace of this thread and of what it starts.
pub(super) struct OwnFileSystem {
    directory: PathBuf,
    _image: TempDir,
}

impl OwnFileSystem {
    /// Prints SKIPPED without root or loop devices.
    pub(super) fn mount(test: &str, directory: &Path) -> Option<Self> {
        if !is_root(test) {
            return None;
        }
        enter_own_mounts();
        let image = tempfile::tempdir().unwrap();
        let file = image.path().join("image");
        File::create(&file).unwrap().set_len(BYTES).unwrap();
        let mut format = Command::new("mkfs.ext4");
        format.args(["-q", "-F"]).arg(&file);
        let mut mount = Command::new("mount");
        mount.args(["-o", "loop"]).arg(&file).arg(directory);
        for mut command in [format, mount] {
            let done = command.output();
            if !done.as_ref().is_ok_and(|output| output.status.success()) {
                eprintln!("SKIPPED {test}: needs {command:?}: {done:?}");
                return None;
            }
        }
        Some(Self {
            directory: directory.to_owned(),
            _image: image,
        })
    }

    /// Has all writes hang.
    pub(super) fn freeze(&self) -> Frozen {
        Frozen::new(&self.directory)
    }
}

impl Drop for OwnFileSystem {
    fn drop(&mut self) {
        // Processes that are being killed may use it.
        let mut unmount = Command::new("umount");
        let _ = unmount.arg("--lazy").arg(&self.directory).status();
    }
}

/// Mounts of this thread end with it, also if the test is killed.
#[expect(unsafe_code, reason = "the safe function is deprecated")]
fn enter_own_mounts() {
    // SAFETY: Descriptors stay shared.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }.unwrap();
    let private = ["--make-rprivate", "/"];
    let made = Command::new("mount").args(private).status();
    assert!(made.unwrap().success());
}

/// A file system whose writes hang until this is dropped, or until the test ends.
pub(super) struct Frozen {
    child: Child,
    input: Option<ChildStdin>,
}

impl Frozen {
    fn new(directory: &Path) -> Self {
        let mut command = Command::new("sh");
        command.args(["-c", FREEZE, "sh"]).arg(directory);
        // A signal to the test does not end it.
        command.process_group(0);
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let input = child.stdin.take();
        let mut line = String::new();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        output.read_line(&mut line).unwrap();
        let frozen = Self { child, input };
        assert_eq!(line, "frozen\n");
        frozen
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        self.input = None;
        let _ = self.child.wait();
    }
}

const NOT_CONFIRMED: &str = "the changed files are on the volume, which has not confirmed within 1 s \
    that they are written";

/// Prints the generation that is there, and makes the next one.
const GENERATION: &str = "cat /etc/new 2>/dev/null || echo 0; echo $0 > /etc/new; echo up
    exec sleep 1000";

#[test]
fn save_of_files_ends_in_time_when_the_volume_hangs_and_the_next_one_keeps_them() {
    let test = "save_of_files_ends_in_time_when_the_volume_hangs_and_the_next_one_keeps_them";
    for mechanism in [Overlay, Archive] {
        let Some(mut volume) = Volume::on_own_file_system(test) else {
            return;
        };
        let (_root, process, found) = run(&volume, mechanism, 1);
        assert_eq!(found, 0);
        assert_eq!(kept(&save(&process))["level"], "Root");
        end(process);

        let usual = std::mem::replace(&mut volume.seconds, 1);
        let (_root, process, found) = run(&volume, mechanism, 2);
        assert_eq!(found, 1);
        let frozen = volume.file_system().freeze();
        save_within(&process, 0, 1);
        assert_eq!(ready(process.address, 0).status, 200);
        let hung = kept(&save_within(&process, 60, 1));
        let expected = match mechanism {
            Overlay => json!({"level": "Root", "reason": NOT_CONFIRMED}),
            _ => json!({"level": "Workspace", "reason": "the save exceeds the limit of 1 s"}),
        };
        assert_eq!(hung, expected, "{mechanism:?}");
        assert_eq!(ready(process.address, 0).status, 200);
        drop(frozen);
        end(process);

        volume.seconds = usual;
        let (_root, process, found) = run(&volume, mechanism, 3);
        // An archive is the one before, or the one that hung.
        assert!(
            found == 2 || (found == 1 && mechanism == Archive),
            "{found}"
        );
        let restored = restored(&process);
        assert_eq!(restored["level"], "Root", "{mechanism:?}: {restored}");
        assert!(restored["reason"].is_null(), "{mechanism:?}: {restored}");
        let kept = kept(&save(&process));
        assert_eq!(kept["level"], "Root", "{mechanism:?}: {kept}");
        assert!(kept["reason"].is_null(), "{mechanism:?}: {kept}");
        end(process);
        let (_root, process, found) = run(&volume, mechanism, 4);
        assert_eq!(found, 3, "{mechanism:?}");
        kill(process);
    }
}

/// Starts a supervisor in a fresh root. Returns the generation that it has found.
fn run(volume: &Volume, mechanism: RootMechanism, next: u32) -> (TempDir, TestProcess, u32) {
    let root = Volume::root();
    let mut command = volume.command(&root, mechanism, Namespaces::Mount);
    let mut process = TestProcess::start(&mut command);
    start(
        &process,
        &shell(&GENERATION.replace("$0", &next.to_string())),
    );
    let found = process.line().parse().unwrap();
    assert_eq!(process.line(), "up");
    (root, process, found)
}
