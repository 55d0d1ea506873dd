//! Shells and streams, and how they end: by an exit code, a closed output, a signal or Ctrl-C.

use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::process::Stdio;

use client::{Client, Settings};
use pty_process::{Pty, Size};
use serde_json::json;
use tests::binaries::binary;
use tests::cli_tools::{run_checked, until};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Child;

use super::Cli;
use super::terminals::read_until;
use crate::fixture::fixture_with;

impl Cli {
    /// Runs the command on a terminal.
    pub(super) fn on_terminal(&self, args: &[&str]) -> (Pty, Child) {
        let (pty, pts) = pty_process::open().unwrap();
        pty.resize(Size::new(30, 120)).unwrap();
        let child = pty_process::Command::new(binary("sandbox"))
            .args(args)
            .envs(&self.fixture.standalone.env)
            .spawn(pts)
            .unwrap();
        (pty, child)
    }
}

/// Help and usage errors on a terminal have no escape sequences, with `NO_COLOR` or without.
#[tokio::test]
async fn help_and_usage_errors_have_no_colors() {
    for (word, code) in [("--help", 0), ("lits", 125)] {
        let (mut pty, pts) = pty_process::open().unwrap();
        let mut child = pty_process::Command::new(binary("sandbox"))
            .arg(word)
            .env("TERM", "xterm-256color")
            .env_remove("NO_COLOR")
            .spawn(pts)
            .unwrap();
        let mut seen = Vec::new();
        // Ends with an error when the program has ended.
        let _ = pty.read_to_end(&mut seen).await;
        let seen = String::from_utf8(seen).unwrap();
        assert_eq!(child.wait().await.unwrap().code(), Some(code), "{seen}");
        assert!(seen.contains("Usage: sandbox "), "{seen}");
        assert!(!seen.contains('\u{1b}'), "{seen:?}");
    }
}

#[tokio::test]
async fn shell_reads_keys_and_passes_its_exit_code() {
    let Some(cli) = Cli::with_sandbox("shell") else {
        return;
    };
    let (mut pty, mut child) = cli.on_terminal(&["shell", "shell"]);
    // The prompt: keys that are typed before a shell reads its terminal can be lost.
    read_until(&mut pty, "").await;
    pty.write_all(b"echo shell-$((40 + 2))\n").await.unwrap();
    read_until(&mut pty, "shell-42").await;
    pty.write_all(b"exit 7\n").await.unwrap();
    assert_eq!(child.wait().await.unwrap().code(), Some(7));
}

#[tokio::test]
async fn agent_is_watched_as_it_works() {
    let Some(cli) = Cli::with_sandbox("agent") else {
        return;
    };
    let mut watched = cli.command(&["attach", "agent", "agent"]);
    let mut watched = watched
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(watched.stdout.take().unwrap()).lines();
    let client = Client::new(Settings::new(cli.fixture.api(), cli.fixture.key()).unwrap());
    let client = client.unwrap();
    let info = client.session("agent").await.unwrap().unwrap();
    client
        .sandbox(info)
        .run("echo seen-$((40 + 2))")
        .await
        .unwrap();
    assert!(lines.any(|line| line.unwrap().contains("seen-42")));
    watched.kill().unwrap();
    watched.wait().unwrap();
}

#[tokio::test]
async fn closed_output_ends_programs_and_logs_quietly() {
    let Some(cli) = Cli::with_sandbox("closed") else {
        return;
    };
    let (output, errors) =
        cli.shell("sandbox exec closed -- yes | head -n 1; echo ${PIPESTATUS[0]}");
    assert_eq!((output.as_str(), errors.as_str()), ("y\n141\n", ""));
    let command = "while echo line; do sleep 0.01; done";
    let start = json!({"session_id": "chatty", "image": "host", "command": ["sh", "-c", command]});
    assert_eq!(cli.fixture.post("start", &start).await.0, 201);
    let (output, errors) = cli.shell("sandbox logs chatty -f | head -n 1; echo ${PIPESTATUS[0]}");
    assert_eq!((output.as_str(), errors.as_str()), ("line\n141\n", ""));
}

#[tokio::test]
async fn interrupted_start_leaves_nothing() {
    // A registry that never answers: the start lasts until it is interrupted.
    let registry = TcpListener::bind("127.0.0.1:0").unwrap();
    let host = registry.local_addr().unwrap().to_string();
    let Some(fixture) = fixture_with(&["--insecure-registries", &host]) else {
        return;
    };
    let cli = Cli { fixture };
    let image = format!("{host}/app:1");
    let run = ["run", "--rm", "--name", "cut", &image, "--", "true"];
    let (mut pty, mut child) = cli.on_terminal(&run);
    read_until(&mut pty, "STARTING_RUNTIME").await;
    assert_eq!(cli.succeeds(&["list", "-o", "name"]), "cut\n");
    pty.write_all(&[3]).await.unwrap();
    assert_eq!(child.wait().await.unwrap().code(), Some(130));
    assert_eq!(cli.succeeds(&["list", "-o", "name"]), "");
    assert!(
        cli.fails(&["describe", "cut"])
            .contains("no sandbox is called cut")
    );
}

#[test]
fn exit_codes_tell_commands_that_cannot_start_and_signals() {
    let Some(cli) = Cli::with_sandbox("codes") else {
        return;
    };
    let write = "echo true > /tmp/locked";
    cli.succeeds(&["exec", "codes", "--", "sh", "-c", write]);
    for (program, code) in [
        ("/tmp", 126),
        ("/tmp/locked", 126),
        ("/tmp/none", 127),
        ("no-such-program", 127),
    ] {
        let output = cli.run(&["exec", "codes", "--", program]);
        assert_eq!(output.status.code(), Some(code), "{program}: {output:?}");
    }
    // The program ignores the hang-up, so it is killed.
    let script = "trap '' HUP TERM; echo $$; exec sleep 3600";
    for (signal, code) in [("-HUP", 129), ("-TERM", 143)] {
        let mut child = cli
            .command(&["exec", "codes", "--", "sh", "-c", script])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut pid = String::new();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        lines.read_line(&mut pid).unwrap();
        run_checked("kill", &[signal, &child.id().to_string()]);
        assert_eq!(child.wait().unwrap().code(), Some(code), "{signal}");
        until("the program in the sandbox has ended", || {
            let look = format!("kill -0 {}", pid.trim());
            let look = cli.run(&["exec", "codes", "--", "sh", "-c", &look]);
            look.status.code() == Some(1)
        });
    }
}
