//! What the shell is taught: to run what `Scratch` holds, and to report through sequences that
//! only this server's `Scanner` understands.

use std::fmt::Write as _;
use std::path::Path;

/// What the user's own files may not undo.
#[derive(Debug, Clone, Copy)]
pub(super) struct Options {
    /// The shell that all ordinary commands share.
    pub(super) main: bool,
    /// Most memory of one process.
    pub(super) max_memory_gib: Option<u64>,
}

/// How the line begins that [`run`] types, as the terminal echoes it.
pub(super) const ECHO: &str = "{ \\__sandbox_load ";

/// Clears what may stand in the input line, then runs what `Scratch` holds. `eval` at the top
/// level: inside a function, declarations of the command would be lost. A failing command of an
/// `&&` list neither ends a shell with `set -e` nor sets off a trap, and still hands on its
/// status.
pub(super) fn run(id: u64) -> Vec<u8> {
    let line = format!(
        "\x15{ECHO}{id} && :; }} 9>&2 2>/dev/null; \
         \\builtin eval \"$__sandbox_command\"; {{ \\__sandbox_end && :; }} 2>/dev/null\n"
    );
    line.into_bytes()
}

/// The shell's first file: the user's own, then the reports. `PS0` is written before a command
/// runs; `PS1` at the prompt, after news of background jobs. A command may change these, as
/// activating a virtual environment does, so they are set again each time. Both go to the standard
/// error output; where that is no terminal any more, the terminal is told directly. `set -x` must
/// not show any of this: it is switched off until the command itself begins. A shell started
/// inside the shell reads this file, too; nothing is exported, so `env` shows nothing of it.
pub(super) fn text(token: &str, directory: &Path, options: Options) -> String {
    let mut text = String::new();
    if let Some(limit) = options.max_memory_gib {
        let kib = limit.saturating_mul(1 << 20);
        let _ = writeln!(text, "ulimit -d {kib}");
    }
    text.push_str(
        "[ -r /etc/bash.bashrc ] && . /etc/bash.bashrc\n[ -r ~/.bashrc ] && . ~/.bashrc\n",
    );
    if options.main {
        text.push_str("alias git=\"git --no-pager\"\n");
    }
    let directory = directory.display();
    let _ = write!(
        text,
        r#"set +o history +H
shopt -s promptvars
unset TMOUT
__sandbox_id=0 __sandbox_status=0 __sandbox_ended= __sandbox_command=
__sandbox_start='\e]{token}\037start\037{token}\a'
__sandbox_prompt='\e]{token}\037${{__sandbox_status}}\037${{!:-}}\037${{__sandbox_id}}\037$$\037\u\037\h\037${{PATH-}}\037${{PWD-}}\037{token}\a'
__sandbox_load() {{
  local status=$?
  __sandbox_id=$1
  [ -t 9 ] || builtin printf %s "${{__sandbox_start@P}}" >/dev/tty
  IFS= builtin read -r -d '' __sandbox_command <'{directory}/command' || :
  case $- in *x*) set +x; __sandbox_command=$'set -x\n'$__sandbox_command ;; esac
  return $status
}}
__sandbox_end() {{
  __sandbox_status=$? __sandbox_ended=1
  PROMPT_COMMAND='{{ \__sandbox_show; }} 9>&2 2>/dev/null'
  return $__sandbox_status
}}
__sandbox_show() {{
  local status=$?
  [ -n "$__sandbox_ended" ] || __sandbox_status=$status
  PROMPT_COMMAND='{{ \__sandbox_show; }} 9>&2 2>/dev/null'
  __sandbox_ended= PS0=$__sandbox_start PS1=$__sandbox_prompt PS2=
  [ -t 9 ] && return
  PS0= PS1=
  builtin printf %s "${{__sandbox_prompt@P}}" >/dev/tty
}}
bash() {{
  case $* in
    ''|-i) if [ -t 0 ] && [ -t 2 ]; then
      command bash --noediting --rcfile '{directory}/rc' -i
      return
    fi ;;
  esac
  command bash "$@"
}}
{{ __sandbox_show; }} 9>&2
"#,
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shell_can_read_it() {
        let options = Options {
            main: true,
            max_memory_gib: Some(2),
        };
        let text = text("TOKEN", Path::new("/tmp/x"), options);
        let checked = std::process::Command::new("bash")
            .args(["-n", "-c", &text])
            .output();
        assert!(checked.unwrap().stderr.is_empty());
        assert!(text.contains("\\e]TOKEN\\037start\\037TOKEN\\a"), "{text}");
        assert!(text.starts_with("ulimit -d 2097152\n"));
    }
}
