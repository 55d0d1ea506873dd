//! A process that leads a group, and its end. Its number is the group's: nobody else can get it before
//! it has been reaped, so that is done last, when the group has been killed.

use std::io;
use std::process::ExitStatus;
use std::sync::Arc;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};
use tokio::process::Child;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Mutex;

use super::children::{self, Kept};
use super::identity::Identity;
use super::processes::Family;

#[derive(Debug, Clone)]
pub(super) struct Group {
    pid: Pid,
    identity: Arc<Identity>,
    /// Whether the number may be another's. Held while something is done with it.
    is_reaped: Arc<Mutex<bool>>,
}

/// The process, which has to be followed to its end.
#[derive(Debug)]
pub(super) struct Leader {
    child: Child,
    group: Group,
    _kept: Kept,
}

impl Leader {
    /// Of a child that was started with `process_group(0)`.
    ///
    /// # Errors
    /// If it has been waited for already.
    pub(super) fn new(child: Child, identity: &Arc<Identity>) -> io::Result<Self> {
        let kept = children::keep(child.id());
        let pid = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        let group = Group {
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

    pub(super) fn group(&self) -> Group {
        self.group.clone()
    }

    /// Waits for its end, which is that of its group. May be given up and called again.
    pub(super) async fn follow(&mut self) -> io::Result<ExitStatus> {
        see_end(self.group.pid).await?;
        let mut is_reaped = self.group.is_reaped.lock().await;
        self.group.send(Signal::KILL).await;
        let status = self.child.wait().await;
        *is_reaped = true;
        status
    }
}

impl Group {
    /// Nothing happens to one whose leader has been followed to its end.
    pub(super) async fn signal(&self, signal: Signal) {
        let is_reaped = self.is_reaped.lock().await;
        if !*is_reaped {
            self.send(signal).await;
        }
    }

    /// Kills it, and what its leader has started elsewhere while it lives, until nobody is left.
    pub(super) async fn end(&self) {
        let is_reaped = self.is_reaped.lock().await;
        if !*is_reaped {
            Family::Tree(self.pid).end(&self.identity).await;
            // Whoever has lost its parent by now is still in the group.
            Family::Group(self.pid).end(&self.identity).await;
        }
    }

    async fn send(&self, signal: Signal) {
        let pid = self.pid;
        // Root without capabilities may not signal the user's processes; the user may.
        let sending = move || rustix::process::kill_process_group(pid, signal);
        // Nobody may be left to take it.
        if let Err(error) = self.identity.run_at_once(sending).await {
            tracing::warn!(%error, "cannot signal a process group");
        }
    }
}

/// Waits until a child has ended, and leaves it to be reaped.
async fn see_end(pid: Pid) -> io::Result<()> {
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

    /// A leader with a process beside it, which holds the output open.
    fn start(script: &str, identity: &Arc<Identity>) -> (Leader, BufReader<ChildStdout>) {
        let mut command = Command::new("sh");
        command
            .args(["-c", script])
            .process_group(0)
            .stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        (Leader::new(child, identity).unwrap(), output)
    }

    #[tokio::test]
    async fn a_group_ends_with_its_leader() {
        let identity = Arc::new(Identity::own());
        let (mut leader, mut output) = start("sleep 1000 & echo it; exit 3", &identity);
        let group = leader.group();
        assert_eq!(leader.follow().await.unwrap().code(), Some(3));
        let mut text = String::new();
        while output.read_line(&mut text).await.unwrap() != 0 {}
        assert_eq!(text, "it\n");
        assert!(*group.is_reaped.lock().await);
    }

    #[tokio::test]
    async fn a_child_that_was_seen_to_end_is_still_there() {
        let (leader, _output) = start("exit 3", &Arc::new(Identity::own()));
        see_end(leader.group.pid).await.unwrap();
        rustix::process::kill_process_group(leader.group.pid, Signal::KILL).unwrap();
    }

    #[tokio::test]
    async fn signals_do_not_wait_for_stuck_threads() {
        let identity = Arc::new(Identity::own());
        let _stuck = identity.stick().await;
        let (mut leader, _output) = start("sleep 1000", &identity);
        leader.group().signal(Signal::KILL).await;
        assert_eq!(leader.follow().await.unwrap().code(), None);
    }
}
