//! The agent's shell as viewers see it, and the agent, which does not notice them.

use serde_json::{Value, json};

use super::viewer::Viewer;
use crate::client::content;
use crate::fixture::{ServerFixture, all_users};

const CONNECT: &str = "/terminals/agent/connect";

/// Commands and their outputs for viewers.
const COMMANDS: [(&str, &str); 4] = [
    ("echo o''ne", "$ echo o''ne\r\none\r\n"),
    ("printf '\\033[31mred\\033[0m\\n'", "\x1b[31mred\x1b[0m\r\n"),
    (
        "for i in 1 2 3\ndo echo line $i\ndone",
        "line 1\r\nline 2\r\nline 3\r\n",
    ),
    ("cd /usr && pwd; false", "/usr\r\n"),
];

/// Observation without what differs between two shells.
fn observed(server: &ServerFixture, command: &str) -> Value {
    let observation = server.run(command);
    let mut metadata = observation["extras"]["metadata"].clone();
    metadata["pid"] = Value::Null;
    json!([content(&observation), metadata])
}

#[test]
fn viewers_see_commands_and_raw_output_and_change_no_observation() {
    for (watched, alone) in all_users().into_iter().zip(all_users()) {
        let mut viewer = Viewer::new(&watched, CONNECT);
        viewer.status();
        let size = json!({"size": {"Width": 1000, "Height": 1000}});
        assert_eq!(viewer.status(), size);
        let mut all = String::new();
        for (command, output) in COMMANDS {
            let unwatched = observed(&alone, command);
            let unwatched = unwatched.to_string();
            let root = |server: &ServerFixture| server.root.display().to_string();
            let unwatched = unwatched.replace(&root(&alone), &root(&watched));
            assert_eq!(observed(&watched, command).to_string(), unwatched);
            all.push_str(&viewer.until(output).text());
        }
        for hidden in ["__sandbox", "\x1f", "\x1b]"] {
            assert!(!all.contains(hidden), "{all:?}");
        }
        // The scrollback, for one that comes later.
        let mut late = Viewer::new(&watched, CONNECT);
        let scrollback = late.until("/usr\r\n").text();
        assert!(scrollback.ends_with(&all), "{scrollback:?} {all:?}");
    }
}

#[test]
fn viewers_see_output_of_a_command_that_runs_and_of_the_next_shell() {
    let server = ServerFixture::new("root");
    let mut viewer = Viewer::new(&server, CONNECT);
    server.while_waiting(&server.root, || {
        viewer.until("$ cat gate\r\n");
    });
    server.run("exit 3");
    server.run("echo o''ther shell");
    viewer.until("other shell\r\n");
}

#[test]
fn viewer_that_does_not_read_does_not_delay_the_agent() {
    let server = ServerFixture::new("root");
    let mut viewer = Viewer::new(&server, CONNECT);
    viewer.status();
    let before = server.peak();
    server.run("head -c 16M /dev/zero | tr '\\0' 'x' | fold -w 100; echo");
    assert_eq!(server.output("echo af''ter"), "after");
    let session = viewer.until("after\r\n");
    assert!(
        session
            .statuses
            .iter()
            .any(|status| status["skipped"].is_u64())
    );
    let grown = server.peak() - before;
    assert!(grown < 64 << 10, "{grown} KiB");
}

#[test]
fn viewers_of_the_agent_cannot_type() {
    let server = ServerFixture::new("root");
    let mut viewer = Viewer::new(&server, CONNECT);
    viewer.resize(80, 24);
    viewer.type_in("touch typed\n");
    assert_eq!(viewer.rest().closed.unwrap().0, 1008);
    assert_eq!(server.output("ls"), "");
    assert_eq!(server.output("stty size"), "1000 1000");
    let mut viewer = Viewer::new(&server, &format!("{CONNECT}?read_only=false"));
    viewer.type_in("x");
    assert_eq!(viewer.rest().closed.unwrap().0, 1008);
    assert_eq!(server.keyed("GET /terminals/agent", "").status, 404);
    assert_eq!(server.keyed("DELETE /terminals/agent", "").status, 404);
}
