//! Benchmark of the executor: `cargo run --release -p executor --example bench_executor --
//! [--python PYTHON] [--kernel PYTHON] [--skills PYTHON] [--agent PYTHON] [PATH-OF-BINARY]`, with the
//! binary built beside it as the default. `--python` has the Python server, `--kernel` has ipykernel,
//! `--skills` has the libraries of an OpenHands image, `--agent` has the agent-server. The last column
//! is the budget.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Context as _;
use crds::contract::identity::IdentityKey;
use crds::contract::token::Signer;
use tokio::time::Instant;

use self::server::Server;

mod agent_server;
mod python;
mod server;

const ECHOES: usize = 300;
const STARTS: usize = 20;
/// Starts of a kernel; each takes about a second.
const KERNELS: usize = 5;
const PRINTS: usize = 300;
/// Path of the Python environment in an OpenHands image.
const IMAGE_ENVIRONMENT: &str = "/openhands/poetry/openhands-ai-5O4_aCHf-py3.12";

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::read()?;
    let binary = &arguments.binary;
    let size = std::fs::metadata(binary)
        .context("no binary; build it first")?
        .len();
    println!("{:28} {:8.1} MiB   <= 15 MiB", "binary", mib(size));
    let directory = tempfile::tempdir()?;
    serve(binary, directory.path())?;
    if let Some(python) = &arguments.kernel {
        kernel(binary, python, directory.path())?;
    }
    if let Some(python) = &arguments.skills {
        let starts = first_cells(&image_command(binary, python, directory.path())?)?.1;
        times("OpenHands skills: first cell", &starts, "<= 1000 ms");
    }
    if let Some(python) = &arguments.agent {
        agent_server(binary, python, directory.path())?;
    }
    supervise(binary)?;
    times("reference: bash -c 'echo hi'", &spawns()?, "");
    let Some(python) = &arguments.python else {
        println!("Python server, {}", python::PUBLISHED);
        return Ok(());
    };
    original(python, directory.path())
}

struct Arguments {
    binary: PathBuf,
    python: Option<PathBuf>,
    /// A Python with ipykernel.
    kernel: Option<PathBuf>,
    /// Has ipykernel and openhands-aci.
    skills: Option<PathBuf>,
    /// Has openhands-agent-server.
    agent: Option<PathBuf>,
}

impl Arguments {
    fn read() -> anyhow::Result<Self> {
        let mut words = std::env::args_os().skip(1);
        let (mut binary, mut python, mut kernel) = (None, None, None);
        let (mut skills, mut agent) = (None, None);
        while let Some(word) = words.next() {
            let target = match word.to_str() {
                Some("--python") => &mut python,
                Some("--kernel") => &mut kernel,
                Some("--skills") => &mut skills,
                Some("--agent") => &mut agent,
                _ => {
                    binary = Some(word.into());
                    continue;
                }
            };
            *target = Some(words.next().context("a flag needs a path")?.into());
        }
        let this = std::env::current_exe()?;
        let directory = this.parent().and_then(Path::parent);
        let built = directory.context("no directory")?.join("sandbox-executor");
        Ok(Self {
            binary: binary.unwrap_or(built),
            python,
            kernel,
            skills,
            agent,
        })
    }
}

fn serve(binary: &Path, directory: &Path) -> anyhow::Result<()> {
    let (server, starts) = Server::starts(STARTS, || {
        let mut command = Command::new(binary);
        command.args(["serve", "0", "--username", "root", "--working-dir"]);
        command.arg(directory);
        // Start-up files of the user must not be measured.
        command
            .env("HOME", "/nonexistent")
            .env_remove("SESSION_API_KEY");
        Server::listening(command.env("SANDBOX_BIND_ADDRESS", "127.0.0.1"))
    })?;
    times("serve: exec to listening", &starts, "<= 20 ms");
    memory("serve: idle RSS", &server, "<= 10 MiB")?;
    let (echoes, wrong) = server.echoes(ECHOES)?;
    anyhow::ensure!(wrong == 0, "{wrong} wrong answers");
    times("serve: echo round trip", &echoes, "<= 3 ms");
    memory("serve: RSS after the echoes", &server, "")?;
    server.stop()
}

type Start<'a> = Box<dyn Fn() -> anyhow::Result<Server> + 'a>;

/// Starts a server with kernel and skills.
fn start_with_plugins(command: &mut Command, directory: &Path) -> anyhow::Result<Server> {
    command.args(["serve", "0", "--username", "root", "--working-dir"]);
    command
        .arg(directory)
        .args(["--plugins", "agent_skills", "jupyter"]);
    command.env("HOME", directory).env_remove("SESSION_API_KEY");
    Server::listening(command.env("SANDBOX_BIND_ADDRESS", "127.0.0.1"))
}

/// Starts such servers with this Python first in the search path.
fn plugins_command<'a>(
    binary: &'a Path,
    python: &Path,
    directory: &'a Path,
) -> anyhow::Result<Start<'a>> {
    let found = python.parent().context("no directory")?.display();
    let path = format!("{found}:{}", std::env::var("PATH")?);
    Ok(Box::new(move || {
        start_with_plugins(Command::new(binary).env("PATH", &path), directory)
    }))
}

