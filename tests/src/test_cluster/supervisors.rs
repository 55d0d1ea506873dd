//! Supervisors that do what a test says.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use crds::contract::control::{ControlMessage, Grant, PodOwner, ReadyReport, SupervisorState};
use crds::contract::persistence::{KeptState, SaveReport, SaveState, SnapshotReport};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use operator::controller::{SupervisorAddress, SupervisorError, Supervisors};
use parking_lot::Mutex;
use tokio::sync::watch;

/// All supervisors of a test.
#[derive(Debug, Default)]
pub struct ScriptedSupervisors {
    /// Script of the commands' readiness.
    ready: watch::Sender<bool>,
    /// Commands by the address of their Pods.
    commands: Mutex<HashMap<String, CommandScript>>,
    /// Idle times that servers report, by address.
    idle: Mutex<HashMap<String, Duration>>,
    /// Idle time that all other servers report.
    all_idle: Mutex<Option<Duration>>,
    /// Uids of Pods and of the Sandboxes that an init message was for.
    inits: Mutex<BTreeSet<(String, String)>>,
    /// Ids of the snapshots that init messages gave access to, by the uids of Pods.
    sources: Mutex<BTreeMap<String, String>>,
    /// Uids of Pods that reported ready, and of the Sandboxes that they reported as their owners.
    ready_reports: Mutex<BTreeSet<(String, String)>>,
    /// State that every save keeps.
    kept: Mutex<KeptState>,
    /// Snapshots are being taken, and none ends.
    holds_snapshots: AtomicBool,
    /// Ids of the snapshots that were asked for.
    snapshots: Mutex<BTreeSet<String>>,
    /// All commands were ready before this process began.
    are_ready: bool,
}

/// The command of one Pod.
#[derive(Debug)]
struct CommandScript {
    /// Uid of the Pod of the first call. Nodes use addresses again.
    pod_uid: Option<String>,
    is_initialized: bool,
    /// Sandbox of the first init message.
    owner: Option<PodOwner>,
    /// It was asked and said that it is ready.
    answered: bool,
    /// It becomes ready if commands do.
    can_become_ready: watch::Sender<bool>,
}

impl Default for CommandScript {
    fn default() -> Self {
        Self {
            pod_uid: None,
            is_initialized: false,
            owner: None,
            answered: false,
            can_become_ready: watch::Sender::new(true),
        }
    }
}

impl ScriptedSupervisors {
    /// Supervisors whose commands become ready as soon as they are started, or have been since long. Those take no
    /// memory.
    pub fn of_ready_commands(since_long: bool) -> Self {
        Self {
            ready: watch::Sender::new(true),
            all_idle: Mutex::new(since_long.then_some(Duration::ZERO)),
            are_ready: since_long,
            ..Self::default()
        }
    }

    /// From now on commands are ready as soon as they are started.
    pub fn ready_by_default(&self) {
        self.ready.send_replace(true);
    }

    /// From now on commands start and do not become ready.
    pub fn never_ready(&self) {
        self.ready.send_replace(false);
    }

    /// The command at this address does not become ready, or does so after all.
    pub fn set_can_become_ready(&self, ip: &str, willing: bool) {
        let mut commands = self.commands.lock();
        let command = commands.entry(ip.to_owned()).or_default();
        command.can_become_ready.send_replace(willing);
    }

    /// Returns whether the command at this address answers requests.
    pub fn serves(&self, ip: &str) -> bool {
        let commands = self.commands.lock();
        let command = commands.get(ip).filter(|c| c.is_initialized);
        command.is_some_and(|c| *c.can_become_ready.borrow()) && *self.ready.borrow()
    }

    /// Returns whether the command at this address has reported ready. No two Pods share an address.
    pub fn has_ever_answered(&self, ip: &str) -> bool {
        self.commands.lock().get(ip).is_some_and(|c| c.answered)
    }

    /// Returns whether this Pod has reported ready as that of this Sandbox, both by uid.
    pub fn has_reported_ready(&self, pod: &str, sandbox: &str) -> bool {
        let report = (pod.to_owned(), sandbox.to_owned());
        self.ready_reports.lock().contains(&report)
    }

    /// From now on snapshots end, or do not.
    pub fn hold_snapshots(&self, hold: bool) {
        self.holds_snapshots.store(hold, Ordering::Relaxed);
    }

    /// Ids of the snapshots that were asked for.
    pub fn snapshots(&self) -> BTreeSet<String> {
        self.snapshots.lock().clone()
    }

    /// Uids of Pods and of the Sandboxes that an init message was for.
    pub fn inits(&self) -> BTreeSet<(String, String)> {
        self.inits.lock().clone()
    }

    /// Id of the snapshot that the init message of a Pod gave access to.
    pub fn source_of(&self, pod_uid: &str) -> Option<String> {
        self.sources.lock().get(pod_uid).cloned()
    }

    /// From now on the server at an address says that it has been idle for so long.
    pub fn idle_for(&self, ip: &str, idle: Duration) {
        self.idle.lock().insert(ip.to_owned(), idle);
    }

