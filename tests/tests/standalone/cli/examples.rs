//! The examples of the client library, as `docs/client-library.md` says to run them.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};

use tests::binaries::binary;

use super::Cli;

impl Cli {
    fn example(&self, name: &str, args: &[&str]) -> Command {
        let program = binary(&format!("examples/{name}"));
        let mut command = self.fixture.standalone.command(program.to_str().unwrap());
        command
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        command
    }

    /// Output of an example that must succeed, with this input.
    fn output_of(&self, name: &str, args: &[&str], input: &str) -> String {
        let mut child = self.example(name, args).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(input.as_bytes()).unwrap();
        drop(stdin);
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{name}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }
}

#[test]
fn examples_of_the_client_library_run() {
    let Some(cli) = Cli::with_sandbox("example") else {
        return;
    };
    let mut watch = cli.example("watch", &[]).spawn().unwrap();
    let mut changes = BufReader::new(watch.stdout.take().unwrap()).lines();
    assert!(changes.any(|line| line.unwrap() == "up to date"));

    let session = cli.output_of("first_session", &["host"], "");
    for expected in ["/workspace/demo (exit code Some(0))", "notes.txt", "third"] {
        assert!(session.contains(expected), "{session}");
    }
    assert!(changes.any(|line| line.unwrap().starts_with("first-session ")));
    watch.kill().unwrap();
    watch.wait().unwrap();

    let sorted = cli.output_of("program", &["example", "sort", "-r"], "a\nb\n");
    assert_eq!(sorted, "b\na\n");
    let local = tempfile::tempdir().unwrap();
    let path = |name: &str| local.path().join(name).to_str().unwrap().to_owned();
    fs::create_dir_all(path("tree/inner")).unwrap();
    fs::write(path("tree/inner/file"), "content").unwrap();
    cli.output_of("copy_tree", &["example", &path("tree"), &path("back")], "");
    assert_eq!(
        fs::read_to_string(path("back/inner/file")).unwrap(),
        "content"
    );
}
