//! Programs that run before the init message (`docs/specs/supervisor.md`, section 10).

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::mpsc;
use std::thread;

use crds::contract::control::{Init, Probe};
use crds::contract::prestart::{Handover, Prestart};
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::client::{BINARY, TestProcess, read_head, wait_until};
use crate::supervise::{init, ready, start, state, supervise_command};

/// Program that prints its pid and waits.
const PROGRAM: [&str; 3] = ["sh", "-c", "echo $$; exec sleep 1000"];

fn prestarted(handover: Handover, command: &[&str], port: Option<u16>) -> (TempDir, TestProcess) {
    let prestart = Prestart {
        handover,
        command: command.iter().map(|word| (*word).to_owned()).collect(),
        working_dir: "/".into(),
        environment: BTreeMap::from([("SHARED".into(), "1".into())]),
        probe: Probe { port, path: None },
    };
    let directory = tempfile::tempdir().unwrap();
    let prestart = serde_json::to_string(&prestart).unwrap();
    let mut command = supervise_command(BINARY, directory.path());
    command.env("SANDBOX_PRESTART", prestart);
    (directory, TestProcess::start(&mut command))
}

fn sandbox(command: &[&str], variables: &[(&str, &str)]) -> Init {
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    Init {
        environment: variables.iter().map(owned).collect(),
        ..init(command)
    }
}

fn wait_until_warm(process: &TestProcess) {
    wait_until(|| process.request("GET /v1/warm", &[], b"").status == 204);
}

fn is_alive(pid: &str) -> bool {
    Path::new("/proc").join(pid).exists()
}

#[test]
fn prestarted_program_becomes_the_command() {
    let (_directory, mut process) = prestarted(Handover::Command, &PROGRAM, None);
    assert_eq!(process.request("GET /v1/warm", &[], b"").status, 503);
    let pid = process.line();
    wait_until_warm(&process);
    assert_eq!(state(&ready(process.address, 0)), "dormant");
    start(
        &process,
        &sandbox(&PROGRAM, &[("SHARED", "1"), ("RUNTIME_ID", "r")]),
    );
    let report = ready(process.address, 60);
    assert_eq!(state(&report), "ready");
    assert_eq!(report.json()["prestarted"], true);
    assert!(is_alive(&pid));
    process.signal(Signal::TERM);
    assert_eq!(process.wait().code(), Some(143));
}

#[test]
fn other_command_replaces_the_prestarted_program() {
    let (_directory, mut process) = prestarted(Handover::Command, &PROGRAM, None);
    let pid = process.line();
    start(
        &process,
        &sandbox(
            &["sh", "-c", "echo mine; exec sleep 1000"],
            &[("SHARED", "1")],
        ),
    );
    assert_eq!(process.line(), "mine");
    assert_eq!(ready(process.address, 0).json()["prestarted"], false);
    assert!(!is_alive(&pid));
    process.signal(Signal::TERM);
    process.wait();
}

#[test]
fn end_of_the_prestarted_program_ends_the_container() {
    let (_directory, process) = prestarted(Handover::Command, &["sh", "-c", "exit 3"], None);
    assert_eq!(process.wait().code(), Some(3));
    let (_directory, mut process) = prestarted(Handover::Command, &PROGRAM, None);
    let pid = process.line();
    process.signal(Signal::TERM);
    assert_eq!(process.wait().code(), Some(0));
    assert!(!is_alive(&pid));
}

/// A server that answers every request with this status, and sends each body on.
fn server(status: &'static str) -> (u16, mpsc::Receiver<(String, Value)>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let (bodies, received) = mpsc::channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            if let Some(request) = answer(&stream.unwrap(), status) {
                let _ = bodies.send(request);
            }
        }
    });
    (port, received)
}

/// Head and body of a request; `None` for a connection without one.
fn answer(mut stream: &TcpStream, status: &str) -> Option<(String, Value)> {
    let mut reader = BufReader::new(stream);
    if reader.fill_buf().unwrap().is_empty() {
        return None;
    }
    let head = read_head(&mut reader);
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length?.parse().unwrap()];
    reader.read_exact(&mut body).unwrap();
    let response = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    stream.write_all(response.as_bytes()).unwrap();
    Some((head, serde_json::from_slice(&body).unwrap()))
}

#[test]
fn agent_server_is_initialized_at_the_claim() {
    let variables = [
        ("SHARED", "1"),
        ("OH_SESSION_API_KEYS_0", "key"),
        ("MINE", "2"),
    ];
    let script = "echo $$ $OH_DEFERRED_INIT $OH_SECRET_KEY; exec sleep 1000";
    let program = ["sh", "-c", script];
    for (status, is_kept) in [("200 OK", true), ("400 Bad Request", false)] {
        let (port, requests) = server(status);
        let (_directory, mut process) = prestarted(Handover::AgentServer, &program, Some(port));
        let line = process.line();
        let [pid, deferred, secret] = line.split(' ').collect::<Vec<_>>().try_into().unwrap();
        assert_eq!(deferred, "true");
        wait_until_warm(&process);
        let claim = Init {
            probe: Probe {
                port: Some(port),
                path: None,
            },
            ..sandbox(&program, &variables)
        };
        start(&process, &claim);
        assert_eq!(state(&ready(process.address, 60)), "ready");
        let (head, body) = requests.recv().unwrap();
        assert!(head.starts_with("POST /api/init HTTP/1.1\r\n"), "{head}");
        assert!(
            head.contains(&format!("x-init-api-key: {secret}\r\n")),
            "{head}"
        );
        assert_eq!(body["session_api_keys"], serde_json::json!(["key"]));
        assert_eq!(body["env"]["MINE"], "2");
        assert!(body["env"]["SHARED"].is_null());
        assert_eq!(is_alive(pid), is_kept, "{status}");
        process.signal(Signal::TERM);
        process.wait();
    }
}
