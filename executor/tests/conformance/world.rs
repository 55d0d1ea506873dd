//! Where the cases run: as root, and in a private `/etc` and `/home` as a user that the server
//! makes there. The machine's own files stay as they are.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::client::{BINARY, KEY, Process};

const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
const ENTER: &str = "mount --bind \"$1/etc\" /etc && mount --bind \"$1/home\" /home || exit
    if [ -n \"$PYTHON_PREFIX\" ]; then
        mount --bind \"$PYTHON_PREFIX\" \"$1/python\" && mount --bind \"$PYTHON_SITE\" \"$1/site\" || exit
    fi
    shift && exec \"$@\"";

pub(crate) struct World {
    directory: TempDir,
    pub(crate) user: &'static str,
    private: bool,
}

/// Both of them, or what is possible here.
pub(super) fn worlds() -> Vec<World> {
    let mut worlds = vec![World::own("root")];
    worlds.extend(World::private("openhands"));
    worlds
}

impl World {
    /// As root, or as whoever runs the tests.
    pub(super) fn plain() -> Self {
        Self::own("root")
    }

    fn own(user: &'static str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(directory.path().join("home")).unwrap();
        fs::create_dir(directory.path().join("etc")).unwrap();
        Self {
            directory,
            user,
            private: false,
        }
    }

    /// With users root and `daemon` only; says so loudly where namespaces cannot be had.
    pub(crate) fn private(user: &'static str) -> Option<Self> {
        let mut probe = Command::new("unshare");
        let possible = probe
            .args(["--mount", "mount", "--bind", "/tmp", "/tmp"])
            .status();
        if !possible.is_ok_and(|status| status.success()) {
            eprintln!("SKIPPED as {user}: needs root and mount namespaces");
            return None;
        }
        let world = Self {
            private: true,
            ..Self::own(user)
        };
        let etc = world.path("etc");
        let passwd = "root:x:0:0:root:/root:/bin/bash\ndaemon:x:2:2::/usr/sbin:/bin/sh\n";
        fs::write(etc.join("passwd"), passwd).unwrap();
        fs::write(
            etc.join("group"),
            "root:x:0:\nsudo:x:27:\ntape:x:26:daemon\n",
        )
        .unwrap();
        fs::write(etc.join("shadow"), "root:*:1::::::\n").unwrap();
        fs::set_permissions(etc.join("shadow"), fs::Permissions::from_mode(0o600)).unwrap();
        fs::create_dir(etc.join("skel")).unwrap();
        fs::write(etc.join("skel/.profile"), "# profile\n").unwrap();
        for shared in ["ld.so.cache", "alternatives", "hostname"] {
            let copied = Command::new("cp")
                .arg("-a")
                .arg(Path::new("/etc").join(shared))
                .arg(&etc)
                .status();
            let _ = copied.unwrap();
        }
        Some(world)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn command(&self, name: &str, flags: &[&str]) -> Command {
        let mut command = if self.private {
            let mut command = Command::new("unshare");
            command.args([
                "--mount",
                "--propagation",
                "private",
                "sh",
                "-c",
                ENTER,
                "sh",
            ]);
            command.arg(self.directory.path()).arg(BINARY);
            command
        } else {
            Command::new(BINARY)
        };
        command
            .args(["serve", "0", "--username", self.user, "--working-dir"])
            .arg(self.path(name))
            .args(flags)
            .env_clear()
            .env("PATH", PATH)
            .env("HOME", self.path("home"))
            .env("LANG", "C.UTF-8")
            .env("SESSION_API_KEY", KEY)
            .env("NO_CHANGE_TIMEOUT_SECONDS", "1")
            .env("SANDBOX_BIND_ADDRESS", "127.0.0.1");
        command
    }

    /// A server in a directory of its own.
    pub(crate) fn serve(&self, name: &str) -> Process {
        Process::start(&mut self.command(name, &[]))
    }
}
