//! The one thread that starts processes and enters network namespaces.
//!
//! `--die-with-parent` watches the *thread* that called `fork`, and a worker thread of the
//! runtime may end early; a namespace is entered per thread. So both belong to a thread that
//! lives exactly as long as the node.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Command, Output};
use std::thread;

use nix::sched::{CloneFlags, setns, unshare};
use tokio::process::Child;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};

type Job = Box<dyn FnOnce() + Send>;

/// Jobs that wait for the thread; more block their senders.
const QUEUE: usize = 64;

/// A handle on the thread. When the last one is gone the thread ends, and the kernel kills
/// every container.
#[derive(Debug, Clone)]
pub(crate) struct Launcher {
    jobs: mpsc::Sender<Job>,
}

impl Launcher {
    /// Starts the thread. Must be called inside the runtime that will wait for the processes.
    pub(crate) fn start() -> io::Result<Self> {
        let (jobs, mut queue) = mpsc::channel::<Job>(QUEUE);
        let runtime = Handle::current();
        thread::Builder::new()
            .name("node-launcher".into())
            .spawn(move || {
                let _entered = runtime.enter();
                while let Some(job) = queue.blocking_recv() {
                    job();
                }
            })?;
        Ok(Self { jobs })
    }

    /// Runs `job` on the thread.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let (answer, result) = oneshot::channel();
        let job = Box::new(move || drop(answer.send(job())));
        self.jobs.send(job).await.map_err(|_| gone())?;
        result.await.map_err(|_| gone())?
    }

    /// Runs a short command to its end, with `input`, and checks that it succeeded.
    pub(crate) async fn command(&self, command: Command, input: String) -> io::Result<Output> {
        self.run(move || run_to_end(command, &input)).await
    }
}

fn gone() -> io::Error {
    io::Error::other("the launcher thread has ended")
}

/// A new network namespace. It lives as long as the descriptor or a process inside.
pub(crate) fn new_network_namespace() -> io::Result<OwnedFd> {
    let home = current_namespace()?;
    unshare(CloneFlags::CLONE_NEWNET)?;
    let made = current_namespace();
    setns(&home, CloneFlags::CLONE_NEWNET)?;
    Ok(made?.into())
}

/// Runs `job` inside `namespace`.
pub(crate) fn inside<T>(
    namespace: Option<&OwnedFd>,
    job: impl FnOnce() -> io::Result<T>,
) -> io::Result<T> {
    let Some(namespace) = namespace else {
        return job();
    };
    let home = current_namespace()?;
    setns(namespace.as_fd(), CloneFlags::CLONE_NEWNET)?;
    let result = job();
    setns(&home, CloneFlags::CLONE_NEWNET)?;
    result
}

fn current_namespace() -> io::Result<File> {
    File::open("/proc/thread-self/ns/net")
}

/// Starts a process that the runtime waits for.
pub(crate) fn spawn(command: Command, namespace: Option<&OwnedFd>) -> io::Result<Child> {
    inside(namespace, || tokio::process::Command::from(command).spawn())
}

/// Runs a short command to its end on this thread.
pub(crate) fn run_to_end(mut command: Command, input: &str) -> io::Result<Output> {
    use std::io::Write as _;
    use std::process::Stdio;

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
        let launcher = Launcher::start().unwrap();
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
