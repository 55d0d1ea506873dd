//! A process group and its leader. The pid of the leader is the id of the group. It cannot be
//! reused before the leader is reaped, so the group is killed first.

use std::io;
use std::process::ExitStatus;
use std::sync::Arc;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};
use tokio::process::Child;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Mutex;

use super::identity::Identity;
use super::process_tree::{OwnedChild, ProcessSet, register_child};

#[derive(Debug, Clone)]
pub(super) struct ProcessGroup {
    pid: Pid,
    identity: Arc<Identity>,
    /// True once the pid may belong to another process. Locked while the pid is used.
    is_reaped: Arc<Mutex<bool>>,
}

/// Leader of a process group. Its owner must wait for it.
#[derive(Debug)]
pub(super) struct GroupLeader {
    child: Child,
    group: ProcessGroup,
    _kept: OwnedChild,
}

impl GroupLeader {
    /// Takes a child started with `process_group(0)`. Fails if it was already reaped.
    pub(super) fn new(child: Child, identity: &Arc<Identity>) -> io::Result<Self> {
        let kept = register_child(child.id());
        let pid = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        let group = ProcessGroup {
            pid: pid.ok_or(io::ErrorKind::NotFound)?,
            identity: Arc::clone(identity),
            is_reaped: Arc::default(),
        };
        Ok(Self {
            child,
            group,
            _kept: kept,
        })
    }

    pub(super) fn group(&self) -> ProcessGroup {
        self.group.clone()
    }

    /// Waits until the leader ends and kills its group. Cancel-safe.
    pub(super) async fn wait(&mut self) -> io::Result<ExitStatus> {
        wait_exited(self.group.pid).await?;
        let mut is_reaped = self.group.is_reaped.lock().await;
        self.group.send(Signal::KILL).await;
        let status = self.child.wait().await;
        *is_reaped = true;
        status
    }
}

impl ProcessGroup {
    /// Sends a signal, unless the leader was reaped.
    pub(super) async fn signal(&self, signal: Signal) {
        let is_reaped = self.is_reaped.lock().await;
        if !*is_reaped {
            self.send(signal).await;
        }
    }

    /// Kills the group and all descendants, until no process is left.
    pub(super) async fn kill(&self) {
        let is_reaped = self.is_reaped.lock().await;
        if !*is_reaped {
            ProcessSet::Group(self.pid).kill_all(&self.identity).await;
        }
    }

    async fn send(&self, signal: Signal) {
        send(&self.identity, self.pid, signal).await;
    }
}

/// Sends a signal to a process group whose number cannot be another's.
pub(super) async fn send(identity: &Identity, group: Pid, signal: Signal) {
    // Root without capabilities may not signal the user's processes; the user may.
    let sending = move || rustix::process::kill_process_group(group, signal);
    // The group may be empty already.
    if let Err(error) = identity.run_unqueued(sending).await {
        tracing::warn!(%error, "cannot signal a process group");
    }
}

/// Waits until a child has ended, without reaping it.
pub(super) async fn wait_exited(pid: Pid) -> io::Result<()> {
    let mut ended = signal(SignalKind::child())?;
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    while rustix::process::waitid(WaitId::Pid(pid), options)?.is_none() {
        ended.recv().await.ok_or(io::ErrorKind::NotFound)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use tokio::io::{AsyncBufReadExt as _, BufReader};
    use tokio::process::{ChildStdout, Command};

    use super::*;

    /// Starts a group leader and returns its output.
    fn start(script: &str, identity: &Arc<Identity>) -> (GroupLeader, BufReader<ChildStdout>) {
        let mut command = Command::new("sh");
        command
            .args(["-c", script])
            .process_group(0)
            .stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        (GroupLeader::new(child, identity).unwrap(), output)
    }

    #[tokio::test]
    async fn group_is_killed_when_leader_ends() {
        let identity = Arc::new(Identity::own());
        let (mut leader, mut output) = start("sleep 1000 & echo it; exit 3", &identity);
        let group = leader.group();
        assert_eq!(leader.wait().await.unwrap().code(), Some(3));
        let mut text = String::new();
        while output.read_line(&mut text).await.unwrap() != 0 {}
        assert_eq!(text, "it\n");
        assert!(*group.is_reaped.lock().await);
    }

    #[tokio::test]
    async fn wait_exited_does_not_reap() {
        let (leader, _output) = start("exit 3", &Arc::new(Identity::own()));
        wait_exited(leader.group.pid).await.unwrap();
        rustix::process::kill_process_group(leader.group.pid, Signal::KILL).unwrap();
    }

    #[tokio::test]
    async fn signals_do_not_wait_for_stuck_threads() {
        let identity = Arc::new(Identity::own());
        let _stuck = identity.occupy_all_threads().await;
        let (mut leader, _output) = start("sleep 1000", &identity);
        leader.group().signal(Signal::KILL).await;
        assert_eq!(leader.wait().await.unwrap().code(), None);
    }
}
