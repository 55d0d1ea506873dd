//! What the shell is taught: to run what `Scratch` holds, and to report through sequences that
//! only this server's `Scanner` understands.

use std::fmt::Write as _;
use std::path::Path;

/// Clears what may stand in the input line, then runs what `Scratch` holds. `eval` at the top
/// level: inside a function, declarations of the command would be lost.
pub(super) const RUN: &[u8] = b"\x15{ \\__sandbox_load; } 2>/dev/null; \
    \\builtin eval \"$__sandbox_command\"; { \\__sandbox_show; } 2>/dev/null\n";

/// The shell's first file: the user's own, then the reports. `PS0` is written before a command
/// runs; `PS1` at the prompt, after news of background jobs. A command may change these, as
/// activating a virtual environment does, so they are set again each time. `set -x` must not show
/// any of this: it is switched off until the command itself begins.
pub(super) fn text(token: &str, command: &Path, main: bool) -> String {
    let mut text = String::from(
        "[ -r /etc/bash.bashrc ] && . /etc/bash.bashrc\n[ -r ~/.bashrc ] && . ~/.bashrc\n",
    );
    if main {
        text.push_str("alias git=\"git --no-pager\"\n");
    }
    let command = command.display();
    let _ = write!(
        text,
        r"set +o history +H
unset TMOUT
__sandbox_load() {{
  local status=$?
  IFS= builtin read -r -d '' __sandbox_command < '{command}' || :
  case $- in *x*) set +x; __sandbox_command=$'set -x\n'$__sandbox_command ;; esac
  case $- in *e*) return 0 ;; esac
  return $status
}}
__sandbox_prompt='\e]{token}\037$?\037${{!:-}}\037\u\037\h\037${{PATH-}}\037${{PWD-}}\037{token}\a'
__sandbox_show() {{
  local status=$?
  PROMPT_COMMAND='{{ \__sandbox_show; }} 2>/dev/null'
  PS0='\e]{token}\037start\037{token}\a' PS1=$__sandbox_prompt PS2=
  case $- in *e*) return 0 ;; esac
  return $status
}}
__sandbox_show
"
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shell_can_read_it() {
        let text = text("TOKEN", Path::new("/tmp/x"), true);
        let checked = std::process::Command::new("bash")
            .args(["-n", "-c", &text])
            .output();
        assert!(checked.unwrap().stderr.is_empty());
        assert!(text.contains("\\e]TOKEN\\037start\\037TOKEN\\a"), "{text}");
    }
}