    /// From now on every server says that it has been idle for so long; `None`: says nothing.
    pub fn all_idle_for(&self, idle: Option<Duration>) {
        *self.all_idle.lock() = idle;
    }

    /// From now on every save keeps this.
    pub fn keep(&self, kept: KeptState) {
        *self.kept.lock() = kept;
    }

    fn answer(&self, ip: &str, state: SupervisorState) -> ReadyReport {
        let mut commands = self.commands.lock();
        let command = commands.entry(ip.to_owned()).or_default();
        command.answered |= state == SupervisorState::Ready;
        if let (SupervisorState::Ready, Some(pod), Some(owner)) =
            (state, &command.pod_uid, &command.owner)
        {
            let report = (pod.clone(), owner.sandbox_uid.clone());
            self.ready_reports.lock().insert(report);
        }
        ReadyReport {
            owner: command.owner.clone(),
            processes_id: command.pod_uid.clone(),
            ..state.into()
        }
    }

    /// Returns the signal of the readiness of the command; `None` if it does not run.
    fn command(&self, ip: &str, token: &str) -> Option<watch::Receiver<bool>> {
        let mut commands = self.commands.lock();
        let command = commands.get_mut(ip)?;
        command.enter(message(token)?.pod_uid);
        let ready = command.can_become_ready.subscribe();
        command.is_initialized.then_some(ready)
    }
}

impl CommandScript {
    /// Begins anew if another Pod has the address by now.
    fn enter(&mut self, pod_uid: String) {
        if self.pod_uid.as_ref().is_some_and(|known| *known != pod_uid) {
            *self = Self::default();
        }
        self.pod_uid = Some(pod_uid);
    }
}

fn message(token: &str) -> Option<ControlMessage> {
    let (payload, _) = token.split_once('.')?;
    let message = URL_SAFE_NO_PAD.decode(payload).ok()?;
    serde_json::from_slice(&message).ok()
}

impl Supervisors for ScriptedSupervisors {
    fn init<'a>(
        &'a self,
        at: &'a SupervisorAddress,
        token: String,
    ) -> BoxFuture<'a, Result<(), SupervisorError>> {
        if let Some(message) = message(&token) {
            let mut commands = self.commands.lock();
            let command = commands.entry(at.ip.clone()).or_default();
            command.enter(message.pod_uid.clone());
            if let Grant::Init(init) = message.grant {
                let source = init.state.as_ref().and_then(|state| state.source.as_ref());
                let id = source.map(|source| (message.pod_uid.clone(), source.id.clone()));
                self.sources.lock().extend(id);
                let owner = init.owner();
                let uid = owner.as_ref().map(|owner| owner.sandbox_uid.clone());
                self.inits
                    .lock()
                    .extend(uid.map(|uid| (message.pod_uid, uid)));
                if !command.is_initialized {
                    command.owner = owner;
                }
            }
            command.is_initialized = true;
        }
        async { Ok(()) }.boxed()
    }

    fn ready<'a>(
        &'a self,
        at: &'a SupervisorAddress,
        token: String,
        wait: Duration,
    ) -> BoxFuture<'a, Result<ReadyReport, SupervisorError>> {
        let ip = at.ip.as_str();
        if self.are_ready {
            return async { Ok(SupervisorState::Ready.into()) }.boxed();
        }
        let Some(mut willing) = self.command(ip, &token) else {
            return async { Ok(SupervisorState::Dormant.into()) }.boxed();
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
                Ok(()) => Ok(self.answer(ip, SupervisorState::Ready)),
                Err(_) => Ok(self.answer(ip, SupervisorState::Starting)),
            }
        }
        .boxed()
    }

    fn save<'a>(
        &'a self,
        _at: &'a SupervisorAddress,
        _token: String,
        _wait: Duration,
    ) -> BoxFuture<'a, Result<SaveReport, SupervisorError>> {
        let report = SaveReport {
            state: SaveState::Done,
            kept: Some(self.kept.lock().clone()),
        };
        async move { Ok(report) }.boxed()
    }

    fn snapshot<'a>(
        &'a self,
        _at: &'a SupervisorAddress,
        token: String,
        wait: Duration,
    ) -> BoxFuture<'a, Result<SnapshotReport, SupervisorError>> {
        if let Some(Grant::Snapshot(request)) = message(&token).map(|message| message.grant) {
            self.snapshots.lock().insert(request.id);
        }
        let mut report = SnapshotReport::default();
        let is_held = self.holds_snapshots.load(Ordering::Relaxed);
        if !is_held {
            report.kept = Some(self.kept.lock().clone());
        }
        async move {
            if is_held {
                tokio::time::sleep(wait).await;
            }
            Ok(report)
        }
        .boxed()
    }

    fn server_idle_time<'a>(&'a self, ip: &'a str, _port: u16) -> BoxFuture<'a, Option<Duration>> {
        let idle = self.idle.lock().get(ip).copied().or(*self.all_idle.lock());
        async move { idle }.boxed()
    }

    fn accepts_connections<'a>(&'a self, _ip: &'a str, _port: u16) -> BoxFuture<'a, bool> {
        let ready = *self.ready.borrow();
        async move { ready }.boxed()
    }
}
