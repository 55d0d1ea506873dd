//! Supervisor: init message, environment, signals, orphans, readiness.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::time::{SystemTime, UNIX_EPOCH};

use crds::contract::control::{ControlMessage, Grant, Init, Probe};
use crds::contract::identity::IdentityKey;
use crds::contract::sealing::SealedInit;
use crds::contract::token::Signer;
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::client::{BINARY, HttpResponse, TestProcess, is_root, receive, set_mode};
use crate::free_port::free_port;

const POD: &str = "pod-uid";
const POD_IP: &str = "10.0.0.1";
static IDENTITY: LazyLock<IdentityKey> = LazyLock::new(|| IdentityKey::new([8; 32]));

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
        .env("SANDBOX_POD_IP", POD_IP)
        .env("SANDBOX_CONTROL_PUBLIC_KEY", signer().public_key())
        .env("SANDBOX_IDENTITY_KEY", IDENTITY.to_text())
        .env("SANDBOX_BIND_ADDRESS", "127.0.0.1");
    command
}

fn supervise(state: &Path) -> TestProcess {
    TestProcess::start(&mut supervise_command(BINARY, state))
}

/// A supervisor with a state directory of its own.
fn supervised() -> (TempDir, TestProcess) {
    let directory = tempfile::tempdir().unwrap();
    let process = supervise(directory.path());
    (directory, process)
}

/// A message for this Pod.
pub(crate) fn message(grant: Grant) -> ControlMessage {
    ControlMessage::new(POD, now(), grant)
}

