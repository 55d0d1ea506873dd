//! The supervisor: initialisation, environment, signals, orphans, readiness.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use crds::contract::control::{Claim, Grant, Init, Probe};
use crds::contract::token::Signer;
use rustix::process::Signal;
use serde_json::Value;

use crate::client::{Answer, BINARY, Process, free_port, receive};

const POD: &str = "pod-uid";

pub(crate) fn signer() -> Signer {
    Signer::from_seed(&[5; 32]).unwrap()
}

fn now() -> i64 {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    i64::try_from(elapsed.as_secs()).unwrap()
}

pub(crate) fn supervise_command(program: &str, state: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .args(["supervise", "--control-port", "0", "--state-dir"])
        .arg(state)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("SANDBOX_POD_UID", POD)
        .env("SANDBOX_POD_IP", "10.0.0.1")
        .env("SANDBOX_CONTROL_KEY", signer().public_key())
        .env("SANDBOX_BIND_ADDRESS", "127.0.0.1");
    command
}

fn supervise(state: &Path) -> Process {
    Process::start(&mut supervise_command(BINARY, state))
}

pub(crate) fn init(command: &[&str]) -> Init {
    Init {
        command: command.iter().map(|word| (*word).to_owned()).collect(),
        working_dir: "/".to_owned(),
        environment: BTreeMap::new(),
        probe: Probe {
            port: None,
            path: None,
        },
    }
}

fn shell(script: &str) -> Init {
    init(&["sh", "-c", script])
}

fn send(process: &Process, claim: &Claim, signer: &Signer) -> Answer {
    let token = claim.sign(signer).unwrap();
    process.request("POST /v1/init", &[], token.as_bytes())
}

pub(crate) fn start(process: &Process, init: Init) -> Answer {
    let claim = Claim::new(POD, now(), Grant::Init(Box::new(init)));
    send(process, &claim, &signer())
}

fn ready(address: SocketAddr, timeout: u64) -> Answer {
    receive(ask_ready(address, timeout))
}

fn ask_ready(address: SocketAddr, timeout: u64) -> TcpStream {
    let token = Claim::new(POD, now(), Grant::Ready)
        .sign(&signer())
        .unwrap();
    let head = format!("GET /v1/ready?timeout={timeout}");
    let bearer = format!("Bearer {token}");
    crate::client::send(address, &head, &[("Authorization", &bearer)], b"")
}

fn state(answer: &Answer) -> String {
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.json()["state"].as_str().unwrap().to_owned()
}

#[test]
fn only_a_valid_call_for_this_pod_is_obeyed() {
    let directory = tempfile::tempdir().unwrap();
    let process = supervise(directory.path());
    let grant = || Grant::Init(Box::new(shell("exit 9")));
    let mine = Claim::new(POD, now(), grant());
    let stranger = Signer::from_seed(&[6; 32]).unwrap();
    let refused = |answer: Answer, status: u16| {
        assert_eq!(answer.status, status, "{}", answer.body);
        assert!(answer.json()["detail"].is_string());
    };
    refused(send(&process, &mine, &stranger), 401);
    refused(process.request("POST /v1/init", &[], b"nonsense"), 401);
    refused(
        process.request("POST /v1/init", &[], &vec![b'a'; 3 << 20]),
        401,
    );
    refused(
        send(&process, &Claim::new("other", now(), grant()), &signer()),
        403,
    );
    refused(
        send(&process, &Claim::new(POD, now() - 1000, grant()), &signer()),
        403,
    );
    refused(
        send(&process, &Claim::new(POD, now(), Grant::Ready), &signer()),
        403,
    );
    refused(process.get("/v1/ready"), 401);
    let init_token = mine.sign(&signer()).unwrap();
    let bearer = format!("Bearer {init_token}");
    refused(
        process.request("GET /v1/ready", &[("Authorization", &bearer)], b""),
        403,
    );
    assert_eq!(state(&ready(process.address, 0)), "dormant");
    assert!(!directory.path().join("init").exists());
}

#[test]
fn the_first_call_wins_and_may_be_repeated() {
    let directory = tempfile::tempdir().unwrap();
    let mut process = supervise(directory.path());
    let script = "echo started; exec sleep 1000";
    assert_eq!(state(&start(&process, shell(script))), "starting");
    assert_eq!(process.line(), "started");
    let again = start(&process, shell(script));
    assert_eq!(again.status, 200, "{}", again.body);
    assert_eq!(start(&process, shell("exit 1")).status, 409);
    assert_eq!(state(&ready(process.address, 60)), "ready");
}

