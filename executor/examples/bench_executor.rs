//! Figures to hold against the budgets of the design: `cargo run --release -p executor --example
//! bench_executor [-- PATH-OF-BINARY]`. Without a path it measures the binary built beside it.
//! Beside each figure: the budget, and what the Python server needs.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use crds::contract::token::Signer;
use tokio::time::Instant;

const ROUNDS: usize = 300;
const STARTS: usize = 20;
const ECHO: &str = r#"{"action":{"action":"run","args":{"command":"echo hi"},"timeout":10}}"#;

fn main() -> anyhow::Result<()> {
    let binary = binary()?;
    let size = std::fs::metadata(&binary)
        .context("no binary; build it first")?
        .len();
    println!(
        "binary                       {:8.1} MiB   <= 15 MiB",
        mib(size)
    );
    let directory = tempfile::tempdir()?;
    let (serve, starts) = serve_starts(&binary, directory.path())?;
    report(
        "serve: exec to listening",
        &starts,
        "<= 20 ms; Python 14-30 s",
    );
    let idle = mib(rss(&serve.0)?);
    println!("serve: idle RSS              {idle:8.1} MiB   <= 10 MiB; Python 412-458 MB");
    let echoes = echoes(&serve.1)?;
    report(
        "serve: echo round trip",
        &echoes,
        "<= 3 ms; Python 140-630 ms",
    );
    let after = mib(rss(&serve.0)?);
    println!("serve: RSS after the echoes  {after:8.1} MiB");
    stop(serve.0)?;
    let (supervise, starts) = supervise_starts(&binary)?;
    report("supervise: exec to listening", &starts, "");
    let idle = mib(rss(&supervise)?);
    println!("supervise: idle RSS          {idle:8.1} MiB   <= 3 MiB");
    stop(supervise)?;
    report("reference: bash -c 'echo hi'", &spawns()?, "");
    Ok(())
}

fn binary() -> anyhow::Result<PathBuf> {
    if let Some(path) = std::env::args_os().nth(1) {
        return Ok(path.into());
    }
    let this = std::env::current_exe()?;
    let directory = this.parent().and_then(Path::parent);
    Ok(directory.context("no directory")?.join("sandbox-executor"))
}

/// Starts several servers, one after the other; the last one stays.
fn serve_starts(
    binary: &Path,
    directory: &Path,
) -> anyhow::Result<((Child, String), Vec<Duration>)> {
    repeat(|| {
        let mut command = Command::new(binary);
        command.args(["serve", "0", "--username", "root", "--working-dir"]);
        command.arg(directory);
        // Whoever runs this has start-up files that an image does not have.
        command
            .env("HOME", "/nonexistent")
            .env_remove("SESSION_API_KEY");
        listening(command.env("SANDBOX_BIND_ADDRESS", "127.0.0.1"))
    })
}

fn supervise_starts(binary: &Path) -> anyhow::Result<(Child, Vec<Duration>)> {
    let key = Signer::from_seed(&[1; 32])?.public_key();
    let ((child, _), starts) = repeat(|| {
        let mut command = Command::new(binary);
        command.args([
            "supervise",
            "--control-port",
            "0",
            "--state-dir",
            "/tmp/no-such-state",
        ]);
        command
            .env("SANDBOX_POD_UID", "uid")
            .env("SANDBOX_CONTROL_KEY", &key);
        listening(&mut command)
    })?;
    Ok((child, starts))
}

fn repeat(
    start: impl Fn() -> anyhow::Result<(Child, String)>,
) -> anyhow::Result<((Child, String), Vec<Duration>)> {
    let mut times = Vec::new();
    loop {
        let began = Instant::now();
        let started = start()?;
        times.push(began.elapsed());
        if times.len() == STARTS {
            return Ok((started, times));
        }
        stop(started.0)?;
    }
}

fn listening(command: &mut Command) -> anyhow::Result<(Child, String)> {
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let mut line = String::new();
    BufReader::new(child.stdout.take().context("no output")?).read_line(&mut line)?;
    let address = line
        .trim_end()
        .strip_prefix("listening on ")
        .context("no address")?;
    Ok((child, address.to_owned()))
}

fn echoes(address: &str) -> anyhow::Result<Vec<Duration>> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    let request = format!(
        "POST /execute_action HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{ECHO}",
        ECHO.len()
    );
    (0..ROUNDS)
        .map(|_| {
            let began = Instant::now();
            stream.write_all(request.as_bytes())?;
            let body = answer(&mut stream)?;
            anyhow::ensure!(body.contains(r#""content":"hi""#), "{body}");
            Ok(began.elapsed())
        })
        .collect()
}

fn answer(stream: &mut TcpStream) -> io::Result<String> {
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        if let Some(value) = line.strip_prefix("content-length: ") {
            length = value.trim().parse().unwrap_or(0);
        }
        if line.trim().is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    Ok(String::from_utf8_lossy(&body).into_owned())
}

fn spawns() -> anyhow::Result<Vec<Duration>> {
    (0..ROUNDS)
        .map(|_| {
            let began = Instant::now();
            Command::new("bash").args(["-c", "echo hi"]).output()?;
            Ok(began.elapsed())
        })
        .collect()
}

fn rss(child: &Child) -> anyhow::Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id()))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line
        .and_then(|rest| rest.split_whitespace().next())
        .context("no VmRSS")?;
    Ok(1024 * number.parse::<u64>()?)
}

fn stop(mut child: Child) -> anyhow::Result<()> {
    rustix::process::kill_process(
        rustix::process::Pid::from_child(&child),
        rustix::process::Signal::TERM,
    )?;
    child.wait()?;
    Ok(())
}

fn report(what: &str, times: &[Duration], held_against: &str) {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    let at = |percent: usize| sorted[(sorted.len() - 1) * percent / 100].as_secs_f64() * 1e3;
    let (half, most) = (at(50), at(99));
    println!("{what:28} p50 {half:6.2} ms   p99 {most:6.2} ms   {held_against}");
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