pub(crate) fn init(command: &[&str]) -> Init {
    Init {
        sandbox_uid: Some("sandbox".into()),
        state: None,
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

/// Sends a message to `/v1/init`, signed by the controller.
fn send(process: &TestProcess, message: &ControlMessage) -> HttpResponse {
    send_signed(process, message, &signer())
}

fn send_signed(process: &TestProcess, message: &ControlMessage, signer: &Signer) -> HttpResponse {
    let token = message.sign(signer).unwrap();
    process.request("POST /v1/init", &[], token.as_bytes())
}

/// Sends an init message as the controller does, encrypted.
pub(crate) fn start(process: &TestProcess, init: &Init) -> HttpResponse {
    let report = ready(process.address, 0).json();
    let key = report["sealingKey"].as_str().unwrap_or_default();
    let sealed = SealedInit::seal(init, key, POD).unwrap();
    send(process, &message(Grant::SealedInit(sealed)))
}

pub(crate) fn ready(address: SocketAddr, timeout: u64) -> HttpResponse {
    receive(ask_ready(address, timeout))
}

fn ask_ready(address: SocketAddr, timeout: u64) -> TcpStream {
    let head = format!("GET /v1/ready?timeout={timeout}");
    let bearer = format!("Bearer {}", ready_token());
    crate::client::send(address, &head, &[("Authorization", &bearer)], b"")
}

fn ready_token() -> String {
    let message = message(Grant::Ready);
    message.sign(&signer()).unwrap()
}

pub(crate) fn state(answer: &HttpResponse) -> String {
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.json()["state"].as_str().unwrap().to_owned()
}

#[test]
fn calls_not_valid_for_this_pod_are_rejected() {
    let directory = tempfile::tempdir().unwrap();
    let mut command = supervise_command(BINARY, directory.path());
    let mut process = TestProcess::start(command.stderr(Stdio::piped()));
    let grant = || Grant::Init(Box::new(shell("exit 9")));
    let mine = message(grant());
    let stranger = Signer::from_seed(&[6; 32]).unwrap();
    let refused = |answer: HttpResponse, status: u16| {
        assert_eq!(answer.status, status, "{}", answer.body);
        assert!(answer.json()["detail"].is_string());
    };
    refused(send_signed(&process, &mine, &stranger), 401);
    for body in [&b"nonsense"[..], &vec![b'a'; 3 << 20]] {
        refused(process.request("POST /v1/init", &[], body), 401);
    }
    for message in [
        ControlMessage::new("other", now(), grant()),
        ControlMessage::new(POD, now() - 1000, grant()),
        message(Grant::Ready),
    ] {
        refused(send(&process, &message), 403);
    }
    refused(process.get("/v1/ready"), 401);
    let init_token = mine.sign(&signer()).unwrap();
    let bearer = format!("Bearer {init_token}");
    let bearer = [("Authorization", bearer.as_str())];
    refused(process.request("GET /v1/ready", &bearer, b""), 403);
    assert_eq!(state(&ready(process.address, 0)), "dormant");
    assert!(!directory.path().join("init").exists());
    process.signal(Signal::TERM);
    let mut log = String::new();
    let mut errors = process.child.stderr.take().unwrap();
    errors.read_to_string(&mut log).unwrap();
    let last = log.lines().last().unwrap();
    assert!(last.contains("control call rejected count=8 "), "{log}");
}

#[test]
fn first_init_wins_and_may_be_repeated() {
    let (_directory, mut process) = supervised();
    let key = ready(process.address, 0).json()["sealingKey"].clone();
    let seal = |script| {
        let sealed = SealedInit::seal(&shell(script), key.as_str().unwrap(), POD).unwrap();
        message(Grant::SealedInit(sealed))
    };
    let first = seal("echo started; exec sleep 1000");
    assert_eq!(state(&send(&process, &first)), "starting");
    assert_eq!(process.line(), "started");
    assert_eq!(send(&process, &first).status, 200);
    let conflict = send(&process, &seal("exit 1"));
    assert_eq!(conflict.status, 409);
    let report = ready(process.address, 60);
    assert_eq!(state(&report), "ready");
    assert!(report.json()["sealingKey"].is_null());
    let owner = shell("echo started; exec sleep 1000").owner();
    let owner = serde_json::to_value(owner).unwrap();
    assert_eq!(owner["sandboxUid"], "sandbox");
    assert_eq!(
        [&report.json()["owner"], &conflict.json()["owner"]],
        [&owner; 2]
    );
}

#[test]
fn only_init_messages_for_the_present_key_are_accepted() {
    let (_directory, process) = supervised();
    let key = || ready(process.address, 0).json()["sealingKey"].clone();
    let used = key();
    let sealed = SealedInit::seal(&shell("exit 9"), used.as_str().unwrap(), "other").unwrap();
    let plain = Grant::Init(Box::new(shell("exit 9")));
    for grant in [plain, Grant::SealedInit(sealed)] {
        let message = message(grant);
        assert_eq!(send(&process, &message).status, 403);
    }
    assert_ne!(key(), used);
    start(&process, &shell("exit 3"));
    assert_eq!(process.wait().code(), Some(3));
}

#[test]
fn responses_prove_the_identity_of_the_pod() {
    let (_directory, process) = supervised();
    let ip = POD_IP.parse().unwrap();
    let long = "n".repeat(200);
    assert_eq!(process.get("/v1/identity").status, 400);
    let nonce = [("x-sandbox-nonce", long.as_str())];
    assert_eq!(process.request("GET /v1/identity", &nonce, b"").status, 400);
    let answer = process.request("GET /v1/identity", &[("x-sandbox-nonce", "once")], b"");
    let proof = answer.header("x-sandbox-proof").unwrap();
    assert!(IDENTITY.verify(proof, ip, "once", b""));
    let token = ready_token();
    let bearer = format!("Bearer {token}");
    let report = process.request("GET /v1/ready", &[("Authorization", &bearer)], b"");
    let proof = report.header("x-sandbox-proof").unwrap();
    assert!(IDENTITY.verify(proof, ip, &token, report.body.as_bytes()));
}

/// Processes of the command have the user of PID 1.
#[test]
fn secrets_are_hidden_from_processes_of_the_same_user() {
    if !is_root("secrets_are_hidden_from_processes_of_the_same_user") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    set_mode(&directory, 0o777);
    let state = directory.path().join("state");
    // The folder of build results may be closed to other users.
    let program = directory.path().join("sandbox-executor");
    std::fs::copy(BINARY, &program).unwrap();
    let mut command = supervise_command(program.to_str().unwrap(), &state);
    let mut process = TestProcess::start(command.uid(65534).gid(65534));
    let script = "cat /proc/$PPID/environ >/dev/null 2>&1 && echo readable || echo hidden";
    assert_eq!(start(&process, &shell(script)).status, 200);
    assert_eq!(process.line(), "hidden");
    // A token would be text.
    let stored = std::fs::read(state.join("init")).unwrap();
    assert!(String::from_utf8(stored).is_err());
}

#[test]
fn command_gets_only_the_given_environment() {
    let (directory, mut process) = supervised();
    let work = directory.path().join("made/for/it");
    let mut init = init(&["env"]);
    init.working_dir = work.display().to_string();
    let given = [("GIVEN", "a b\"'"), ("SESSION_API_KEY", "key")];
    init.environment = given
        .map(|(name, value)| (name.into(), value.into()))
        .into();
    assert_eq!(start(&process, &init).status, 200);
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
fn restarted_container_resumes_without_a_call() {
    let (directory, process) = supervised();
    start(&process, &shell("exit 3"));
    assert_eq!(process.wait().code(), Some(3));
    assert_eq!(supervise(directory.path()).wait().code(), Some(3));
}

#[test]
fn damaged_init_token_leaves_pod_dormant() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("init"), "rubbish").unwrap();
    let process = supervise(directory.path());
    assert_eq!(state(&ready(process.address, 0)), "dormant");
    start(&process, &shell("exit 4"));
    assert_eq!(process.wait().code(), Some(4));
}

#[test]
fn exit_status_is_that_of_a_shell() {
    for (words, code) in [
        (&["no-such-program"][..], 127),
        (&["/etc/passwd"][..], 126),
        (&["sh", "-c", "kill -9 $$"][..], 137),
    ] {
        let (_directory, process) = supervised();
        start(&process, &init(words));
        assert_eq!(process.wait().code(), Some(code), "{words:?}");
    }
}

#[test]
fn signals_are_forwarded_to_the_command() {
    let (_directory, mut process) = supervised();
    let script = "trap 'exit 42' USR1; echo up; while :; do sleep 0.01; done";
    start(&process, &shell(script));
    assert_eq!(process.line(), "up");
    process.signal(Signal::USR1);
    assert_eq!(process.wait().code(), Some(42));
}

#[test]
fn dormant_supervisor_ends_on_sigterm() {
    let (_directory, process) = supervised();
    process.signal(Signal::TERM);
    assert_eq!(process.wait().code(), Some(0));
}

#[test]
fn orphans_are_reaped_and_leftovers_killed() {
    let (_directory, mut process) = supervised();
    // A process that was not reaped keeps its entry in /proc.
    let script = "sleep 1000 & echo $!
        orphan=$(sh -c 'sh -c \"exec sleep 0.01\" >&2 & echo $!')
        while [ -e /proc/$orphan ]; do sleep 0.01; done
        exit 7";
    start(&process, &shell(script));
    let left_over = process.line();
    assert_eq!(process.wait().code(), Some(7));
    assert!(!Path::new("/proc").join(left_over).exists());
}

#[test]
fn reports_ready_when_probe_passes() {
    let (directory, process) = supervised();
    let port = free_port();
    let work = directory.path().display().to_string();
    let command = format!("{BINARY} serve {port} --username root --working-dir {work}");
    let mut init = init(&command.split(' ').collect::<Vec<_>>());
    let path = Some("/alive".to_owned());
    init.probe = Probe {
        port: Some(port),
        path,
    };
    start(&process, &init);
    assert_eq!(state(&ready(process.address, 60)), "ready");
    let alive = crate::client::request(([127, 0, 0, 1], port).into(), "GET /alive", &[], b"");
    assert_eq!(alive.status, 200);
    process.signal(Signal::TERM);
    assert_eq!(process.wait().code(), Some(0));
}

#[test]
fn command_without_port_is_ready_after_minimum_run() {
    let (_directory, process) = supervised();
    start(&process, &shell("echo boom >&2; sleep 1; exit 3"));
    assert_eq!(state(&ready(process.address, 60)), "exited");
    let (_directory, process) = supervised();
    start(&process, &shell("sleep infinity"));
    assert_eq!(state(&ready(process.address, 0)), "starting");
    assert_eq!(state(&ready(process.address, 60)), "ready");
    process.signal(Signal::TERM);
    process.wait();
}

#[test]
fn long_poll_is_answered_when_command_exits() {
    let (_directory, process) = supervised();
    let poll = ask_ready(process.address, 60);
    // A later connection: when it is answered, the call above is waiting.
    assert_eq!(process.get("/v1/ready").status, 401);
    let mut init = shell("exit 5");
    init.probe.port = Some(1);
    start(&process, &init);
    let report: Value = receive(poll).json();
    assert_eq!(report["state"], "exited");
    assert_eq!(report["detail"], "exit status 5");
    assert_eq!(process.wait().code(), Some(5));
}

#[test]
fn secrets_are_not_logged() {
    let directory = tempfile::tempdir().unwrap();
    let mut command = supervise_command(BINARY, directory.path());
    let mut process = TestProcess::start(command.stderr(Stdio::piped()));
    let mut init = init(&["no-such-program"]);
    init.environment = [("PASSWORD".into(), "hunter2".into())].into();
    start(&process, &init);
    let mut log = String::new();
    let mut errors = process.child.stderr.take().unwrap();
    errors.read_to_string(&mut log).unwrap();
    assert!(log.contains("no-such-program"), "{log}");
    for secret in ["hunter2", "PASSWORD"] {
        assert!(!log.contains(secret), "{log}");
    }
}
