//! Choice of the shell: the requested one, else bash, else `sh`.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};

use crate::serve::identity::Identity;
use crate::serve::launch_dir;

/// Search path of a server without one, as that of `exec`.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

#[derive(Debug, Clone)]
pub(super) struct ShellProgram {
    path: PathBuf,
}

impl ShellProgram {
    /// Finds the shell of the image, if there is one. `path` is the search path.
    pub(super) async fn find(
        identity: &Identity,
        requested: Option<OsString>,
        path: Option<OsString>,
    ) -> io::Result<Option<Self>> {
        let path = path.unwrap_or_else(|| DEFAULT_PATH.into());
        let candidates = candidates(requested.map(PathBuf::from), &path);
        let found = launch_dir::first_executable(identity, candidates).await?;
        Ok(found.map(|path| Self { path }))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// True if it has the functions of bash; any other shell counts as a POSIX shell.
    pub(super) fn is_bash(&self) -> bool {
        self.name() == "bash"
    }

    /// Name that it is started with.
    pub(super) fn name(&self) -> &str {
        let name = self.path.file_name().and_then(|name| name.to_str());
        name.unwrap_or("sh")
    }

    pub(super) fn command(&self, rc: &Path) -> tokio::process::Command {
        let mut command = tokio::process::Command::new(&self.path);
        command.arg0(self.name());
        if self.is_bash() {
            command.args(["--noediting", "--rcfile"]).arg(rc);
        }
        command.arg("-i");
        command
    }
}

fn candidates(requested: Option<PathBuf>, path: &OsStr) -> Vec<PathBuf> {
    let in_path = |name| std::env::split_paths(path).map(move |entry| entry.join(name));
    let requested = requested.into_iter();
    requested
        .chain(in_path("bash"))
        .chain(["/bin/bash".into(), "/bin/sh".into()])
        .chain(in_path("sh"))
        // The server and the shell have different directories.
        .filter(|candidate| candidate.is_absolute())
        .collect()
}
