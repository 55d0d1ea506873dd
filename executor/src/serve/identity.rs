//! On whose behalf things are done in the sandbox.
//!
//! The server may run as root while the agent is an ordinary user. Shells change to that user
//! before they start; file access happens on threads that have changed to it for good, so the
//! kernel itself refuses what the agent may not touch, through whatever link it is reached.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Gid, Uid};
use tokio::process::Command;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::settings::Settings;
use super::users::{self, User, UserError};
use crate::system;

/// File operations at once; each has a thread while it lasts.
const MAX_THREADS: u32 = 16;

#[derive(Debug, thiserror::Error)]
pub(super) enum IdentityError {
    #[error("cannot run the sandbox as its user")]
    User(#[from] UserError),
    #[error("the user {0:?} does not exist")]
    Missing(String),
    #[error(
        "started as root without the right to become {0}: securityContext.runAsUser is missing"
    )]
    Powerless(String),
}

#[derive(Debug)]
pub(super) struct Identity {
    /// Whom to change to; absent when the server itself is nobody special.
    user: Option<User>,
    /// Whether changing is needed at all.
    switch: bool,
    threads: Arc<Semaphore>,
}

impl Identity {
    /// Whose rights the agent has. Only root can act for another user; and it does so only for the
    /// users that the original changes to.
    pub(super) fn resolve(settings: &Settings) -> Result<Self, IdentityError> {
        let own = rustix::process::geteuid();
        if !own.is_root() || !settings.change_user() {
            return Ok(Self::new(users::find_by_uid(own.as_raw())?, false));
        }
        let user = users::find_by_name(&settings.username)?;
        match (settings.username.as_str(), user) {
            // A minimal image may do without a user database.
            ("root", user) => Ok(Self::new(user, false)),
            (_, Some(user)) => {
                let switch = user.uid != 0;
                if switch && !system::may_change_user() {
                    return Err(IdentityError::Powerless(user.name));
                }
                Ok(Self::new(Some(user), switch))
            }
            (name, None) => Err(IdentityError::Missing(name.to_owned())),
        }
    }

    fn new(user: Option<User>, switch: bool) -> Self {
        Self {
            user,
            switch,
            threads: Arc::new(Semaphore::new(MAX_THREADS as usize)),
        }
    }

    /// The server's own.
    #[cfg(test)]
    pub(super) fn own() -> Self {
        Self::new(None, false)
    }

    /// Takes every thread until the senders are dropped.
    #[cfg(test)]
    pub(super) async fn stick(self: &Arc<Self>) -> Vec<std::sync::mpsc::Sender<()>> {
        let mut stuck = Vec::new();
        for _ in 0..MAX_THREADS {
            let (release, released) = std::sync::mpsc::channel();
            let identity = Arc::clone(self);
            tokio::spawn(async move { identity.run(move || released.recv()).await });
            stuck.push(release);
        }
        tokio::task::yield_now().await;
        stuck
    }

    /// Whether the agent is not who the server is.
    pub(super) fn is_other(&self) -> bool {
        self.switch
    }

    /// Uid and primary group, if this server has the right to give files away to them.
    pub(super) fn owner(&self) -> Option<(u32, u32)> {
        let user = self.user.as_ref().filter(|_| self.switch)?;
        Some((user.uid, user.gid))
    }

    /// Makes a command run as this user, with the variables that a login would set.
    pub(super) fn adopt(&self, command: &mut Command) {
        let Some(user) = &self.user else {
            return;
        };
        let variables = [
            ("HOME", user.home.as_os_str()),
            ("USER", user.name.as_ref()),
            ("LOGNAME", user.name.as_ref()),
            ("SHELL", user.shell.as_os_str()),
        ];
        for (name, value) in variables {
            // Without a change of user, what the container says about itself is right.
            if self.switch || std::env::var_os(name).is_none() {
                command.env(name, value);
            }
        }
        if !self.switch {
            return;
        }
        let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
        let groups: Vec<Gid> = user.groups.iter().map(|gid| Gid::from_raw(*gid)).collect();
        system::run_as(command, uid, gid, groups);
    }

    /// Hands a terminal over, so that programs can open it by its name.
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

    /// Waits until no thread works for this user any more, or the time is over: also what nobody waits
    /// for is completed or undone.
    pub(super) async fn settle(&self, limit: Duration) {
        let all = self.threads.acquire_many(MAX_THREADS);
        let _ = tokio::time::timeout(limit, all).await;
    }

    /// Runs blocking work, usually on files, with this user's rights.
    ///
    /// # Errors
    /// If no thread can be had or the rights cannot be taken on.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<T> {
        let threads = Arc::clone(&self.threads);
        let permit = threads.acquire_owned().await.map_err(io::Error::other)?;
        self.run_on_thread(Some(permit), work).await
    }

    /// Runs what cannot block, such as a signal, with this user's rights: threads that are stuck do
    /// not hold it up.
    ///
    /// # Errors
    /// If no thread can be had or the rights cannot be taken on.
    pub(super) async fn run_at_once<T: Send + 'static>(
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
        let rights = self.switch.then(|| self.user.clone()).flatten();
        let (sender, receiver) = oneshot::channel();
        std::thread::Builder::new()
            .name("as-user".to_owned())
            .spawn(move || {
                // The receiver is gone only if nobody wants the result any more.
                let _ = sender.send(with_rights(rights.as_ref(), work));
                drop(permit);
            })?;
        receiver.await.map_err(io::Error::other)?
    }
}

/// The thread that calls this ends after `work`, so nothing is ever changed back.
fn with_rights<T>(user: Option<&User>, work: impl FnOnce() -> T) -> io::Result<T> {
    if let Some(user) = user {
        let groups: Vec<Gid> = user.groups.iter().map(|gid| Gid::from_raw(*gid)).collect();
        system::become_user(Uid::from_raw(user.uid), Gid::from_raw(user.gid), &groups)?;
    }
    Ok(work())
}
