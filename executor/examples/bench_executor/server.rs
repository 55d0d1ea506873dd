//! A server under measurement.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use tokio::time::Instant;

const ECHO: &str = r#"{"action":{"action":"run","args":{"command":"echo hi"},"timeout":10}}"#;
const PRINT: &str =
    r#"{"action":{"action":"run_ipython","args":{"code":"print(1)"},"timeout":60}}"#;

pub(crate) struct Server {
    pub(crate) child: Child,
    pub(crate) address: String,
}

impl Server {
    /// Starts a server and waits until it prints its address.
    pub(crate) fn listening(command: &mut Command) -> anyhow::Result<Self> {
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
        Ok(Self {
            child,
            address: address.to_owned(),
        })
    }

    /// Starts several servers one after the other; the last one keeps running.
    pub(crate) fn starts(
        rounds: usize,
        start: impl Fn() -> anyhow::Result<Self>,
    ) -> anyhow::Result<(Self, Vec<Duration>)> {
        let mut times = Vec::new();
        loop {
            let began = Instant::now();
            let server = start()?;
            times.push(began.elapsed());
            if times.len() == rounds {
                return Ok((server, times));
            }
            server.stop()?;
        }
    }

    /// Round trips of a command over one connection, and the number of responses without output.
    pub(crate) fn echoes(&self, rounds: usize) -> anyhow::Result<(Vec<Duration>, usize)> {
        self.round_trips(rounds, ECHO, r#""content":"hi""#)
    }

    /// Round trips of a cell.
    pub(crate) fn prints(&self, rounds: usize) -> anyhow::Result<(Vec<Duration>, usize)> {
        self.round_trips(rounds, PRINT, r#""content":"1\n[Jupyter"#)
    }

    fn round_trips(
        &self,
        rounds: usize,
        action: &str,
        output: &str,
    ) -> anyhow::Result<(Vec<Duration>, usize)> {
        let mut stream = TcpStream::connect(&self.address)?;
        stream.set_nodelay(true)?;
        let request = format!(
            "POST /execute_action HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{action}",
            action.len()
        );
        let (mut times, mut wrong) = (Vec::new(), 0);
        for _ in 0..rounds {
            let began = Instant::now();
            stream.write_all(request.as_bytes())?;
            let body = answer(&mut stream)?;
            times.push(began.elapsed());
            anyhow::ensure!(body.contains(r#""observation":"run"#), "{body}");
            wrong += usize::from(!body.contains(output));
        }
        Ok((times, wrong))
    }

    /// Resident memory after a short wait, in bytes.
    pub(crate) fn rss(&self) -> anyhow::Result<u64> {
        std::thread::sleep(Duration::from_millis(200));
        rss(self.child.id())
    }

    /// Resident memory of the kernel, the largest child process, in bytes.
    pub(crate) fn kernel_rss(&self) -> anyhow::Result<u64> {
        let pid = self.child.id();
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
        let sizes = children.split_whitespace().map(|pid| rss(pid.parse()?));
        let sizes: anyhow::Result<Vec<u64>> = sizes.collect();
        sizes?.into_iter().max().context("no kernel")
    }

    pub(crate) fn stop(mut self) -> anyhow::Result<()> {
        rustix::process::kill_process(
            rustix::process::Pid::from_child(&self.child),
            rustix::process::Signal::TERM,
        )?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Server {
    /// Ends the server after a failure.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn rss(pid: u32) -> anyhow::Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line
        .and_then(|rest| rest.split_whitespace().next())
        .context("no VmRSS")?;
    Ok(1024 * number.parse::<u64>()?)
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
