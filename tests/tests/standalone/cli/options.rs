//! Options that say how a sandbox is made, what is shown of it, and how a program is joined.

use pty_process::Pty;
use serde_json::Value;
use tests::binaries::binary;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Child;

use super::Cli;
use super::terminals::read_until;

/// Ctrl-P Ctrl-Q.
const LEAVE: &[u8] = &[16, 17];

impl Cli {
    /// Runs the command at a terminal of its own.
    fn at_a_terminal(&self, args: &[&str]) -> (Pty, Child) {
        let (pty, pts) = pty_process::open().unwrap();
        let command = pty_process::Command::new(binary("sandbox")).args(args);
        let child = command.envs(&self.fixture.standalone.env).spawn(pts);
        (pty, child.unwrap())
    }

    fn described(&self, args: &[&str]) -> Value {
        let text = self.succeeds(&[&["describe", "rich", "-o", "json"], args].concat());
        serde_json::from_str(&text).unwrap()
    }
}

#[test]
fn sandbox_is_made_and_shown_as_its_options_say() {
    let Some(cli) = Cli::new() else { return };
    let rich = ["run", "--name", "rich", "--persistence", "workspace"];
    let more = ["--resource-factor", "2", "--pull", "IfNotPresent"];
    let missing = ["--runtime-class", "missing", "-e", "A=b", "host"];
    cli.succeeds(&[&rich[..], &more, &missing].concat());
    let shown = cli.described(&[]);
    assert_eq!(shown["resource_factor"], 2.0);
    assert_eq!(shown["runtime_class"], Value::Null, "the default is used");
    assert_eq!(shown.get("session_api_key"), None);
    let with_key = cli.described(&["--show-key"]);
    assert!(
        with_key["session_api_key"]
            .as_str()
            .is_some_and(|key| !key.is_empty())
    );
    let paused = cli.succeeds(&["pause", "rich"]);
    assert_eq!(paused, "rich paused, kept Workspace\n");
    cli.succeeds(&["resume", "rich"]);

    let kind = [
        "--",
        "sh",
        "-c",
        "test -t 0 && echo terminal || echo pipe; echo $A",
    ];
    for (flag, expected) in [("-t", "terminal\r\nb\r\n"), ("-T", "pipe\nb\n")] {
        let said = cli.succeeds(&[&["exec", flag, "rich"][..], &kind].concat());
        assert_eq!(said, expected, "{flag}");
    }
    assert!(
        cli.fails(&["run", "--pull", "Sometimes", "host"])
            .contains("pull")
    );
    let factor = cli.fails(&["run", "--resource-factor", "0", "host"]);
    assert!(factor.contains("resource"), "{factor}");
}

#[test]
fn snapshot_is_not_waited_for_and_the_key_may_be_in_a_file() {
    let Some(cli) = Cli::with_sandbox("origin") else {
        return;
    };
    let level = ["--no-wait", "--level", "workspace"];
    let snapshot = cli.succeeds(&[&["snapshot", "create", "origin"][..], &level].concat());
    let listed = cli.succeeds(&["snapshot", "list", "origin", "-o", "name"]);
    assert_eq!(listed, snapshot);

    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), cli.fixture.standalone.key()).unwrap();
    let path = file.path().to_str().unwrap();
    let mut command = cli.command(&["--api-key-file", path, "list", "-o", "name"]);
    let output = command.env_remove("SANDBOX_API_KEY").output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "origin\n");
}

#[tokio::test]
async fn viewers_join_a_program_and_leave_it() {
    let Some(cli) = Cli::with_sandbox("viewed") else {
        return;
    };
    let script = "echo begun; while read -r line; do echo \"got $line\"; done";
    let (mut first, mut owner) = cli.at_a_terminal(&["exec", "viewed", "--", "bash", "-c", script]);
    read_until(&mut first, "begun").await;
    let listed = cli.succeeds(&["attach", "viewed"]);
    let id = listed
        .lines()
        .nth(1)
        .and_then(|line| line.split_whitespace().next());
    let id = id.unwrap_or_else(|| panic!("{listed}"));

    let (mut second, mut viewer) = cli.at_a_terminal(&["attach", "viewed", id]);
    read_until(&mut second, "begun").await;
    second.write_all(b"from the viewer\n").await.unwrap();
    read_until(&mut first, "got from the viewer").await;
    second.write_all(LEAVE).await.unwrap();
    assert!(viewer.wait().await.unwrap().success());

    let watching = ["attach", "viewed", id, "--read-only"];
    let (mut third, mut watcher) = cli.at_a_terminal(&watching);
    read_until(&mut third, "got from the viewer").await;
    third.write_all(b"unheard\n").await.unwrap();
    first.write_all(b"from the owner\n").await.unwrap();
    let seen = read_until(&mut third, "got from the owner").await;
    assert!(!seen.contains("got unheard"), "{seen}");

    first.write_all(&[4]).await.unwrap();
    assert!(owner.wait().await.unwrap().success());
    assert!(watcher.wait().await.unwrap().success());
}
