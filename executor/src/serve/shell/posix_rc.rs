//! Start-up file of a POSIX shell, such as the ash of busybox. The prompt reports as that of bash
//! does, by the expansion of parameters that POSIX demands of `PS1`.
//!
//! The shell keeps its line editor: without it, busybox takes the end of a background job for the
//! end of its input.

use std::ffi::OsString;
use std::path::Path;

use super::bash_rc::{ECHO, quote};

const HOOKS: &str = include_str!("../../../scripts/hooks.sh");

/// Values of the start-up file of one shell.
#[derive(Debug)]
pub(super) struct PosixPrompt {
    pub(super) token: String,
    pub(super) user: String,
    pub(super) host: String,
    /// `ENV` of the sandbox, in whose place the shell gets the start-up file.
    pub(super) env_file: Option<OsString>,
}

/// As `bash_rc::run_line`. The line editor restores the modes that it found, so after a program that
/// a signal ended they are repaired here, which takes a process.
pub(super) fn run_line(id: u64, repair_terminal: bool) -> Vec<u8> {
    let repair = if repair_terminal { " sane" } else { "" };
    let line = format!(
        "\x15{ECHO}{id}{repair} && :; }} 2>/dev/null; \
         \\eval \"$__sandbox_command\"; {{ \\__sandbox_end && :; }} 2>/dev/null\n"
    );
    line.into_bytes()
}

/// Content of the file with the next command, which [`run_line`] runs.
pub(super) fn command_text(command: &str) -> Vec<u8> {
    [b"__sandbox_command=", &*quote(command.as_ref()), b"\n"].concat()
}

/// Text of the start-up file in `directory`. The hooks come first: an error in a file of the user ends it.
pub(super) fn rc_text(prompt: &PosixPrompt, directory: &Path, main: bool) -> Vec<u8> {
    let hooks = HOOKS
        .replace("@token@", &prompt.token)
        .replace("@user@", &prompt.user)
        .replace("@host@", &prompt.host)
        .replace("@directory@", &directory.display().to_string())
        .replace("\\e", "\x1b")
        .replace("\\037", "\x1f")
        .replace("\\a", "\x07");
    let alias = if main {
        "alias git='git --no-pager'\n"
    } else {
        ""
    };
    let env_file = match &prompt.env_file {
        Some(file) => [b"ENV=", &*quote(file), b"\n[ -r \"$ENV\" ] && . \"$ENV\"\n"].concat(),
        None => b"unset ENV\n".to_vec(),
    };
    let own = format!("{hooks}HISTFILE=\n\\__sandbox_end\n");
    let last = format!("[ -r ~/.bashrc ] && . ~/.bashrc\n{alias}:\n\\__sandbox_end\n");
    [own.into_bytes(), env_file, last.into_bytes()].concat()
}
