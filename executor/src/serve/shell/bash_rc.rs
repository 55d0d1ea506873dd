//! Start-up files of the shell. They define functions that run the command in the `ScratchDir` and
//! that report each start and end through escape sequences for the `Scanner`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use crate::serve::environment::EnvironmentChanges;

/// First characters of [`run_line`], as the terminal echoes them.
pub(super) const ECHO: &str = "{ \\__sandbox_load ";

/// Names of programs that start an interactive shell in the same terminal; besides those that end
/// in `shell`, for example `poetry shell` and `nix-shell`.
const SHELL_STARTERS: [&str; 4] = ["bash", "newgrp", "sg", "su"];

const HOOKS: &str = include_str!("../../../scripts/hooks.bash");

/// Returns whether the command may start a nested shell. Only such commands get `PROMPT_COMMAND` in
/// their environment, so that other programs do not see it.
pub(super) fn may_start_shell(command: &str) -> bool {
    let is_part = |character: char| character.is_ascii_alphanumeric() || character == '_';
    command
        .split(|character| !is_part(character))
        .any(|word| SHELL_STARTERS.contains(&word) || word.to_ascii_lowercase().ends_with("shell"))
}

/// Clears the input line, then runs the command in the `ScratchDir`. `eval` is at the top level
/// because declarations inside a function would be local. A failing command of an `&&` list
/// neither ends a shell with `set -e` nor triggers a trap, and keeps its status.
pub(super) fn run_line(id: u64, export_hooks: bool) -> Vec<u8> {
    let export = if export_hooks { " export" } else { "" };
    let line = format!(
        "\x15{ECHO}{id}{export} && :; }} 9>&2 2>/dev/null; \
         \\builtin eval \"$__sandbox_command\"; {{ \\__sandbox_end && :; }} 2>/dev/null\n"
    );
    line.into_bytes()
}

/// Command that makes the shell read a file of [`enter_text`].
pub(super) fn enter_line(file: &Path) -> String {
    format!("\\builtin . '{}'", file.display())
}

/// Text that gives a running shell the state of one that starts with these variables in
/// `directory`. The directory gets the name that `getcwd` returns; the previous one stays.
pub(super) fn enter_text(directory: &Path, variables: &EnvironmentChanges) -> Vec<u8> {
    let mut text = b"__sandbox_command=${OLDPWD+OLDPWD=${OLDPWD@Q}}\n\\builtin cd -P -- ".to_vec();
    text.extend(quote(directory.as_os_str()));
    text.extend(b" || \\builtin return\n\\builtin unset OLDPWD\n\\builtin export OLDPWD\n");
    text.extend(b"\\builtin eval \"$__sandbox_command\"\n");
    for (name, value) in variables {
        text.extend(format!("\\builtin export {name}=").into_bytes());
        text.extend(quote(value));
        text.push(b'\n');
    }
    text.extend(b":\n");
    text
}

/// A word of the shell with exactly these bytes.
pub(super) fn quote(value: &OsStr) -> Vec<u8> {
    let parts: Vec<_> = value.as_bytes().split(|byte| *byte == b'\'').collect();
    [b"'", &*parts.join(&br"'\''"[..]), b"'"].concat()
}

/// Text of the start-up file: the user's own files, then the hooks.
pub(super) fn rc_text(directory: &Path, main: bool) -> String {
    let alias = if main {
        "alias git=\"git --no-pager\"\n"
    } else {
        ""
    };
    let directory = directory.display();
    format!(
        "[ -r /etc/bash.bashrc ] && . /etc/bash.bashrc\n[ -r ~/.bashrc ] && . ~/.bashrc\n\
         {alias}{{ . '{directory}/hooks'; }} 9>&2\n"
    )
}

/// Text of the hooks, which also a nested shell reads: through the `PROMPT_COMMAND` that
/// `__sandbox_load` exports for it. Bash writes `PS0` before a command runs and `PS1` at the prompt,
/// after messages about background jobs. A command may change both, as activating a virtual
/// environment does, so they are set again each time. They go to standard error; if that is
/// redirected, the reports go to `/dev/tty`. `set -x` is off while these functions run, so that
/// traces show the command only. The random number tells a shell from the one that `exec` replaced.
pub(super) fn hooks_text(token: &str, directory: &Path) -> String {
    let directory = directory.display().to_string();
    HOOKS
        .replace("@token@", token)
        .replace("@directory@", &directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_that_may_start_a_shell_are_recognized() {
        for command in [
            "exec bash",
            "/bin/bash -l",
            "newgrp x",
            "poetry shell",
            "exec $SHELL",
        ] {
            assert!(may_start_shell(command), "{command}");
        }
        for command in ["env | sort", "make test", "python script.py", "ssh host"] {
            assert!(!may_start_shell(command), "{command}");
        }
    }
}
