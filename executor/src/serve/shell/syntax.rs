//! What only bash knows about the text of a command, asked of a bash that executes nothing.
//!
//! Whether it would ask for more lines, as after an open quote or here document: such a command
//! is typed at the prompt, where later input can complete it. And whether the text is several
//! commands on lines of their own, which clients expect to be refused.

use std::process::{Output, Stdio};
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use crate::serve::children;
use crate::serve::identity::Identity;

const TIMEOUT: Duration = Duration::from_secs(2);
const COMPLAINTS: [&str; 3] = [
    "unexpected EOF while looking for",
    "unexpected end of file",
    "delimited by end-of-file",
];
const KEYWORDS: [&str; 7] = ["if", "for", "while", "until", "case", "select", "function"];

/// Longer texts are not taken apart: each line costs a look at all before it.
const MAX_SPLIT_LINES: usize = 200;

/// Writes each shortest run of lines that can stand as a command, then what is left over. A line
/// is complete when a function around it can be defined; nothing defined is ever called.
const SPLIT: &str = r#"
while IFS= read -r line || [ -n "$line" ]; do
  text+=$line$'\n'
  case $line in *\\) continue ;; esac
  if eval "if false; then f() { ("$'\n'"$text"$'\n'") }; fi" 2>/dev/null; then
    printf '%s\0' "$text"
    text=
  fi
done
printf '%s' "$text"
"#;

/// Asks bash itself, and only if a glance cannot rule it out: the question costs milliseconds.
pub(super) async fn is_incomplete(command: &str, identity: &Identity) -> bool {
    if !may_be_incomplete(command) {
        return false;
    }
    let Some(output) = ask(&["-n"], command, identity).await else {
        return false;
    };
    let stderr = String::from_utf8_lossy(&output.stderr);
    COMPLAINTS
        .iter()
        .any(|complaint| stderr.contains(complaint))
}

/// The commands of the text, if there are several and bash understands all of them.
pub(super) async fn several(command: &str, identity: &Identity) -> Option<Vec<String>> {
    let lines = command.lines().count();
    if !(2..=MAX_SPLIT_LINES).contains(&lines) {
        return None;
    }
    let output = ask(&["-c", SPLIT], command, identity).await?;
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

/// Runs a bash that shares nothing with the agent's but the user.
async fn ask(arguments: &[&str], input: &str, identity: &Identity) -> Option<Output> {
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
    identity.adopt(&mut command);
    command.env("PATH", path).env("LC_ALL", "C");
    let mut child = command.spawn().ok()?;
    let _kept = children::keep(child.id());
    let mut stdin = child.stdin.take()?;
    let writing = async move {
        // It may stop reading at an error; what it has said by then is the answer.
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
    async fn bash_knows_what_is_open() {
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

    #[tokio::test]
    async fn bash_knows_how_many_there_are() {
        let identity = Identity::own();
        for one in [
            "a && b; c | d &",
            "a &&\nb",
            "a |\nb",
            "for i in 1 2; do\n  echo $i\ndone",
            "if x\nthen y\nfi",
            "f() {\n  a\n  b\n}",
            "echo 'a\nb'",
            "echo a \\\n  b",
            "cat << A << B\nx\nA\ny\nB",
            "case x in\n  x) a\n  ;;\nesac",
            "echo A\n# comment",
            "# comment\necho B",
            "echo )\necho b",
            "echo \"open\necho b",
        ] {
            assert_eq!(several(one, &identity).await, None, "{one}");
        }
        for two in [
            "echo a\necho b",
            "for i in 1; do a; done\necho end",
            "cat << A\nx\nA\necho b",
            "f() {\n a\n}\nf",
            "x=$(cat << A\nb\nA\n)\necho b",
            "(( 1+1 ))\n\n! ls",
        ] {
            let commands = several(two, &identity).await;
            assert_eq!(commands.map(|commands| commands.len()), Some(2), "{two}");
        }
    }
}
