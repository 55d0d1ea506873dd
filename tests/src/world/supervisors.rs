//! Supervisors that do what a test says, and remember what they were asked.

use std::collections::{HashMap, HashSet};
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
    /// Addresses that were initialised.
    initialised: Mutex<HashSet<String>>,
    tokens: Mutex<Vec<String>>,
    /// What servers say of how long they have been idle, by address.
    idle: Mutex<HashMap<String, Duration>>,
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

    /// From now on the server at an address says that it has been idle for so long.
    pub fn idle_for(&self, ip: &str, idle: Duration) {
        self.idle.lock().insert(ip.to_owned(), idle);
    }

    /// Every initialisation, in order.
    pub fn tokens(&self) -> Vec<String> {
        self.tokens.lock().clone()
    }
}

impl Supervisors for ScriptedSupervisors {
    fn init<'a>(
        &'a self,
        ip: &'a str,
        token: String,
    ) -> BoxFuture<'a, Result<(), SupervisorError>> {
        self.initialised.lock().insert(ip.to_owned());
        self.tokens.lock().push(token);
        async { Ok(()) }.boxed()
    }

    fn ready<'a>(
        &'a self,
        ip: &'a str,
        _token: String,
        wait: Duration,
    ) -> BoxFuture<'a, Result<ReadyReport, SupervisorError>> {
        let report = |state| {
            Ok(ReadyReport {
                state,
                detail: None,
            })
        };
        let known = self.initialised.lock().contains(ip);
        let mut ready = self.ready.subscribe();
        async move {
            if !known {
                return report(SupervisorState::Dormant);
            }
            match tokio::time::timeout(wait, ready.wait_for(|ready| *ready)).await {
                Ok(Ok(_)) => report(SupervisorState::Ready),
                _ => report(SupervisorState::Starting),
            }
        }
        .boxed()
    }

    fn idle<'a>(&'a self, ip: &'a str, _port: u16) -> BoxFuture<'a, Option<Duration>> {
        let idle = self.idle.lock().get(ip).copied();
        async move { idle }.boxed()
    }

    fn accepts<'a>(&'a self, _ip: &'a str, _port: u16) -> BoxFuture<'a, bool> {
        let ready = *self.ready.borrow();
        async move { ready }.boxed()
    }
}
