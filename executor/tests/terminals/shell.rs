//! Programs on a terminal.

use serde_json::{Value, json};

use super::viewer::{Received, Viewer, create, info, open, shell};
use crate::client::{set_mode, wait_until};
use crate::fixture::{ServerFixture, all_users};

#[test]
fn default_is_a_shell_of_the_user_in_the_working_directory() {
    for server in all_users() {
        let uid = server.uid();
        let (path, mut viewer) = open(&server, &json!({}));
        assert_eq!(viewer.status(), json!({"offset": 0}));
        let size = json!({"size": {"Width": 80, "Height": 24}});
        assert_eq!(viewer.status(), size);
        viewer.type_in("echo \"$(id -u) $PWD [${SESSION_API_KEY-none}] $TERM\"; tty | tr -d 0-9\n");
        let expected = format!("{uid} {} [none] xterm-256color", server.root.display());
        let text = viewer.until("/dev/pts/").text();
        assert!(text.contains(&expected), "{text}");
        let described = info(&server, &path);
        assert_eq!(described["state"], "running");
        assert_eq!(
            (&described["viewers"], &described["tty"]),
            (&json!(1), &json!(true))
        );
        assert!(
            described["command"][0].as_str().unwrap().ends_with("sh"),
            "{described}"
        );
        viewer.type_in("exit 7\n");
        let session = viewer.rest();
        assert_eq!(session.exit(), &json!({"code": 7}));
        assert_eq!(session.closed, Some((1000, String::new())));
    }
}

#[test]
fn command_has_its_directory_and_environment() {
    let server = ServerFixture::new("root");
    server.put("d/file", b"");
    let body = json!({
        "command": ["sh", "-c", "echo $PWD $A; stty size"], "columns": 132, "rows": 50,
        "working_directory": "d", "environment": {"A": "b c"},
    });
    let (_, mut viewer) = open(&server, &body);
    let text = viewer.rest().text();
    let expected = format!("{} b c\r\n50 132\r\n", server.path("d").display());
    assert_eq!(text, expected);
}

#[test]
fn size_changes_for_the_program_and_other_viewers() {
    let server = ServerFixture::new("root");
    let (path, mut viewer) = open(&server, &shell());
    let mut other = Viewer::new(&server, &format!("{path}/connect"));
    viewer.type_in("trap 'stty size' WINCH; echo re''ady\n");
    viewer.until("ready");
    other.until("ready");
    viewer.resize(120, 40);
    viewer.type_in("\n");
    let session = viewer.until("40 120");
    assert!(session.statuses.is_empty(), "{:?}", session.statuses);
    let session = other.until("40 120");
    let size = json!({"size": {"Width": 120, "Height": 40}});
    assert_eq!(session.statuses, std::slice::from_ref(&size));
    let described = info(&server, &path);
    assert_eq!(
        (&described["columns"], &described["rows"]),
        (&json!(120), &json!(40))
    );
    let mut late = Viewer::new(&server, &format!("{path}/connect"));
    assert_eq!((late.status(), late.status()), (json!({"offset": 0}), size));
}

#[test]
fn control_characters_reach_the_foreground_program() {
    let server = ServerFixture::new("root");
    let (_, mut viewer) = open(&server, &shell());
    viewer.type_in("trap : INT; sh -c 'echo begun; exec sleep 1000'; echo st''atus $?\n");
    // The program says it, which is in the foreground then.
    viewer.until("\nbegun\r\n");
    viewer.type_in("\x03");
    viewer.until("status 130");
    viewer.type_in("\x04");
    assert!(viewer.rest().exit()["code"].is_i64());
}

#[test]
fn end_is_a_code_or_a_signal() {
    let server = ServerFixture::new("root");
    for (script, exit) in [
        ("exit 0", json!({"code": 0})),
        ("exit 255", json!({"code": 255})),
        ("kill -KILL $$", json!({"signal": "KILL"})),
        ("kill -TERM $$", json!({"signal": "TERM"})),
    ] {
        for tty in [true, false] {
            let body = json!({"command": ["sh", "-c", script], "tty": tty});
            let (path, mut viewer) = open(&server, &body);
            let session = viewer.rest();
            assert_eq!(session.exit(), &exit, "{script}");
            // It is kept for viewers that come back.
            let described = info(&server, &path);
            assert_eq!(described["state"], "exited");
            assert_eq!(described["exit_code"], exit["code"]);
            assert_eq!(described["signal"], exit["signal"]);
            let mut again = Viewer::new(&server, &format!("{path}/connect"));
            assert_eq!(again.rest().exit(), &exit);
        }
    }
}

