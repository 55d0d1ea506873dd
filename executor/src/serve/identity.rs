//! The sandbox user, and processes and threads that run as that user.
//!
//! The server may run as root while the agent is an ordinary user. Shells change to that user
//! before they start. File access happens on threads that change to it permanently, so that the
//! kernel checks every access, also through links.

use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{self, SyncSender};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::process::{Gid, Uid};
use tokio::process::Command;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::users::{self, User, UserError};
use crate::system;

/// Concurrent file operations; each has a thread.
const MAX_THREADS: u32 = 16;
/// Jobs that wait for the reserve thread: all file operations, and signals.
const MAX_RESERVE_JOBS: usize = 32;

/// Work for a thread; the argument tells whether the thread has the rights of the user.
type Job = Box<dyn FnOnce(io::Result<()>) + Send>;

#[derive(Debug, thiserror::Error)]
pub(super) enum IdentityError {
    #[error("cannot run the sandbox as its user")]
    User(#[from] UserError),
    #[error("the user {0:?} does not exist")]
    Missing(String),
    #[error(
        "started as root without the right to become {0}: securityContext.runAsUser is missing"
    )]
    MissingPrivilege(String),
}

#[derive(Debug)]
pub(super) struct Identity {
    /// The sandbox user; absent if the user database does not know the server's own user.
    user: Option<User>,
    /// True if the sandbox user differs from the user of the server.
    switch: bool,
    threads: Arc<Semaphore>,
    /// A running thread for the time when the process limit allows no new ones: killing processes
    /// must work then. Absent if it could not be created.
    reserve: Option<SyncSender<Job>>,
}

impl Identity {
    /// Determines the sandbox user. Only root can change users.
    pub(super) fn resolve(username: &str, change_user: bool) -> Result<Self, IdentityError> {
        let own = rustix::process::geteuid();
        if !own.is_root() || !change_user {
            return Ok(Self::new(
                users::find(|user| user.uid == own.as_raw())?,
                false,
            ));
        }
        let user = users::find(|user| user.name == username)?;
        match (username, user) {
            // A minimal image may have no user database.
            ("root", user) => Ok(Self::new(user, false)),
            (_, Some(user)) => {
                let switch = user.uid != 0;
                if switch && !system::may_change_user() {
                    return Err(IdentityError::MissingPrivilege(user.name));
                }
                Ok(Self::new(Some(user), switch))
            }
            (name, None) => Err(IdentityError::Missing(name.to_owned())),
        }
    }

    fn new(user: Option<User>, switch: bool) -> Self {
        let reserve = start_reserve(user.clone().filter(|_| switch));
        Self {
            reserve: reserve
                .inspect_err(|error| tracing::warn!(%error, "no thread in reserve"))
                .ok(),
            user,
            switch,
            threads: Arc::new(Semaphore::new(MAX_THREADS as usize)),
        }
    }

    pub(super) fn differs_from_server(&self) -> bool {
        self.switch
    }

    /// True if both run programs as the same user.
    pub(super) fn is_same_user(&self, other: &Self) -> bool {
        (&self.user, self.switch) == (&other.user, other.switch)
    }

    /// Name in the prompt of bash.
    pub(super) fn username(&self) -> &str {
        let user = self.user.as_ref();
        user.map_or("I have no name!", |user| &user.name)
    }

    /// Login shell of the user, if the user may log in.
    pub(super) fn login_shell(&self) -> Option<&Path> {
        let shell = self.user.as_ref()?.shell.as_path();
        let name = shell.file_name()?;
        (name != "nologin" && name != "false").then_some(shell)
    }

    /// Uid and primary group of the sandbox user, if this server may change owners to them.
    pub(super) fn owner(&self) -> Option<(u32, u32)> {
        let user = self.user.as_ref().filter(|_| self.switch)?;
        Some((user.uid, user.gid))
    }

    /// Makes a command run as this user, with the variables that a login sets.
    pub(super) fn apply_to(&self, command: &mut Command) {
        let variables = match &self.user {
            Some(user) => vec![
                ("HOME", user.home.as_os_str()),
                ("USER", user.name.as_ref()),
                ("LOGNAME", user.name.as_ref()),
                ("SHELL", user.shell.as_os_str()),
            ],
            // As container runtimes do for a user without an entry.
            None => vec![("HOME", "/".as_ref())],
        };
        for (name, value) in variables {
            // Without a change of user, variables of the container have precedence.
            let given = command.as_std().get_envs().any(|(given, _)| given == name);
            if self.switch || (!given && std::env::var_os(name).is_none()) {
                command.env(name, value);
            }
        }
        let Some(user) = self.user.as_ref().filter(|_| self.switch) else {
            return;
        };
        let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
        let groups: Vec<Gid> = user.groups.iter().map(|gid| Gid::from_raw(*gid)).collect();
        system::run_as(command, uid, gid, groups);
    }

