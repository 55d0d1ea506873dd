//! Supervisors that do what a test says, and remember what they were asked.

use std::collections::HashMap;
use std::time::Duration;

use crds::contract::control::{ReadyReport, SupervisorState};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use operator::controller::{SupervisorError, Supervisors};
use parking_lot::Mutex;
use tokio::sync::watch;

/// All supervisors of a test.
#[derive(Debug, Default)]
pub struct ScriptedSupervisors {
    /// Whether commands become ready.
    ready: watch::Sender<bool>,
    /// Commands by the address of their Pods.
    commands: Mutex<HashMap<String, Command>>,
    tokens: Mutex<Vec<String>>,
    /// What servers say of how long they have been idle, by address.
    idle: Mutex<HashMap<String, Duration>>,
    /// What all others say.
    all_idle: Mutex<Option<Duration>>,
}

/// The command of one Pod.
#[derive(Debug)]
struct Command {
    initialised: bool,
    /// It was asked and said that it is ready.
    answered: bool,
    /// It becomes ready if commands do.
    willing: watch::Sender<bool>,
}

impl Default for Command {
    fn default() -> Self {
        Self {
            initialised: false,
            answered: false,
            willing: watch::Sender::new(true),
        }
    }
}

impl ScriptedSupervisors {
    /// From now on commands are ready as soon as they are started.
    pub fn ready_by_default(&self) {
        self.ready.send_replace(true);
    }

    /// From now on commands start and do not become ready.
    pub fn never_ready(&self) {
        self.ready.send_replace(false);
    }

    /// The command at this address does not become ready, or does so after all.
    pub fn set_willing(&self, ip: &str, willing: bool) {
        let mut commands = self.commands.lock();
        let command = commands.entry(ip.to_owned()).or_default();
        command.willing.send_replace(willing);
    }

    /// Whether the command at this address answers requests.
    pub fn serves(&self, ip: &str) -> bool {
        let commands = self.commands.lock();
        let command = commands.get(ip).filter(|c| c.initialised);
        command.is_some_and(|c| *c.willing.borrow()) && *self.ready.borrow()
    }

    /// Whether the command at this address, which no two Pods share, has said that it is ready.
    pub fn has_ever_answered(&self, ip: &str) -> bool {
        self.commands.lock().get(ip).is_some_and(|c| c.answered)
    }

    /// From now on the server at an address says that it has been idle for so long.
    pub fn idle_for(&self, ip: &str, idle: Duration) {
        self.idle.lock().insert(ip.to_owned(), idle);
    }

    /// From now on every server says that it has been idle for so long; `None`: says nothing.
    pub fn all_idle_for(&self, idle: Option<Duration>) {
        *self.all_idle.lock() = idle;
    }

    /// Every initialisation, in order.
    pub fn tokens(&self) -> Vec<String> {
        self.tokens.lock().clone()
    }

    fn answer(&self, ip: &str) -> ReadyReport {
        if let Some(command) = self.commands.lock().get_mut(ip) {
            command.answered = true;
        }
        report(SupervisorState::Ready)
    }

    /// Whether the command runs, and what tells when it becomes ready.
    fn command(&self, ip: &str) -> Option<watch::Receiver<bool>> {
        let commands = self.commands.lock();
        let command = commands.get(ip).filter(|c| c.initialised)?;
        Some(command.willing.subscribe())
    }
}

impl Supervisors for ScriptedSupervisors {
    fn init<'a>(
        &'a self,
        ip: &'a str,
        token: String,
    ) -> BoxFuture<'a, Result<(), SupervisorError>> {
        self.commands
            .lock()
            .entry(ip.to_owned())
            .or_default()
            .initialised = true;
        self.tokens.lock().push(token);
        async { Ok(()) }.boxed()
    }

    fn ready<'a>(
        &'a self,
        ip: &'a str,
        _token: String,
        wait: Duration,
    ) -> BoxFuture<'a, Result<ReadyReport, SupervisorError>> {
        let Some(mut willing) = self.command(ip) else {
            return async { Ok(report(SupervisorState::Dormant)) }.boxed();
        };
        let mut ready = self.ready.subscribe();
        let both = async move {
            while !(*ready.borrow_and_update() && *willing.borrow_and_update()) {
                tokio::select! {
                    _ = ready.changed() => {}
                    _ = willing.changed() => {}
                }
            }
        };
        async move {
            match tokio::time::timeout(wait, both).await {
                Ok(()) => Ok(self.answer(ip)),
                Err(_) => Ok(report(SupervisorState::Starting)),
            }
        }
        .boxed()
    }

    fn idle<'a>(&'a self, ip: &'a str, _port: u16) -> BoxFuture<'a, Option<Duration>> {
        let idle = self.idle.lock().get(ip).copied().or(*self.all_idle.lock());
        async move { idle }.boxed()
    }

    fn accepts<'a>(&'a self, _ip: &'a str, _port: u16) -> BoxFuture<'a, bool> {
        let ready = *self.ready.borrow();
        async move { ready }.boxed()
    }
}

fn report(state: SupervisorState) -> ReadyReport {
    ReadyReport {
        state,
        detail: None,
    }
}
