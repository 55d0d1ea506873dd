//! Tells whether bash would ask for more lines after a command, as for an open quote or here
//! document. Such a command is typed at the prompt, where later input can complete it.

use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

const TIMEOUT: Duration = Duration::from_secs(2);
const COMPLAINTS: [&str; 3] = [
    "unexpected EOF while looking for",
    "unexpected end of file",
    "delimited by end-of-file",
];
const KEYWORDS: [&str; 7] = ["if", "for", "while", "until", "case", "select", "function"];

/// Asks bash itself, and only if a glance cannot rule it out: the question costs milliseconds.
pub(super) async fn is_incomplete(command: &str) -> bool {
    if !may_be_incomplete(command) {
        return false;
    }
    let answer = tokio::time::timeout(TIMEOUT, complaints(command)).await;
    let Ok(Ok(stderr)) = answer else {
        return false;
    };
    COMPLAINTS
        .iter()
        .any(|complaint| stderr.contains(complaint))
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

/// What `bash -n` says: it reads, and executes nothing.
async fn complaints(command: &str) -> std::io::Result<String> {
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
    let mut child = Command::new("bash")
        .args(["--norc", "--noprofile", "-n", "-O", "extglob"])
        .env_clear()
        .env("PATH", path)
        .env("LC_ALL", "C")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    if let Some(mut input) = child.stdin.take() {
        // It may stop reading at an error; what it has said by then is the answer.
        let _ = input.write_all(command.as_bytes()).await;
        let _ = input.write_all(b"\n").await;
    }
    let output = child.wait_with_output().await?;
    Ok(String::from_utf8_lossy(&output.stderr).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn bash_knows_what_is_open() {
        for open in [
            "cat << EOF",
            "echo \"x",
            "echo `a",
            "if true",
            "(ls",
            "ls |",
        ] {
            assert!(is_incomplete(open).await, "{open}");
        }
        for closed in [
            "cat << EOF\nx\nEOF",
            "echo \"it's\"",
            "for i in 1; do echo; done",
            "echo ))",
            "case x in x) echo;; esac",
            "ls",
        ] {
            assert!(!is_incomplete(closed).await, "{closed}");
        }
    }
}
