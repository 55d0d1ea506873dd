//! Programs with pipes and with a terminal.

use std::io::{Read as _, Write as _};
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use pty_process::Size;
use tests::binaries::binary;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::Cli;

const START_LIMIT: Duration = Duration::from_secs(30);
/// Larger than all buffers between the two ends.
const BYTES: usize = 8 << 20;

#[test]
fn command_of_a_new_sandbox_has_its_exit_code_and_streams() {
    let Some(cli) = Cli::new() else {
        return;
    };
    let script = "echo out; echo err >&2; exit 3";
    let output = cli.run(&[
        "run", "--rm", "--name", "once", "host", "--", "sh", "-c", script,
    ]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert_eq!(
        (&output.stdout[..], &output.stderr[..]),
        (&b"out\n"[..], &b"err\n"[..])
    );
    assert_eq!(cli.succeeds(&["list", "-o", "name"]), "");
}

#[test]
fn pipes_carry_all_bytes_and_signals_are_exit_codes() {
    let Some(cli) = Cli::with_sandbox("pipes") else {
        return;
    };
    let mut child = cli
        .command(&["exec", "pipes", "--", "sh", "-c", "cat; echo done >&2"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let sent: Vec<u8> = (0..=252).cycle().take(BYTES).collect();
    let mut stdin = child.stdin.take().unwrap();
    let data = sent.clone();
    let writer = thread::spawn(move || stdin.write_all(&data).unwrap());
    let mut received = Vec::new();
    child
        .stdout
        .take()
        .unwrap()
        .read_to_end(&mut received)
        .unwrap();
    writer.join().unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(output.stderr, b"done\n");
    assert!(received == sent, "{} of {BYTES} bytes", received.len());

    let killed = cli.run(&["exec", "pipes", "--", "sh", "-c", "kill -9 $$"]);
    assert_eq!(killed.status.code(), Some(137), "{killed:?}");
    let here = cli.succeeds(&[
        "exec",
        "-w",
        "/tmp",
        "-e",
        "A=b c",
        "pipes",
        "--",
        "sh",
        "-c",
        "pwd; echo \"$A\"",
    ]);
    assert_eq!(here, "/tmp\nb c\n");
    // Every program that has ended was forgotten.
    assert_eq!(cli.succeeds(&["attach", "pipes"]).lines().count(), 1);
}

/// Reads from a terminal until a text has come.
pub(super) async fn read_until(pty: &mut pty_process::Pty, text: &str) -> String {
    let mut seen = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let read = pty.read(&mut buffer).await.unwrap();
        seen.extend_from_slice(&buffer[..read]);
        let so_far = String::from_utf8_lossy(&seen);
        if so_far.contains(text) {
            return so_far.into_owned();
        }
    }
}

#[tokio::test]
async fn terminal_passes_keys_and_sizes() {
    let Some(cli) = Cli::with_sandbox("terminal") else {
        return;
    };
    let (mut pty, pts) = pty_process::open().unwrap();
    pty.resize(Size::new(30, 90)).unwrap();
    let script = "trap 'echo interrupted; exit 9' INT; trap 'stty size' WINCH; stty size; echo ready; \
                  while :; do sleep 0.1; done";
    let child = pty_process::Command::new(binary("sandbox"))
        .args(["exec", "terminal", "--", "bash", "-c", script])
        .envs(&cli.fixture.standalone.env)
        .spawn(pts)
        .unwrap();
    let mut child = child;
    let seen = read_until(&mut pty, "ready").await;
    assert!(seen.contains("30 90"), "{seen}");
    pty.resize(Size::new(41, 101)).unwrap();
    read_until(&mut pty, "41 101").await;
    pty.write_all(&[3]).await.unwrap();
    read_until(&mut pty, "interrupted").await;
    assert_eq!(child.wait().await.unwrap().code(), Some(9));
}

/// A shell is opened for `-it`, and for `--rm` at a terminal.
#[tokio::test]
async fn sandbox_without_a_command_goes_on_at_a_terminal() {
    let Some(cli) = Cli::new() else {
        return;
    };
    let (_pty, pts) = pty_process::open().unwrap();
    let mut child = pty_process::Command::new(binary("sandbox"))
        .args(["run", "--name", "goes-on", "host"])
        .envs(&cli.fixture.standalone.env)
        .spawn(pts)
        .unwrap();
    let ended = tokio::time::timeout(START_LIMIT, child.wait()).await;
    assert_eq!(ended.expect("a shell").unwrap().code(), Some(0));
    assert_eq!(cli.succeeds(&["list", "-o", "name"]), "goes-on\n");
}
