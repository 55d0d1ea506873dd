//! Checks of the text of a command by a bash that executes nothing.
//!
//! A command that bash would ask to complete, for example after an open quote, is typed at the
//! prompt, where later input can complete it. Several commands on separate lines are rejected,
//! as clients expect.

use std::process::{Output, Stdio};
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use crate::serve::identity::Identity;
use crate::serve::process_tree::register_child;

const TIMEOUT: Duration = Duration::from_secs(2);
const INCOMPLETE_ERRORS: [&str; 3] = [
    "unexpected EOF while looking for",
    "unexpected end of file",
    "delimited by end-of-file",
];
const KEYWORDS: [&str; 7] = ["if", "for", "while", "until", "case", "select", "function"];

/// Words that make a text one command; see [`has_script_syntax`].
const SCRIPT_KEYWORDS: [&str; 5] = ["[[", "case", "select", "coproc", "time"];
/// Words after which a command begins.
const COMMAND_PREFIXES: [&str; 8] = ["if", "then", "else", "elif", "while", "until", "do", "!"];

/// Longer texts are not split: the check of each line parses all lines before it.
const MAX_SPLIT_LINES: usize = 200;

/// Script that writes each shortest run of lines that is a complete command, then the rest. A text
/// is complete if a function with that body can be defined; the function is never called.
const SPLIT: &str = include_str!("../../../scripts/split_commands.bash");

/// Returns whether bash would ask for more lines. Starts bash only if a quick check cannot tell.
pub(super) async fn is_incomplete(command: &str, identity: &Identity) -> bool {
    if !may_be_incomplete(command) {
        return false;
    }
    let Some(output) = run_bash_check(&["-n"], command, identity).await else {
        return false;
    };
    let stderr = String::from_utf8_lossy(&output.stderr);
    INCOMPLETE_ERRORS
        .iter()
        .any(|complaint| stderr.contains(complaint))
}

/// Returns the commands of the text if there are several and bash can parse all of them. Scripts
/// with syntax that the Python server cannot parse count as one command, as they do there.
pub(super) async fn split_commands(command: &str, identity: &Identity) -> Option<Vec<String>> {
    let lines = command.lines().count();
    if !(2..=MAX_SPLIT_LINES).contains(&lines) || has_script_syntax(command) {
        return None;
    }
    let output = run_bash_check(&["-c", SPLIT], command, identity).await?;
    let text = String::from_utf8(output.stdout).ok()?;
    let (commands, rest) = text.rsplit_once('\0')?;
    let only_comments = rest
        .lines()
        .all(|line| line.trim().is_empty() || line.trim_start().starts_with('#'));
    let commands: Vec<_> = commands
        .split('\0')
        .map(|text| text.trim().to_owned())
        .collect();
    (only_comments && commands.len() > 1).then_some(commands)
}

fn may_be_incomplete(command: &str) -> bool {
    let count = |character| command.matches(character).count();
    let odd = |character| count(character) % 2 == 1;
    odd('\'')
        || odd('"')
        || odd('`')
        || count('(') != count(')')
        || count('{') != count('}')
        || command.contains("<<")
        || command.ends_with('|')
        || command.ends_with("&&")
        || words(command).any(|word| KEYWORDS.contains(&word))
}

fn words(command: &str) -> impl Iterator<Item = &str> {
    command.split(|character: char| character.is_whitespace() || character == ';')
}

/// Returns whether the text contains `[[ ]]`, `$(( ))`, a C-style `for`, an array or one of
/// [`SCRIPT_KEYWORDS`], outside of single quotes.
fn has_script_syntax(command: &str) -> bool {
    let unquoted: String = command.split('\'').step_by(2).collect();
    let is_name = |character: char| character.is_alphanumeric() || "_]+".contains(character);
    let mut arrays = unquoted.match_indices("=(");
    let parts = unquoted.split(['\n', ';', '|', '&', '(', ')', '{', '}']);
    let mut starts = parts.filter_map(|part| {
        let words = part.split_whitespace();
        let mut words = words.skip_while(|word| COMMAND_PREFIXES.contains(word));
        words.next()
    });
    unquoted.contains("$((")
        || unquoted.contains("for ((")
        || arrays.any(|(at, _)| unquoted[..at].ends_with(is_name))
        || starts.any(|word| SCRIPT_KEYWORDS.contains(&word))
}

/// Runs a separate bash as the sandbox user, with an empty environment.
async fn run_bash_check(arguments: &[&str], input: &str, identity: &Identity) -> Option<Output> {
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
    let mut command = Command::new("bash");
    command
        .args(["--norc", "--noprofile", "-O", "extglob"])
        .args(arguments)
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    identity.apply_to(&mut command);
    command.env("PATH", path).env("LC_ALL", "C");
    let mut child = command.spawn().ok()?;
    let _kept = register_child(child.id());
    let mut stdin = child.stdin.take()?;
    let writing = async move {
        // Bash may stop reading at an error; its output until then is the result.
        let _ = stdin.write_all(input.as_bytes()).await;
        let _ = stdin.write_all(b"\n").await;
    };
    let exchange = async { tokio::join!(writing, child.wait_with_output()).1 };
    tokio::time::timeout(TIMEOUT, exchange).await.ok()?.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn incomplete_commands_are_recognized() {
        let identity = Identity::own();
        for open in [
            "cat << EOF",
            "echo \"x",
            "echo `a",
            "if true",
            "(ls",
            "ls |",
        ] {
            assert!(is_incomplete(open, &identity).await, "{open}");
        }
        for closed in [
            "cat << EOF\nx\nEOF",
            "echo \"it's\"",
            "for i in 1; do echo; done",
            "echo ))",
            "case x in x) echo;; esac",
            "ls",
        ] {
            assert!(!is_incomplete(closed, &identity).await, "{closed}");
        }
    }
}
