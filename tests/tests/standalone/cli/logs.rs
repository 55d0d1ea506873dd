//! Output of sandboxes, and lists of builds.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};

use serde_json::{Value, json};

use super::Cli;

/// Prints numbered lines until it is ended.
const COUNTER: &str = "n=0; while :; do n=$((n+1)); echo line-$n; sleep 0.01; done";

impl Cli {
    /// Follows a log from its present end.
    fn follow(&self, name: &str) -> Child {
        let mut command = self.command(&["logs", name, "-f", "--tail", "0"]);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        command.spawn().unwrap()
    }
}

/// Number of a line of [`COUNTER`].
fn number(line: &str) -> u32 {
    let number = line.strip_prefix("line-");
    number.unwrap_or_else(|| panic!("{line}")).parse().unwrap()
}

#[tokio::test]
async fn log_is_printed_and_followed_until_the_sandbox_pauses() {
    let Some(cli) = Cli::new() else {
        return;
    };
    let start = json!({"session_id": "counter", "image": "host", "command": ["sh", "-c", COUNTER]});
    let (code, info) = cli.fixture.post("start", &start).await;
    assert_eq!(code, 201, "{info}");
    let mut followed = cli.follow("counter");
    let mut lines = BufReader::new(followed.stdout.take().unwrap()).lines();
    let mut last = number(&lines.next().unwrap().unwrap());
    for line in lines.by_ref().take(200) {
        let next = number(&line.unwrap());
        assert_eq!(next, last + 1, "no line is lost");
        last = next;
    }
    let tail = cli.succeeds(&["logs", "counter", "--tail", "3", "--timestamps"]);
    let times = tail.lines().filter(|line| line.contains("Z line-"));
    assert_eq!((times.count(), tail.lines().count()), (3, 3), "{tail}");

    let id = json!({"runtime_id": info["runtime_id"]});
    assert_eq!(cli.fixture.post("pause", &id).await.0, 200);
    for line in lines {
        let next = number(&line.unwrap());
        assert_eq!(next, last + 1, "no line is lost at the end");
        last = next;
    }
    assert!(followed.wait().unwrap().success());
    assert_eq!(cli.succeeds(&["logs", "counter"]), "");
}

#[test]
fn builds_of_a_key_are_listed() {
    let Some(cli) = Cli::new() else {
        return;
    };
    let list = cli.succeeds(&["builds", "list", "-o", "json"]);
    let list: Value = serde_json::from_str(&list).unwrap();
    assert_eq!(list, json!({"builds": [], "total": 0}));
    assert!(cli.succeeds(&["builds", "list"]).starts_with("ID "));
}
