//! The agent-server: started for its sandbox, and waiting in a warm Pod for the init message
//! (`docs/specs/supervisor.md`, section 10). Both until it answers health and API of its sandbox.

use std::collections::BTreeMap;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use crds::contract::control::{ControlMessage, Grant, Init, Probe, ReadyReport};
use crds::contract::identity::IdentityKey;
use crds::contract::prestart::{Handover, Prestart};
use crds::contract::sealing::SealedInit;
use crds::contract::token::Signer;
use tokio::time::Instant;

use crate::server::Server;

pub(crate) const STARTS: usize = 3;
const POLL_INTERVAL: Duration = Duration::from_millis(2);
/// Longest start of an agent-server.
const LIMIT: Duration = Duration::from_mins(2);
const POD: &str = "uid";
const KEY: &str = "session-key";
const HEALTH: &str = "GET /health";
/// Answers 503 until the server has been initialized.
const API: &str = "GET /api/conversations/count";

/// Times to the first answers.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    pub(crate) health: Vec<Duration>,
    pub(crate) api: Vec<Duration>,
}

impl Answers {
    /// Waits for both answers. The server may end with `server`.
    fn wait(&mut self, server: SocketAddr, begin: Instant) -> anyhow::Result<()> {
        wait_for(server, HEALTH, begin)?;
        self.health.push(begin.elapsed());
        wait_for(server, API, begin)?;
        self.api.push(begin.elapsed());
        Ok(())
    }
}

pub(crate) fn cold(program: &Path, directory: &Path) -> anyhow::Result<Answers> {
    let mut answers = Answers::default();
    for _ in 0..STARTS {
        let address = free_address()?;
        let command = command(program, address);
        let begin = Instant::now();
        let child = Command::new(&command[0])
            .args(&command[1..])
            .envs(environment(directory))
            .env("OH_SESSION_API_KEYS_0", KEY)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let server = Server {
            child,
            address: address.to_string(),
        };
        answers.wait(address, begin)?;
        server.stop()?;
    }
    Ok(answers)
}

pub(crate) fn warm(binary: &Path, program: &Path, directory: &Path) -> anyhow::Result<Answers> {
    let signer = Signer::from_seed(&[1; 32])?;
    let mut answers = Answers::default();
    for _ in 0..STARTS {
        let address = free_address()?;
        let probe = Probe {
            port: Some(address.port()),
            path: Some("/alive".into()),
        };
        let prestart = Prestart {
            handover: Handover::AgentServer,
            command: command(program, address),
            working_dir: "/".into(),
            environment: environment(directory),
            probe: probe.clone(),
        };
        let state = tempfile::tempdir()?;
        let server = Server::listening(
            Command::new(binary)
                .args(["supervise", "--control-port", "0", "--state-dir"])
                .arg(state.path())
                .env("SANDBOX_POD_UID", POD)
                .env("SANDBOX_POD_IP", "127.0.0.1")
                .env("SANDBOX_BIND_ADDRESS", "127.0.0.1")
                .env("SANDBOX_CONTROL_PUBLIC_KEY", signer.public_key())
                .env("SANDBOX_IDENTITY_KEY", IdentityKey::new([8; 32]).to_text())
                .env("SANDBOX_PRESTART", serde_json::to_string(&prestart)?),
        )?;
        let control = server.address.parse()?;
        wait_for(control, "GET /v1/warm", Instant::now())?;
        let mut environment = prestart.environment;
        environment.insert("OH_SESSION_API_KEYS_0".into(), KEY.into());
        let init = Init {
            sandbox_uid: Some("sandbox".into()),
            state: None,
            command: prestart.command,
            working_dir: prestart.working_dir,
            environment,
            probe,
        };
        let token = ControlMessage::new(POD, now()?, Grant::Ready).sign(&signer)?;
        let bearer = format!("Authorization: Bearer {token}\r\n");
        let (_, report) = exchange(control, "GET /v1/ready?timeout=0", &bearer, "")?;
        let report: ReadyReport = serde_json::from_str(&report)?;
        let key = report.sealing_key.context("no key")?;
        let sealed = Grant::SealedInit(SealedInit::seal(&init, &key, POD)?);
        let message = ControlMessage::new(POD, now()?, sealed).sign(&signer)?;
        let begin = Instant::now();
        let (status, text) = exchange(control, "POST /v1/init", "", &message)?;
        anyhow::ensure!(status < 300, "{status}: {text}");
        answers.wait(address, begin)?;
        server.stop()?;
    }
    Ok(answers)
}

/// Its output goes nowhere: the pipe to the benchmark is closed after the first line.
fn command(program: &Path, address: SocketAddr) -> Vec<String> {
    let (program, port) = (program.display(), address.port());
    let script = format!("exec '{program}' --port {port} >/dev/null 2>&1");
    ["sh", "-c", &script].map(Into::into).to_vec()
}

/// It writes below the directory only.
fn environment(directory: &Path) -> BTreeMap<String, String> {
    let below = |name: &str| directory.join(name).to_string_lossy().into_owned();
    BTreeMap::from([
        ("HOME".into(), below("home")),
        ("PATH".into(), std::env::var("PATH").unwrap_or_default()),
        ("OH_CONVERSATIONS_PATH".into(), below("conversations")),
        ("OH_BASH_EVENTS_DIR".into(), below("bash")),
        ("OH_ENABLE_VSCODE".into(), "false".into()),
    ])
}

fn free_address() -> io::Result<SocketAddr> {
    TcpListener::bind("127.0.0.1:0")?.local_addr()
}

fn now() -> anyhow::Result<i64> {
    let elapsed = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
    Ok(i64::try_from(elapsed.as_secs())?)
}

/// Repeats a request until it succeeds.
fn wait_for(address: SocketAddr, head: &str, begin: Instant) -> anyhow::Result<()> {
    let key = format!("X-Session-API-Key: {KEY}\r\n");
    while !exchange(address, head, &key, "").is_ok_and(|(status, _)| status < 300) {
        anyhow::ensure!(begin.elapsed() < LIMIT, "{head} never succeeds");
        std::thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}

/// Status and body of an answer.
fn exchange(
    address: SocketAddr,
    head: &str,
    headers: &str,
    body: &str,
) -> anyhow::Result<(u16, String)> {
    let mut stream = TcpStream::connect(address)?;
    let length = body.len();
    let request = format!(
        "{head} HTTP/1.1\r\nHost: {address}\r\n{headers}Content-Length: {length}\r\n\
         Connection: close\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").context("no answer")?;
    let status = head.split(' ').nth(1).context("no status")?;
    Ok((status.parse()?, body.to_owned()))
}
