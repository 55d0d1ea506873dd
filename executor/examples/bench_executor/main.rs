//! Figures to hold against the budgets of the design: `cargo run --release -p executor --example
//! bench_executor -- [--python PYTHON] [--kernel PYTHON] [PATH-OF-BINARY]`. Without a path it measures
//! the binary built beside it; with a Python that has the original server, that one as well; with
//! one that has ipykernel, cells. Beside each figure: the budget.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Context as _;
use crds::contract::token::Signer;
use tokio::time::Instant;

use self::server::Server;

mod python;
mod server;

const ECHOES: usize = 300;
const STARTS: usize = 20;
/// Starts of a kernel, which takes a second.
const KERNELS: usize = 5;
const PRINTS: usize = 300;

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
    /// Has ipykernel.
    kernel: Option<PathBuf>,
}

impl Arguments {
    fn read() -> anyhow::Result<Self> {
        let mut words = std::env::args_os().skip(1);
        let (mut binary, mut python, mut kernel) = (None, None, None);
        while let Some(word) = words.next() {
            if word == "--python" {
                python = Some(words.next().context("--python needs a path")?.into());
            } else if word == "--kernel" {
                kernel = Some(words.next().context("--kernel needs a path")?.into());
            } else {
                binary = Some(word.into());
            }
        }
        let this = std::env::current_exe()?;
        let directory = this.parent().and_then(Path::parent);
        let built = directory.context("no directory")?.join("sandbox-executor");
        Ok(Self {
            binary: binary.unwrap_or(built),
            python,
            kernel,
        })
    }
}

fn serve(binary: &Path, directory: &Path) -> anyhow::Result<()> {
    let (server, starts) = Server::starts(STARTS, || {
        let mut command = Command::new(binary);
        command.args(["serve", "0", "--username", "root", "--working-dir"]);
        command.arg(directory);
        // Whoever runs this has start-up files that an image does not have.
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

/// With kernel and skills, from the start of the server to the first answer of a cell and after.
fn kernel(binary: &Path, python: &Path, directory: &Path) -> anyhow::Result<()> {
    let found = python.parent().context("no directory")?.display();
    let path = format!("{found}:{}", std::env::var("PATH")?);
    let start = || {
        let mut command = Command::new(binary);
        command.args(["serve", "0", "--username", "root", "--working-dir"]);
        command
            .arg(directory)
            .args(["--plugins", "agent_skills", "jupyter"]);
        command.env("HOME", directory).env("PATH", &path);
        command.env_remove("SESSION_API_KEY");
        Server::listening(command.env("SANDBOX_BIND_ADDRESS", "127.0.0.1"))
    };
    let (server, starts) = Server::starts(STARTS, start)?;
    times("plugins: exec to listening", &starts, "<= 20 ms");
    server.stop()?;
    let (server, starts) = Server::starts(KERNELS, || {
        let server = start()?;
        server.prints(1)?;
        Ok(server)
    })?;
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

fn supervise(binary: &Path) -> anyhow::Result<()> {
    let key = Signer::from_seed(&[1; 32])?.public_key();
    let (server, starts) = Server::starts(STARTS, || {
        let mut command = Command::new(binary);
        command.args(["supervise", "--control-port", "0"]);
        command.args(["--state-dir", "/tmp/no-such-state"]);
        command
            .env("SANDBOX_POD_UID", "uid")
            .env("SANDBOX_CONTROL_KEY", &key);
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

fn times(what: &str, times: &[Duration], held_against: &str) {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    let at =
        |percent: usize| sorted[((sorted.len() - 1) * percent).div_ceil(100)].as_secs_f64() * 1e3;
    let (half, most) = (at(50), at(99));
    println!("{what:28} p50 {half:9.2} ms   p99 {most:9.2} ms   {held_against}");
}

fn memory(what: &str, server: &Server, held_against: &str) -> anyhow::Result<()> {
    println!("{what:28} {:8.1} MiB   {held_against}", mib(server.rss()?));
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
