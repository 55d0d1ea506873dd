//! Threads that start processes and enter namespaces.
//!
//! Namespaces are entered per thread, and `--die-with-parent` watches the *thread* that forked,
//! while worker threads of the runtime may end. As root, the thread for containers forks into a
//! separate PID namespace. When its first process ends, because the node's end of a pipe was
//! closed, the kernel kills all others.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Command, Output, Stdio};
use std::thread;

use nix::sched::{CloneFlags, setns, unshare};
use tokio::process::Child;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};

type Job = Box<dyn FnOnce(&HostNamespace) + Send>;

/// Queued jobs; further senders block.
const QUEUE: usize = 64;

/// Handle of the thread. With the last handle the thread ends, and the kernel kills its containers.
#[derive(Debug, Clone)]
pub(crate) struct Launcher {
    jobs: mpsc::Sender<Job>,
}

#[derive(Debug)]
pub(crate) struct HostNamespace(File);

impl Launcher {
    /// Starts a thread for short commands. Must be called inside the runtime.
    pub(crate) async fn for_commands() -> io::Result<Self> {
        Self::start(|| Ok(None)).await
    }

    /// Starts a thread for containers, which end with it.
    pub(crate) async fn for_containers() -> io::Result<Self> {
        let is_root = rustix::process::geteuid().is_root();
        Self::start(move || is_root.then(spawn_pid_namespace_init).transpose()).await
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
                .map(HostNamespace)
                .and_then(|host| Ok((host, prepare()?)));
            let (host, init) = match prepared {
                Ok(prepared) => prepared,
                Err(error) => return drop(ready.send(Err(error))),
            };
            let _ = ready.send(Ok(()));
            while let Some(job) = queue.blocking_recv() {
                job(&host);
            }
            // Closes its standard input.
            drop(init);
        };
        thread::Builder::new()
            .name("node-launcher".into())
            .spawn(serve)?;
        started.await.map_err(|_| thread_ended())??;
        Ok(Self { jobs })
    }

    pub(crate) async fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce(&HostNamespace) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let (answer, result) = oneshot::channel();
        let job = Box::new(move |host: &HostNamespace| drop(answer.send(job(host))));
        self.jobs.send(job).await.map_err(|_| thread_ended())?;
        result.await.map_err(|_| thread_ended())?
    }

    /// Runs a short command to its end, with `input`, and checks that it succeeded.
    pub(crate) async fn command(&self, command: Command, input: String) -> io::Result<Output> {
        self.run(move |_| run_to_end(command, &input)).await
    }
}

fn thread_ended() -> io::Error {
    io::Error::other("the launcher thread has ended")
}

/// Starts the first process of a new PID namespace, into which this thread forks from now on. It
/// waits for its input to close. Bubblewrap needs a matching `/proc`, hence the mount namespace.
/// Because the process ignores `SIGCHLD`, the kernel reaps orphans: a container ends only when all
/// of its processes are reaped, also those whose parent has joined it from outside.
fn spawn_pid_namespace_init() -> io::Result<Child> {
    const INIT_SCRIPT: &str = "mount --make-rslave / && mount -t proc proc /proc && echo && \
        exec env --ignore-signal=CHLD cat";
    unshare(CloneFlags::CLONE_NEWPID | CloneFlags::CLONE_NEWNS)?;
    let (mut ready, output) = io::pipe()?;
    let mut command = tokio::process::Command::new("sh");
    command
        .args(["-c", INIT_SCRIPT])
        .stdin(Stdio::piped())
        .stdout(output);
    let init = command.spawn()?;
    drop(command);
    let mut line = [0];
    let started = ready.read_exact(&mut line);
    started.map_err(|_| io::Error::other("no process namespace can be made"))?;
    Ok(init)
}

/// Creates a network namespace. It lives as long as the descriptor or a process inside.
pub(crate) fn new_network_namespace(host: &HostNamespace) -> io::Result<OwnedFd> {
    unshare(CloneFlags::CLONE_NEWNET)?;
    let made = current_namespace();
    setns(&host.0, CloneFlags::CLONE_NEWNET)?;
    Ok(made?.into())
}

pub(crate) fn inside<T>(
    namespace: Option<&OwnedFd>,
    host: &HostNamespace,
    job: impl FnOnce() -> io::Result<T>,
) -> io::Result<T> {
    let Some(namespace) = namespace else {
        return job();
    };
    setns(namespace.as_fd(), CloneFlags::CLONE_NEWNET)?;
    let result = job();
    setns(&host.0, CloneFlags::CLONE_NEWNET)?;
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
    let child = command.spawn();
    let mut child = child.map_err(|error| named(&name, &error.to_string()))?;
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
    async fn command_error_names_program() {
        let launcher = Launcher::for_commands().await.unwrap();
        let output = launcher.command(Command::new("cat"), "hello".into()).await;
        assert_eq!(output.unwrap().stdout, b"hello");
        let failed = launcher.command(Command::new("false"), String::new()).await;
        assert!(failed.unwrap_err().to_string().starts_with("false:"));
    }
}
