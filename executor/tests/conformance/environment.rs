//! Environments of the cases: as root, and as a user that the server creates in a private `/etc`
//! and `/home`. The files of the machine are not changed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::client::{BINARY, KEY, TestProcess, set_mode};

const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
const ENTER: &str = "mount --bind \"$1/etc\" /etc && mount --bind \"$1/home\" /home || exit
    if [ -n \"$PYTHON_PREFIX\" ]; then
        mount --bind \"$PYTHON_PREFIX\" \"$1/python\" && mount --bind \"$PYTHON_SITE\" \"$1/site\" || exit
    fi
    shift && exec \"$@\"";

pub(crate) struct CaseEnvironment {
    directory: TempDir,
    pub(crate) user: &'static str,
    private: bool,
}

/// Both environments, or only the first without mount namespaces.
pub(super) fn environments() -> Vec<CaseEnvironment> {
    let mut environments = vec![CaseEnvironment::own("root")];
    environments.extend(CaseEnvironment::private("openhands"));
    environments
}

/// Runs a script in a private mount namespace; arguments can be added.
pub(crate) fn in_mount_namespace(script: &str) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private"]);
    command.args(["sh", "-c", script, "sh"]);
    command
}

impl CaseEnvironment {
    /// Runs as root, or as the current user.
    pub(super) fn plain() -> Self {
        Self::own("root")
    }

    fn own(user: &'static str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        set_mode(&directory, 0o755);
        fs::create_dir(directory.path().join("home")).unwrap();
        fs::create_dir(directory.path().join("etc")).unwrap();
        Self {
            directory,
            user,
            private: false,
        }
    }

    /// Has only the users root and `daemon`. Prints SKIPPED without mount namespaces.
    pub(crate) fn private(user: &'static str) -> Option<Self> {
        let mut probe = Command::new("unshare");
        let possible = probe
            .args(["--mount", "mount", "--bind", "/tmp", "/tmp"])
            .status();
        if !possible.is_ok_and(|status| status.success()) {
            eprintln!("SKIPPED as {user}: needs root and mount namespaces");
            return None;
        }
        let environment = Self {
            private: true,
            ..Self::own(user)
        };
        let etc = environment.path("etc");
        let passwd = "root:x:0:0:root:/root:/bin/bash\ndaemon:x:2:2::/usr/sbin:/bin/sh\n";
        fs::write(etc.join("passwd"), passwd).unwrap();
        let group = "root:x:0:\nsudo:x:27:\ntape:x:26:daemon\n";
        fs::write(etc.join("group"), group).unwrap();
        fs::write(etc.join("shadow"), "root:*:1::::::\n").unwrap();
        set_mode(etc.join("shadow"), 0o600);
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
        Some(environment)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn command(&self, name: &str, flags: &[&str]) -> Command {
        let mut command = if self.private {
            let mut command = in_mount_namespace(ENTER);
            command.arg(self.directory.path()).arg(BINARY);
            command
        } else {
            Command::new(BINARY)
        };
        command
            .args(["serve", "0", "--username", self.user, "--working-dir"])
            .arg(self.path(name))
            .arg("--no-enable-browser")
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

    /// Starts a server in a directory of its own.
    pub(crate) fn serve(&self, name: &str) -> TestProcess {
        TestProcess::start(&mut self.command(name, &[]))
    }
}
