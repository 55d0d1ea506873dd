//! A server under measurement: started, listening, asked, stopped.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use tokio::time::Instant;

const ECHO: &str = r#"{"action":{"action":"run","args":{"command":"echo hi"},"timeout":10}}"#;

pub(crate) struct Server {
    pub(crate) child: Child,
    pub(crate) address: String,
}

impl Server {
    /// Waits for the line that says where it listens.
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

    /// Starts several, one after the other; the last one stays.
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

    /// Round trips of a command over one connection, and how many answers lacked its output.
    pub(crate) fn echoes(&self, rounds: usize) -> anyhow::Result<(Vec<Duration>, usize)> {
        let mut stream = TcpStream::connect(&self.address)?;
        stream.set_nodelay(true)?;
        let request = format!(
            "POST /execute_action HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{ECHO}",
            ECHO.len()
        );
        let (mut times, mut wrong) = (Vec::new(), 0);
        for _ in 0..rounds {
            let began = Instant::now();
            stream.write_all(request.as_bytes())?;
            let body = answer(&mut stream)?;
            times.push(began.elapsed());
            anyhow::ensure!(body.contains(r#""observation":"run""#), "{body}");
            wrong += usize::from(!body.contains(r#""content":"hi""#));
        }
        Ok((times, wrong))
    }

    /// Resident memory once it has settled, in bytes.
    pub(crate) fn rss(&self) -> anyhow::Result<u64> {
        std::thread::sleep(Duration::from_millis(200));
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let number = line
            .and_then(|rest| rest.split_whitespace().next())
            .context("no VmRSS")?;
        Ok(1024 * number.parse::<u64>()?)
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
    /// After a failure; one that was stopped is gone.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
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