#[test]
fn viewer_that_comes_back_continues_at_its_offset() {
    let server = ServerFixture::new("root");
    let (path, mut viewer) = open(&server, &shell());
    viewer.type_in("stty -echo; echo fir''st\n");
    let first = viewer.until("first\r\n").output;
    viewer.type_in("echo second\n");
    let seen = first.len() + viewer.until("second\r\n").output.len();
    drop(viewer);
    wait_until(|| info(&server, &path)["viewers"] == 0);
    let mut back = Viewer::new(&server, &format!("{path}/connect?after={seen}"));
    assert_eq!(back.status(), json!({"offset": seen}));
    back.status();
    back.type_in("echo third\n");
    assert_eq!(back.until("third\r\n").text(), "third\r\n");
    // Without an offset, the scrollback comes first; one that is too large is the end.
    let mut new = Viewer::new(&server, &format!("{path}/connect"));
    let all = new.until("third\r\n");
    assert!(all.output.starts_with(&first), "{}", all.text());
    let mut late = Viewer::new(&server, &format!("{path}/connect?after=1000000"));
    assert_eq!(late.status(), json!({"offset": seen + "third\r\n".len()}));
}

#[test]
fn all_viewers_see_the_same_and_read_only_ones_cannot_type() {
    let server = ServerFixture::new("root");
    let (path, mut viewer) = open(&server, &shell());
    let mut reader = Viewer::new(&server, &format!("{path}/connect?read_only=true"));
    viewer.type_in("stty -echo; echo be''gun\n");
    let seen = viewer.until("begun\r\n").text();
    assert_eq!(reader.until("begun\r\n").text(), seen);
    // Its size has no effect.
    reader.resize(10, 10);
    viewer.type_in("stty size\n");
    assert_eq!(reader.until("24 80\r\n").text(), "24 80\r\n");
    reader.type_in("echo typed\n");
    let closed = reader.rest().closed;
    assert_eq!(closed, Some((1008, "the viewer is read-only".to_owned())));
    viewer.type_in("echo la''st\n");
    assert!(!viewer.until("last\r\n").text().contains("typed"));
}

#[test]
fn output_without_end_is_skipped_for_slow_viewers_in_bounded_memory() {
    let server = ServerFixture::new("root");
    let (path, mut slow) = open(&server, &shell());
    slow.type_in("stty -echo; echo be''gun\n");
    slow.until("begun\r\n");
    let mut fast = Viewer::new(&server, &format!("{path}/connect"));
    let before = server.peak();
    slow.type_in("yes 0123456789abcdef\n");
    // More than sockets hold, which the slow one does not read.
    let mut bytes = 0;
    while bytes < 32 << 20 {
        if let Received::Output(piece) = fast.receive() {
            bytes += piece.len();
        }
    }
    slow.type_in("\x03");
    slow.type_in("echo st''opped\n");
    fast.until("stopped\r\n");
    let session = slow.until("stopped\r\n");
    let skipped: u64 = session
        .statuses
        .iter()
        .filter_map(|s| s["skipped"].as_u64())
        .sum();
    assert!(skipped > 1 << 20, "{skipped}");
    let grown = server.peak() - before;
    assert!(grown < 8 << 10, "{grown} KiB");
}

#[test]
fn deletion_hangs_up_and_kills_what_is_left() {
    for server in all_users() {
        let script = "trap 'echo hung up' HUP; (trap '' HUP; sleep 1000) & echo $!; \
            while :; do sleep 0.01; done";
        for tty in [true, false] {
            let body = json!({"command": ["sh", "-c", script], "tty": tty});
            let (path, mut viewer) = open(&server, &body);
            let begun = viewer.until("\n");
            let child: i32 = begun.text().trim().parse().unwrap();
            assert_eq!(server.keyed(&format!("DELETE {path}"), "").status, 204);
            let session = viewer.rest();
            assert!(session.text().contains("hung up"), "{session:?}");
            assert_eq!(session.exit(), &json!({"signal": "KILL"}));
            let process = format!("/proc/{child}");
            wait_until(|| !std::path::Path::new(&process).exists());
            assert_eq!(server.keyed(&format!("GET {path}"), "").status, 404);
            assert_eq!(server.keyed(&format!("DELETE {path}"), "").status, 404);
        }
        let list = server.keyed("GET /terminals", "").json();
        assert_eq!(list, json!({"terminals": []}));
    }
}