/// The same in a root file system that has the Python where an OpenHands image has it.
fn image_command<'a>(
    binary: &'a Path,
    python: &Path,
    directory: &'a Path,
) -> anyhow::Result<Start<'a>> {
    let environment = python.parent().and_then(Path::parent);
    let environment = environment.context("no directory")?.to_owned();
    // The server ends with bubblewrap, which the benchmark ends.
    let mut mounts: Vec<OsString> = ["--unshare-pid", "--die-with-parent", "--tmpfs", "/"]
        .map(OsString::from)
        .into();
    for entry in std::fs::read_dir("/")? {
        let entry = entry?;
        match std::fs::read_link(entry.path()) {
            Ok(target) => mounts.extend(["--symlink".into(), target.into()]),
            Err(_) => mounts.extend(["--dev-bind".into(), entry.path().into()]),
        }
        mounts.push(entry.path().into());
    }
    mounts.extend(["--proc", "/proc", "--ro-bind"].map(OsString::from));
    mounts.extend([environment.into(), IMAGE_ENVIRONMENT.into()]);
    Ok(Box::new(move || {
        let mut command = Command::new("bwrap");
        start_with_plugins(command.args(&mounts).arg("--").arg(binary), directory)
    }))
}

/// Times from the start of the server to the result of the first cell.
fn first_cells(start: &Start<'_>) -> anyhow::Result<(Server, Vec<Duration>)> {
    Server::starts(KERNELS, || {
        let server = start()?;
        server.prints(1)?;
        Ok(server)
    })
}

fn kernel(binary: &Path, python: &Path, directory: &Path) -> anyhow::Result<()> {
    let start = plugins_command(binary, python, directory)?;
    let (server, starts) = Server::starts(STARTS, &start)?;
    times("plugins: exec to listening", &starts, "<= 20 ms");
    server.stop()?;
    let (server, starts) = first_cells(&start)?;
    times("plugins: exec to first cell", &starts, "");
    let (prints, wrong) = server.prints(PRINTS)?;
    anyhow::ensure!(wrong == 0, "{wrong} wrong answers");
    times("plugins: print(1) round trip", &prints, "");
    memory("plugins: RSS of the server", &server, "<= 10 MiB")?;
    println!(
        "{:28} {:8.1} MiB",
        "plugins: RSS of the kernel",
        mib(server.kernel_rss()?)
    );
    server.stop()
}

fn agent_server(binary: &Path, python: &Path, directory: &Path) -> anyhow::Result<()> {
    let program = python.with_file_name("agent-server");
    let cold = agent_server::cold(&program, directory)?;
    times("agent-server: exec to /health", &cold.health, "");
    times("agent-server: exec to API", &cold.api, "");
    let warm = agent_server::warm(binary, &program, directory)?;
    times("warm: claim to /health", &warm.health, "<= 100 ms");
    times("warm: claim to API", &warm.api, "");
    Ok(())
}

fn supervise(binary: &Path) -> anyhow::Result<()> {
    let identity = IdentityKey::new([8; 32]).to_text();
    let key = Signer::from_seed(&[1; 32])?.public_key();
    let (server, starts) = Server::starts(STARTS, || {
        let mut command = Command::new(binary);
        command.args(["supervise", "--control-port", "0"]);
        command.args(["--state-dir", "/tmp/no-such-state"]);
        command
            .env("SANDBOX_POD_UID", "uid")
            .env("SANDBOX_CONTROL_PUBLIC_KEY", &key)
            .env("SANDBOX_POD_IP", "127.0.0.1")
            .env("SANDBOX_IDENTITY_KEY", &identity);
        Server::listening(&mut command)
    })?;
    times("supervise: exec to listening", &starts, "");
    memory("supervise: idle RSS", &server, "<= 3 MiB")?;
    server.stop()
}

fn original(python: &Path, directory: &Path) -> anyhow::Result<()> {
    let (server, starts) = Server::starts(python::STARTS, || python::start(python, directory))?;
    times("Python: exec to listening", &starts, "same run");
    memory("Python: idle RSS", &server, "same run")?;
    let (echoes, wrong) = server.echoes(python::ECHOES)?;
    let note = format!("same run; {wrong} of {} without the output", echoes.len());
    times("Python: echo round trip", &echoes, &note);
    memory("Python: RSS after the echoes", &server, "same run")?;
    server.stop()
}

fn spawns() -> anyhow::Result<Vec<Duration>> {
    (0..ECHOES)
        .map(|_| {
            let began = Instant::now();
            Command::new("bash").args(["-c", "echo hi"]).output()?;
            Ok(began.elapsed())
        })
        .collect()
}

fn times(label: &str, times: &[Duration], held_against: &str) {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    let at =
        |percent: usize| sorted[((sorted.len() - 1) * percent).div_ceil(100)].as_secs_f64() * 1e3;
    let (half, most) = (at(50), at(99));
    println!("{label:28} p50 {half:9.2} ms   p99 {most:9.2} ms   {held_against}");
}

fn memory(label: &str, server: &Server, held_against: &str) -> anyhow::Result<()> {
    println!("{label:28} {:8.1} MiB   {held_against}", mib(server.rss()?));
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
