//! Threads that start processes and enter namespaces.
//!
//! Namespaces are entered per thread, and `--die-with-parent` watches the *thread* that forked,
//! while worker threads of the runtime may end early. As root the thread for containers moreover
//! forks into a process namespace of its own: when the first process in there ends, which it does
//! when the node's end of a pipe closes, the kernel kills all others, whatever user they are.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Command, Output, Stdio};
use std::thread;

use nix::sched::{CloneFlags, setns, unshare};
use tokio::process::Child;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};

type Job = Box<dyn FnOnce(&Home) + Send>;

/// Jobs that wait for the thread; more block their senders.
const QUEUE: usize = 64;

/// A handle on the thread. When the last one is gone the thread ends, and the kernel kills
/// every container it started.
#[derive(Debug, Clone)]
pub(crate) struct Launcher {
    jobs: mpsc::Sender<Job>,
}

/// The network namespace that a thread comes from.
#[derive(Debug)]
pub(crate) struct Home(File);

impl Launcher {
    /// A thread for short commands. To be called inside the runtime, as is the next.
    pub(crate) async fn for_commands() -> io::Result<Self> {
        Self::start(|| Ok(None)).await
    }

    /// A thread for containers, which end with it.
    pub(crate) async fn for_containers() -> io::Result<Self> {
        let is_root = rustix::process::geteuid().is_root();
        Self::start(move || is_root.then(anchor).transpose()).await
    }

    async fn start(
        prepare: impl FnOnce() -> io::Result<Option<Child>> + Send + 'static,
    ) -> io::Result<Self> {
        let (jobs, mut queue) = mpsc::channel::<Job>(QUEUE);
        let (ready, started) = oneshot::channel();
        let runtime = Handle::current();
        let serve = move || {
            let _entered = runtime.enter();
            let prepared = current_namespace()
                .map(Home)
                .and_then(|home| Ok((home, prepare()?)));
            let (home, anchor) = match prepared {
                Ok(prepared) => prepared,
                Err(error) => return drop(ready.send(Err(error))),
            };
            let _ = ready.send(Ok(()));
            while let Some(job) = queue.blocking_recv() {
                job(&home);
            }
            // Closes its input.
            drop(anchor);
        };
        thread::Builder::new()
            .name("node-launcher".into())
            .spawn(serve)?;
        started.await.map_err(|_| gone())??;
        Ok(Self { jobs })
    }

    /// Runs `job` on the thread.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce(&Home) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let (answer, result) = oneshot::channel();
        let job = Box::new(move |home: &Home| drop(answer.send(job(home))));
        self.jobs.send(job).await.map_err(|_| gone())?;
        result.await.map_err(|_| gone())?
    }

    /// Runs a short command to its end, with `input`, and checks that it succeeded.
    pub(crate) async fn command(&self, command: Command, input: String) -> io::Result<Output> {
        self.run(move |_| run_to_end(command, &input)).await
    }
}

fn gone() -> io::Error {
    io::Error::other("the launcher thread has ended")
}

/// The first process of a new process namespace, into which this thread forks from now on. It
/// waits for its input to close. Bubblewrap needs a `/proc` that fits, hence the mount namespace.
fn anchor() -> io::Result<Child> {
    const WAIT: &str = "mount --make-rslave / && mount -t proc proc /proc && echo && exec cat";
    unshare(CloneFlags::CLONE_NEWPID | CloneFlags::CLONE_NEWNS)?;
    let (mut ready, output) = io::pipe()?;
    let mut command = tokio::process::Command::new("sh");
    command
        .args(["-c", WAIT])
        .stdin(Stdio::piped())
        .stdout(output);
    let anchor = command.spawn()?;
    drop(command);
    let mut line = [0];
    ready
        .read_exact(&mut line)
        .map_err(|_| io::Error::other("no process namespace can be made"))?;
    Ok(anchor)
}

/// A new network namespace. It lives as long as the descriptor or a process inside.
pub(crate) fn new_network_namespace(home: &Home) -> io::Result<OwnedFd> {
    unshare(CloneFlags::CLONE_NEWNET)?;
    let made = current_namespace();
    setns(&home.0, CloneFlags::CLONE_NEWNET)?;
    Ok(made?.into())
}

/// Runs `job` inside `namespace`.
pub(crate) fn inside<T>(
    namespace: Option<&OwnedFd>,
    home: &Home,
    job: impl FnOnce() -> io::Result<T>,
) -> io::Result<T> {
    let Some(namespace) = namespace else {
        return job();
    };
    setns(namespace.as_fd(), CloneFlags::CLONE_NEWNET)?;
    let result = job();
    setns(&home.0, CloneFlags::CLONE_NEWNET)?;
    result
}

fn current_namespace() -> io::Result<File> {
    File::open("/proc/thread-self/ns/net")
}

/// Runs a short command to its end on this thread.
pub(crate) fn run_to_end(mut command: Command, input: &str) -> io::Result<Output> {
    let name = command.get_program().to_string_lossy().into_owned();
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command
        .spawn()
        .map_err(|error| named(&name, &error.to_string()))?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(input.as_bytes())?;
    }
    let output = child.wait_with_output()?;
    if output.status.success() {
        return Ok(output);
    }
    Err(named(&name, String::from_utf8_lossy(&output.stderr).trim()))
}

fn named(program: &str, message: &str) -> io::Error {
    io::Error::other(format!("{program}: {message}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn commands_run_and_fail_by_name() {
        let launcher = Launcher::for_commands().await.unwrap();
        let output = launcher
            .command(Command::new("cat"), "hello".into())
            .await
            .unwrap();
        assert_eq!(output.stdout, b"hello");
        let error = launcher
            .command(Command::new("false"), String::new())
            .await
            .unwrap_err();
        assert!(error.to_string().starts_with("false:"), "{error}");
    }
}
