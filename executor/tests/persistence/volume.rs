//! A volume's store, and fresh roots that supervisors start in.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crds::contract::persistence::{PersistenceLevel, PodPersistence, RootMechanism, SaveLimits};
use tempfile::TempDir;

use super::hanging_volume::OwnFileSystem;
use crate::client::{BINARY, TestProcess, copy_program, is_root, pass_on, set_mode};
use crate::minimal_images::{add_busybox, has_busybox};
use crate::supervise::supervise_command;

pub(super) const IMAGE: &str = "sha256:one";

/// Mounts devices, processes, store and a file, and runs a program in the root.
const ENTER: &str = "root=$1 store=$2; shift 2
    mount --bind \"$root\" \"$root\" && mount --rbind /dev \"$root/dev\" &&
    mount --rbind /proc \"$root/proc\" &&
    mount --bind \"$store\" \"$root/run/sandbox-store\" &&
    mount --bind \"$root/image-token\" \"$root/srv/conf/token\" || exit
    ${FULL:+mount -t tmpfs -o size=2m none \"$root/run/sandbox-store\"}
    exec chroot \"$root\" \"$@\"";

pub(super) struct Volume {
    /// Goes before its directory.
    file_system: Option<OwnFileSystem>,
    directory: TempDir,
    /// Limit of a save by the next supervisor, in seconds.
    pub(super) seconds: u64,
}

/// Namespaces of a supervisor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Namespaces {
    Mount,
    /// As in a Pod with `hostUsers: false`.
    UserAndMount,
}

impl Volume {
    /// Prints SKIPPED without root or busybox.
    pub(super) fn new(test: &str) -> Option<Self> {
        if !is_root(test) || !has_busybox(test) {
            return None;
        }
        Some(Self::of(tempfile::tempdir().unwrap(), None))
    }

    /// As [`Self::new`], on a file system that can hang.
    pub(super) fn on_own_file_system(test: &str) -> Option<Self> {
        if !is_root(test) || !has_busybox(test) {
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let file_system = OwnFileSystem::mount(test, directory.path())?;
        Some(Self::of(directory, Some(file_system)))
    }

    fn of(directory: TempDir, file_system: Option<OwnFileSystem>) -> Self {
        set_mode(&directory, 0o755);
        fs::create_dir(directory.path().join("store")).unwrap();
        Self {
            file_system,
            directory,
            seconds: 60,
        }
    }

    pub(super) fn file_system(&self) -> &OwnFileSystem {
        self.file_system.as_ref().unwrap()
    }

    /// Path of a file of the store.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join("store/root").join(name)
    }

    /// Root of the image.
    pub(super) fn root() -> TempDir {
        let root = tempfile::tempdir().unwrap();
        set_mode(&root, 0o755);
        for directory in ["dev", "proc", "etc", "tmp", "run/sandbox-store", "srv/conf"] {
            fs::create_dir_all(root.path().join(directory)).unwrap();
        }
        for (name, content) in [
            ("etc/of-image", "image\n"),
            ("etc/removed", "image\n"),
            ("image-token", "token\n"),
            ("srv/conf/token", ""),
        ] {
            fs::write(root.path().join(name), content).unwrap();
        }
        add_busybox(root.path());
        copy_program(Path::new(BINARY), &root.path().join("sandbox-executor"));
        root
    }

    pub(super) fn supervise(&self, root: &TempDir, mechanism: RootMechanism) -> TestProcess {
        TestProcess::start(&mut self.command(root, mechanism, Namespaces::Mount))
    }

    pub(super) fn command(
        &self,
        root: &TempDir,
        mechanism: RootMechanism,
        namespaces: Namespaces,
    ) -> Command {
        let persistence = PodPersistence {
            level: PersistenceLevel::Root,
            root: mechanism,
            limits: SaveLimits {
                bytes: 1 << 30,
                files: 100_000,
                seconds: self.seconds,
            },
            withheld: vec!["SETFCAP".into(), "SETPCAP".into()],
        };
        let inner = supervise_command("/sandbox-executor", Path::new("/run/sandbox"));
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private"]);
        if namespaces == Namespaces::UserAndMount {
            command.args(["--user", "--map-root-user"]);
        }
        command
            .args(["sh", "-c", ENTER, "sh"])
            .arg(root.path())
            .arg(self.directory.path().join("store"))
            .arg(inner.get_program())
            .env_clear()
            .env(
                "SANDBOX_PERSISTENCE",
                serde_json::to_string(&persistence).unwrap(),
            )
            .stdin(Stdio::null());
        pass_on(&inner, &mut command);
        // Of this machine; the root has `/bin` only.
        command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        command
    }
}
