//! The first minutes of a newcomer, by the command line alone.

use std::process::Stdio;

use tests::binaries::{binary, root};

use super::Cli;

/// The lines of `docs/cli.md`, as they stand there.
#[test]
fn newcomer_uses_the_command_line() {
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
        // The login shell reads nothing: its input has ended.
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