    /// Makes this user the owner of a terminal, so that programs can open it by name.
    pub(super) fn own_terminal(&self, terminal: impl AsFd) -> io::Result<()> {
        match &self.user {
            Some(user) => Ok(rustix::fs::fchown(
                terminal,
                Some(Uid::from_raw(user.uid)),
                None,
            )?),
            None => Ok(()),
        }
    }

    /// Waits up to `limit` for the end of this user's threads, also of those without a caller.
    pub(super) async fn wait_idle(&self, limit: Duration) {
        let all = self.threads.acquire_many(MAX_THREADS);
        let _ = tokio::time::timeout(limit, all).await;
    }

    /// Runs blocking work, usually on files, with this user's rights. Fails if no thread can be
    /// created or the credentials cannot be changed.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<T> {
        let threads = Arc::clone(&self.threads);
        let permit = threads.acquire_owned().await.map_err(io::Error::other)?;
        self.run_on_thread(Some(permit), work).await
    }

    /// Like `run`, without waiting for other threads: for work that cannot block, such as a signal.
    pub(super) async fn run_unqueued<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<T> {
        if self.switch {
            self.run_on_thread(None, work).await
        } else {
            Ok(work())
        }
    }

    async fn run_on_thread<T: Send + 'static>(
        &self,
        permit: Option<OwnedSemaphorePermit>,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<T> {
        let (sender, receiver) = oneshot::channel();
        self.start(Box::new(move |rights| {
            // The receiver is gone if the caller no longer waits.
            let _ = sender.send(rights.map(|()| work()));
            drop(permit);
        }))?;
        receiver.await.map_err(io::Error::other)?
    }

    /// Starts a job on a new thread, or on the one in reserve if there can be no new one.
    fn start(&self, job: Job) -> io::Result<()> {
        let user = self.user.clone().filter(|_| self.switch);
        let slot = Arc::new(Mutex::new(Some(job)));
        let taken = Arc::clone(&slot);
        let started = thread_builder().spawn(move || {
            let job = taken.lock().take();
            if let Some(job) = job {
                job(change_user(user.as_ref()));
            }
        });
        let Err(error) = started else {
            return Ok(());
        };
        let job = slot.lock().take();
        match job.zip(self.reserve.as_ref()) {
            Some((job, reserve)) => reserve.try_send(job).map_err(|_| error),
            None => Err(error),
        }
    }
}

fn thread_builder() -> thread::Builder {
    thread::Builder::new().name("as-user".to_owned())
}

/// The thread ends when the sender is dropped, or at once if it cannot change to the user.
fn start_reserve(user: Option<User>) -> io::Result<SyncSender<Job>> {
    let (sender, jobs) = mpsc::sync_channel::<Job>(MAX_RESERVE_JOBS);
    thread_builder().spawn(move || {
        if let Err(error) = change_user(user.as_ref()) {
            tracing::warn!(%error, "no thread in reserve");
            return;
        }
        for job in jobs {
            job(Ok(()));
        }
    })?;
    Ok(sender)
}

/// Changes the credentials of the calling thread, for as long as it lives.
fn change_user(user: Option<&User>) -> io::Result<()> {
    if let Some(user) = user {
        let groups: Vec<Gid> = user.groups.iter().map(|gid| Gid::from_raw(*gid)).collect();
        system::set_thread_credentials(Uid::from_raw(user.uid), Gid::from_raw(user.gid), &groups)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Identity {
        /// The identity of the server.
        pub(in crate::serve) fn own() -> Self {
            Self::new(None, false)
        }

        /// Blocks every thread until the senders are dropped.
        pub(in crate::serve) async fn occupy_all_threads(
            self: &Arc<Self>,
        ) -> Vec<mpsc::Sender<()>> {
            let mut stuck = Vec::new();
            for _ in 0..MAX_THREADS {
                let (release, released) = mpsc::channel();
                let identity = Arc::clone(self);
                tokio::spawn(async move { identity.run(move || released.recv()).await });
                stuck.push(release);
            }
            tokio::task::yield_now().await;
            stuck
        }
    }
}
