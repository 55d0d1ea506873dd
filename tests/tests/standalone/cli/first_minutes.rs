//! The first minutes of a newcomer, by the command line alone.

use std::process::Stdio;

use tests::binaries::{binary, root};
use tokio::io::AsyncWriteExt as _;

use super::Cli;
use super::terminals::read_until;

/// The lines of `docs/cli.md`, as they stand there.
#[tokio::test]
async fn newcomer_uses_the_command_line() {
    let Some(cli) = Cli::new() else { return };
    let page = std::fs::read_to_string(root().join("docs/cli.md")).unwrap();
    let (_, lines) = page
        .split_once("## The first five minutes\n\n```sh\n")
        .unwrap();
    let (lines, _) = lines.split_once("```\n").unwrap();
    let program = binary("sandbox");
    let path = std::env::var("PATH").unwrap();
    let path = format!("{}:{path}", program.parent().unwrap().display());
    let folder = tempfile::tempdir().unwrap();
    let mut said = String::new();
    for line in lines.lines() {
        if let Some(words) = line.strip_prefix("sandbox shell ") {
            let (name, _) = words.split_once('#').unwrap();
            use_shell(&cli, name.trim()).await;
            continue;
        }
        let output = cli
            .fixture
            .standalone
            .command("bash")
            .args(["-uc", line])
            .env("PATH", &path)
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{line}\n{errors}");
        said.push_str(&String::from_utf8(output.stdout).unwrap());
    }
    for expected in ["Linux ", "\ndemo ", "\n3\n"] {
        assert!(said.contains(expected), "{expected:?}: {said}");
    }
    let copied = std::fs::read_to_string(folder.path().join("notes.txt"));
    assert_eq!(copied.unwrap(), "hello\n");
}

/// Writes a file in a shell on a terminal, and reads it with another command.
async fn use_shell(cli: &Cli, name: &str) {
    let (mut pty, mut child) = cli.on_terminal(&["shell", name]);
    // The prompt: keys that are typed before a shell reads its terminal can be lost.
    read_until(&mut pty, "").await;
    pty.write_all(b"echo hi > seen.txt\nexit\n").await.unwrap();
    assert_eq!(child.wait().await.unwrap().code(), Some(0));
    assert_eq!(
        cli.succeeds(&["exec", name, "--", "cat", "seen.txt"]),
        "hi\n"
    );
}