#[test]
fn the_environment_is_what_was_asked_for_and_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    let mut process = supervise(directory.path());
    let work = directory.path().join("made/for/it");
    let mut init = init(&["env"]);
    init.working_dir = work.display().to_string();
    init.environment = BTreeMap::from([
        ("GIVEN".to_owned(), "a b\"'".to_owned()),
        ("SESSION_API_KEY".to_owned(), "key".to_owned()),
    ]);
    assert_eq!(start(&process, init).status, 200);
    let mut output = String::new();
    process.output.read_to_string(&mut output).unwrap();
    let mut lines: Vec<_> = output.lines().collect();
    lines.sort_unstable();
    let expected = [
        "GIVEN=a b\"'",
        "PATH=/usr/bin:/bin",
        "SANDBOX_BIND_ADDRESS=127.0.0.1",
        "SESSION_API_KEY=key",
    ];
    assert_eq!(lines, expected);
    assert!(work.is_dir());
    assert_eq!(process.wait().code(), Some(0));
}

#[test]
fn a_restarted_container_resumes_by_itself() {
    let directory = tempfile::tempdir().unwrap();
    let process = supervise(directory.path());
    start(&process, shell("exit 3"));
    assert_eq!(process.wait().code(), Some(3));
    let again = supervise(directory.path());
    assert_eq!(again.wait().code(), Some(3));
}

#[test]
fn a_damaged_memory_leaves_the_pod_dormant() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("init"), "rubbish").unwrap();
    let process = supervise(directory.path());
    assert_eq!(state(&ready(process.address, 0)), "dormant");
    start(&process, shell("exit 4"));
    assert_eq!(process.wait().code(), Some(4));
}

#[test]
fn exit_statuses_are_those_of_a_shell() {
    for (words, code) in [
        (&["no-such-program"][..], 127),
        (&["/etc/passwd"][..], 126),
        (&["sh", "-c", "kill -9 $$"][..], 137),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let process = supervise(directory.path());
        start(&process, init(words));
        assert_eq!(process.wait().code(), Some(code), "{words:?}");
    }
}

#[test]
fn signals_reach_the_command() {
    let directory = tempfile::tempdir().unwrap();
    let mut process = supervise(directory.path());
    let script = "trap 'exit 42' USR1; echo up; while :; do sleep 0.01; done";
    start(&process, shell(script));
    assert_eq!(process.line(), "up");
    process.signal(Signal::USR1);
    assert_eq!(process.wait().code(), Some(42));
}

#[test]
fn a_dormant_pod_ends_when_told_to() {
    let directory = tempfile::tempdir().unwrap();
    let process = supervise(directory.path());
    process.signal(Signal::TERM);
    assert_eq!(process.wait().code(), Some(0));
}

#[test]
fn orphans_are_reaped_and_leftovers_killed() {
    let directory = tempfile::tempdir().unwrap();
    let mut process = supervise(directory.path());
    // A process that has ended but was not waited for keeps its entry in /proc.
    let script = "sleep 1000 & echo $!
        orphan=$(sh -c 'sh -c \"exec sleep 0.01\" >&2 & echo $!')
        while [ -e /proc/$orphan ]; do sleep 0.01; done
        exit 7";
    start(&process, shell(script));
    let left_over = process.line();
    assert_eq!(process.wait().code(), Some(7));
    assert!(!Path::new("/proc").join(left_over).exists());
}

#[test]
fn readiness_is_answered_when_the_server_can_serve() {
    let directory = tempfile::tempdir().unwrap();
    let process = supervise(directory.path());
    let port = free_port();
    let text = port.to_string();
    let work = directory.path().display().to_string();
    let mut init = init(&[
        BINARY,
        "serve",
        &text,
        "--username",
        "root",
        "--working-dir",
        &work,
    ]);
    init.probe = Probe {
        port: Some(port),
        path: Some("/alive".to_owned()),
    };
    start(&process, init);
    assert_eq!(state(&ready(process.address, 60)), "ready");
    let alive = crate::client::request(([127, 0, 0, 1], port).into(), "GET /alive", &[], b"");
    assert_eq!(alive.status, 200);
    process.signal(Signal::TERM);
    assert_eq!(process.wait().code(), Some(0));
}

#[test]
fn a_waiting_call_learns_of_the_end() {
    let directory = tempfile::tempdir().unwrap();
    let process = supervise(directory.path());
    let poll = ask_ready(process.address, 60);
    // On a later connection: the call above waits by the time this is answered.
    assert_eq!(process.get("/v1/ready").status, 401);
    let mut init = shell("exit 5");
    init.probe.port = Some(1);
    start(&process, init);
    let report: Value = receive(poll).json();
    assert_eq!(report["state"], "exited");
    assert_eq!(report["detail"], "exit status 5");
    assert_eq!(process.wait().code(), Some(5));
}

#[test]
fn secrets_are_not_logged() {
    let directory = tempfile::tempdir().unwrap();
    let mut command = supervise_command(BINARY, directory.path());
    let mut process = Process::start(command.stderr(Stdio::piped()));
    let mut init = init(&["no-such-program"]);
    init.environment = BTreeMap::from([("PASSWORD".to_owned(), "hunter2".to_owned())]);
    start(&process, init);
    let mut log = String::new();
    let mut errors = process.child.stderr.take().unwrap();
    errors.read_to_string(&mut log).unwrap();
    assert!(log.contains("no-such-program"), "{log}");
    assert!(
        !log.contains("hunter2") && !log.contains("PASSWORD"),
        "{log}"
    );
}
