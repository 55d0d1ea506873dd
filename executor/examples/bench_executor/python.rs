//! The Python action execution server, measured in the same run, without plugins and browser and
//! with the shell of the current user.

use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Context as _;

use crate::server::Server;

/// A start takes many seconds.
pub(crate) const STARTS: usize = 3;
pub(crate) const ECHOES: usize = 100;
/// Short in comparison with a start.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// Published figures.
pub(crate) const PUBLISHED: &str =
    "published: start 14-30 s, 412-458 MB, echo p50 0.14-0.63 s (not measured in this run)";

pub(crate) fn start(python: &Path, directory: &Path) -> anyhow::Result<Server> {
    // The server does not print its address, so it gets a free port.
    let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let user = if rustix::process::geteuid().is_root() {
        "root".to_owned()
    } else {
        std::env::var("USER").context("no USER")?
    };
    let mut command = Command::new(python);
    command
        .args(["-u", "-m", "openhands.runtime.action_execution_server"])
        .arg(address.port().to_string())
        .arg("--working-dir")
        .arg(directory)
        .args(["--username", &user, "--no-enable-browser"])
        .env("USER", &user)
        .env("SU_TO_USER", "false")
        .env("HOME", directory)
        // Keeps the socket of its tmux server in the test directory.
        .env("TMUX_TMPDIR", directory)
        .env_remove("SESSION_API_KEY")
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut child = command.spawn()?;
    while TcpStream::connect(address).is_err() {
        anyhow::ensure!(child.try_wait()?.is_none(), "it has ended");
        std::thread::sleep(POLL_INTERVAL);
    }
    Ok(Server {
        child,
        address: address.to_string(),
    })
}