#[test]
fn programs_in_the_background_outlive_their_terminal() {
    let server = ServerFixture::new("root");
    let script = "trap '' HUP; (while [ ! -e stop ]; do sleep 0.01; done; : > over) & echo last";
    let body = json!({"command": ["sh", "-c", script]});
    let (_, mut viewer) = open(&server, &body);
    let session = viewer.rest();
    assert_eq!(
        (session.text().as_str(), session.exit()),
        ("last\r\n", &json!({"code": 0}))
    );
    server.put("stop", b"");
    wait_until(|| server.path("over").exists());
}

#[test]
fn only_input_and_seen_output_are_activity() {
    let server = ServerFixture::new("root");
    let times = || {
        let info = server.get("/server_info").json();
        let [uptime, idle] = ["uptime", "idle_time"].map(|name| info[name].as_f64().unwrap());
        (uptime, idle)
    };
    let idle = || times().1;
    let (_, mut viewer) = open(&server, &shell());
    viewer.type_in("stty -echo; echo be''gun; read x; echo e''nd\n");
    viewer.until("begun\r\n");
    // An open connection is none.
    wait_until(|| idle() > 0.2);
    let (before, _) = times();
    viewer.type_in("\n");
    viewer.until("end\r\n");
    let (uptime, idle_time) = times();
    assert!(uptime - idle_time >= before);
    // A program on pipes is activity while it has a viewer.
    let (path, silent) = open(
        &server,
        &json!({"command": ["sleep", "1000"], "tty": false}),
    );
    wait_until(|| idle() == 0.0);
    drop(silent);
    wait_until(|| idle() > 0.2);
    assert_eq!(info(&server, &path)["state"], Value::from("running"));
}

#[test]
fn save_and_new_key_end_connections_and_programs_go_on() {
    let server = ServerFixture::new("root");
    let (path, mut viewer) = open(&server, &shell());
    viewer.type_in("mine=41; stty -echo; echo be''gun\n");
    viewer.until("begun\r\n");
    assert_eq!(server.keyed("POST /prepare_save", "").status, 204);
    let (code, _) = viewer.rest().closed.unwrap();
    assert_eq!(code, 1012);
    let mut viewer = Viewer::new(&server, &format!("{path}/connect"));
    viewer.until("begun\r\n");
    let renewed = server.keyed("POST /renew", r#"{"session_api_key": "next"}"#);
    assert_eq!(renewed.status, 204);
    assert_eq!(viewer.rest().closed.unwrap().0, 1012);
    let connect = format!("{path}/connect");
    let former = Viewer::open(server.address, &connect, &[crate::client::SESSION_KEY]);
    assert_eq!(former.err(), Some(403));
    let key = [("X-Session-API-Key", "next")];
    let mut viewer = Viewer::open(server.address, &connect, &key).unwrap();
    viewer.type_in("echo $((mine + 1))\n");
    viewer.until("42\r\n");
}

#[test]
fn server_that_ends_ends_terminals() {
    let directory = tempfile::tempdir().unwrap();
    set_mode(&directory, 0o755);
    let server = crate::client::serve(directory.path());
    let path = create(
        &server,
        &json!({"command": ["sh", "-c", "echo $$; exec sleep 1000"]}),
    );
    let mut viewer = Viewer::new(&server, &format!("{path}/connect"));
    let pid = viewer.until("\n").text();
    server.signal(rustix::process::Signal::TERM);
    assert_eq!(viewer.rest().exit(), &json!({"signal": "HUP"}));
    assert_eq!(server.wait().code(), Some(0));
    assert!(!std::path::Path::new(&format!("/proc/{}", pid.trim())).exists());
}
