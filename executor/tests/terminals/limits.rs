//! Limits, and requests and messages that are rejected.

use serde_json::json;

use super::viewer::{Viewer, create, open, shell};
use crate::client::{KEY, SESSION_KEY, wait_until};
use crate::fixture::ServerFixture;

#[test]
fn further_terminals_are_rejected_until_a_program_ends() {
    let server = ServerFixture::new("root");
    let body = json!({"command": ["cat"], "tty": false});
    let paths: Vec<_> = (0..32).map(|_| create(&server, &body)).collect();
    let rejected = server.keyed("POST /terminals", &body.to_string());
    let text = r#"{"detail":"at most 32 terminals can run at once"}"#;
    assert_eq!(rejected.parts(), (429, text));
    let mut viewer = Viewer::new(&server, &format!("{}/connect", paths[0]));
    viewer.end_input();
    assert_eq!(viewer.rest().exit(), &json!({"code": 0}));
    wait_until(|| server.keyed("POST /terminals", &body.to_string()).status == 201);
    // The one that has ended is kept besides.
    let list = server.keyed("GET /terminals", "").json();
    let list = list["terminals"].as_array().unwrap();
    let states: Vec<_> = list
        .iter()
        .map(|terminal| terminal["state"].as_str())
        .collect();
    assert_eq!(states.len(), 33);
    assert_eq!((states[0], states[32]), (Some("exited"), Some("running")));
}

#[test]
fn exited_terminals_are_bounded() {
    let server = ServerFixture::new("root");
    let body = json!({"command": ["true"], "tty": false});
    let mut first = None;
    for _ in 0..80 {
        let (path, mut viewer) = open(&server, &body);
        assert_eq!(viewer.rest().exit(), &json!({"code": 0}));
        first.get_or_insert(path);
    }
    let list = server.keyed("GET /terminals", "").json();
    assert_eq!(list["terminals"].as_array().unwrap().len(), 64);
    assert_eq!(
        server.keyed(&format!("GET {}", first.unwrap()), "").status,
        404
    );
}

#[test]
fn further_viewers_are_rejected_until_one_leaves() {
    let server = ServerFixture::new("root");
    let path = create(&server, &shell());
    let connect = format!("{path}/connect");
    let mut viewers: Vec<_> = (0..16).map(|_| Viewer::new(&server, &connect)).collect();
    let one_more = || Viewer::open(server.address, &connect, &[SESSION_KEY]);
    assert_eq!(one_more().err(), Some(429));
    viewers[0].send_text("leaves");
    assert_eq!(viewers[0].rest().closed.unwrap().0, 1003);
    assert!(one_more().is_ok());
}

