//! The Python action execution server, measured in the same run: without plugins and browser,
//! which ours does not have either, and with the shell of whoever runs this.

use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Context as _;

use crate::server::Server;

/// It takes many seconds to start.
pub(crate) const STARTS: usize = 3;
pub(crate) const ECHOES: usize = 100;
/// Small against its start.
const PAUSE: Duration = Duration::from_millis(10);
/// What it was seen to need elsewhere.
pub(crate) const PUBLISHED: &str =
    "published: start 14-30 s, 412-458 MB, echo p50 0.14-0.63 s (not measured in this run)";

pub(crate) fn start(python: &Path, directory: &Path) -> anyhow::Result<Server> {
    // It prints no address, so it has to be given one; nobody else takes this one so soon.
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
        // Its terminal program ends with it, or at least is found here.
        .env("TMUX_TMPDIR", directory)
        .env_remove("SESSION_API_KEY")
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut child = command.spawn()?;
    while TcpStream::connect(address).is_err() {
        anyhow::ensure!(child.try_wait()?.is_none(), "it has ended");
        std::thread::sleep(PAUSE);
    }
    Ok(Server {
        child,
        address: address.to_string(),
    })
}