#[test]
fn invalid_requests_are_explained() {
    let server = ServerFixture::new("root");
    let missing = server.path("missing").display().to_string();
    let directory =
        format!("working_directory {missing} is not a directory that the user can enter");
    for (body, text) in [
        (
            "{",
            "the body is not a terminal: EOF while parsing an object at line 1 column 1",
        ),
        (r#"{"command": []}"#, "command must not be empty"),
        (r#"{"columns": 0}"#, "columns and rows must be 1 to 1000"),
        (r#"{"working_directory": "missing"}"#, directory.as_str()),
        (
            r#"{"command": ["no-such-program"]}"#,
            r#"cannot start "no-such-program": No such file or directory (os error 2)"#,
        ),
        (
            r#"{"command": ["no-such-program"], "tty": false}"#,
            r#"cannot start "no-such-program": No such file or directory (os error 2)"#,
        ),
        (
            r#"{"command": ["/etc/passwd"], "tty": false}"#,
            r#"cannot start "/etc/passwd": Permission denied (os error 13)"#,
        ),
    ] {
        let answer = server.keyed("POST /terminals", body);
        let expected = json!({"detail": text}).to_string();
        assert_eq!(answer.parts(), (422, expected.as_str()), "{body}");
    }
    let large = json!({"command": ["x".repeat(70_000)]}).to_string();
    assert_eq!(server.keyed("POST /terminals", &large).status, 413);
    let list = server.keyed("GET /terminals", "").json();
    assert_eq!(list, json!({"terminals": []}));
    let path = create(&server, &shell());
    for query in ["after=x", "after=-1", "read_only=maybe"] {
        let connect = format!("{path}/connect?{query}");
        let opened = Viewer::open(server.address, &connect, &[SESSION_KEY]);
        assert_eq!(opened.err(), Some(422), "{query}");
    }
    let plain = server.keyed(&format!("GET {path}/connect"), "");
    assert_eq!(plain.status, 400);
    assert!(plain.json()["detail"].is_string());
    let unknown = Viewer::open(server.address, "/terminals/x/connect", &[SESSION_KEY]);
    assert_eq!(unknown.err(), Some(404));
}

#[test]
fn invalid_messages_end_the_connection_and_not_the_program() {
    let server = ServerFixture::new("root");
    let path = create(&server, &shell());
    let connect = format!("{path}/connect");
    let size = r#"a size is {"Width": 80, "Height": 24}, each 1 to 1000"#;
    let no_end = "the input of a terminal has no end: Ctrl-D is the character 4";
    for (message, code, reason) in [
        (&b""[..], 1002, "a message begins with a channel"),
        (b"\x01out", 1002, "clients cannot send on channel 1"),
        (b"\x07", 1002, "clients cannot send on channel 7"),
        (b"\x04{\"Width\"", 1002, size),
        (b"\x04{\"Width\": 0, \"Height\": 24}", 1002, size),
        (b"\xff\x01", 1002, "only channel 0 can be closed"),
        (b"\xff\0", 1002, no_end),
    ] {
        let mut viewer = Viewer::new(&server, &connect);
        viewer.send(message);
        let closed = viewer.rest().closed;
        assert_eq!(closed, Some((code, reason.to_owned())), "{message:?}");
    }
    let mut viewer = Viewer::new(&server, &connect);
    viewer.send_text("ls\n");
    assert_eq!(viewer.rest().closed.unwrap().0, 1003);
    // The connection may be reset before its reason arrives.
    let mut viewer = Viewer::new(&server, &connect);
    viewer.send(&vec![0; (64 << 10) + 2]);
    let closed = viewer.rest().closed;
    assert!(closed.is_none_or(|(code, _)| code == 1009));
    let mut viewer = Viewer::new(&server, &connect);
    viewer.type_in("stty -icanon -echo; echo go''es on\n");
    viewer.until("goes on\r\n");
    // The largest message.
    let count = format!("echo co''unts; head -c {} | wc -c\n", 64 << 10);
    viewer.type_in(&count);
    viewer.until("counts\r\n");
    viewer.send(&[&[0], &vec![b'x'; 64 << 10][..]].concat());
    viewer.until("65536\r\n");
}

#[test]
fn key_is_needed_and_pages_of_other_hosts_are_rejected() {
    let server = ServerFixture::new("root");
    let path = create(&server, &shell());
    for head in [
        "GET /terminals",
        "POST /terminals",
        &format!("DELETE {path}"),
    ] {
        assert_eq!(server.request(head, &[], b"").status, 403, "{head}");
    }
    let foreign = ("Origin", "http://evil");
    let own = ("Origin", "http://x");
    let with_key = format!("?session_api_key={KEY}");
    let wrong = "?session_api_key=wrong".to_owned();
    for connect in [
        format!("{path}/connect"),
        "/terminals/agent/connect".to_owned(),
    ] {
        let open = |query: &str, headers: &[(&str, &str)]| {
            let opened = Viewer::open(server.address, &format!("{connect}{query}"), headers);
            opened.err().unwrap_or(101)
        };
        assert_eq!(open("", &[]), 403);
        assert_eq!(open("", &[("X-Session-API-Key", "wrong")]), 403);
        assert_eq!(open("", &[SESSION_KEY, foreign]), 403);
        assert_eq!(open("", &[SESSION_KEY, own]), 101);
        assert_eq!(open(&wrong, &[]), 403);
        assert_eq!(open(&wrong, &[SESSION_KEY]), 101);
        assert_eq!(open(&with_key, &[]), 101);
        assert_eq!(open(&with_key, &[foreign]), 101);
        // Only for WebSockets.
        let head = format!("GET {connect}{with_key}");
        assert_eq!(server.request(&head, &[], b"").status, 403);
    }
    let upgrade = [("Connection", "Upgrade"), ("Upgrade", "websocket")];
    for head in [
        format!("GET {path}{with_key}"),
        format!("DELETE {path}{with_key}"),
        format!("POST {path}/connect{with_key}"),
    ] {
        assert_eq!(server.request(&head, &[], b"").status, 403, "{head}");
        assert_eq!(server.request(&head, &upgrade, b"").status, 403, "{head}");
    }
}

#[test]
fn empty_key_in_a_link_does_not_open_a_server_without_a_key_to_other_pages() {
    let directory = tempfile::tempdir().unwrap();
    let mut command = crate::client::serve_command(directory.path(), &[]);
    let server = crate::client::TestProcess::start(command.env("SESSION_API_KEY", ""));
    let path = create(&server, &shell());
    for query in ["", "?session_api_key="] {
        let connect = format!("{path}/connect{query}");
        let opened = Viewer::open(server.address, &connect, &[("Origin", "http://evil")]);
        assert_eq!(opened.err(), Some(403), "{query}");
        assert!(Viewer::open(server.address, &connect, &[]).is_ok());
    }
}
