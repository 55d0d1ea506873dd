//! Probes of a scripted supervisor, in virtual time.

use std::collections::VecDeque;

use crds::contract::control::{Init, Probe};
use crds::contract::sealing::SealingKey;
use crds::contract::token::Verifier;
use tokio::time::timeout;

use super::*;
use crate::tests::key;

/// Returns one state after the other, and the last one repeatedly.
#[derive(Debug, Default)]
struct ScriptedSupervisor {
    states: Mutex<VecDeque<Option<SupervisorState>>>,
    /// Offered for the init message.
    sealing_key: Mutex<Option<String>>,
    tokens: Mutex<Vec<String>>,
    probes: Mutex<u32>,
}

impl Supervisors for ScriptedSupervisor {
    fn init<'a>(
        &'a self,
        _: &'a SupervisorAddress,
        token: String,
    ) -> BoxFuture<'a, Result<(), SupervisorError>> {
        self.tokens.lock().push(token);
        Box::pin(std::future::ready(Ok(())))
    }

    fn ready<'a>(
        &'a self,
        _: &'a SupervisorAddress,
        _: String,
        _: Duration,
    ) -> BoxFuture<'a, Result<ReadyReport, SupervisorError>> {
        *self.probes.lock() += 1;
        let mut answers = self.states.lock();
        let next = match answers.len() {
            1 => answers.front().copied().flatten(),
            _ => answers.pop_front().flatten(),
        };
        let unreachable = || SupervisorError::Unreachable("refused".into());
        let report = next.map(|state| ReadyReport {
            sealing_key: self.sealing_key.lock().clone(),
            ..state.into()
        });
        Box::pin(std::future::ready(report.ok_or_else(unreachable)))
    }

    fn accepts_connections<'a>(&'a self, _: &'a str, port: u16) -> BoxFuture<'a, bool> {
        Box::pin(std::future::ready(port == 80))
    }

    fn server_idle_time<'a>(&'a self, _: &'a str, _: u16) -> BoxFuture<'a, Option<Duration>> {
        Box::pin(std::future::ready(None))
    }
}

struct ProbeFixture {
    script: Arc<ScriptedSupervisor>,
    readiness: Arc<ReadinessProber>,
    queue: Arc<WorkQueue<Key>>,
    keys: Arc<Keys>,
}

fn probe_fixture(answers: &[Option<SupervisorState>]) -> ProbeFixture {
    let keys = Arc::new(Keys::derive(&[1; 32]).unwrap());
    let queue = Arc::new(WorkQueue::default());
    queue.open();
    let script = Arc::new(ScriptedSupervisor::default());
    script.states.lock().extend(answers);
    let readiness =
        ReadinessProber::new(script.clone(), keys.clone(), Clock::wall(), queue.clone());
    ProbeFixture {
        script,
        readiness: Arc::new(readiness),
        queue,
        keys,
    }
}

fn run(restarts: u32) -> ContainerRun {
    ContainerRun {
        pod_uid: "pod".into(),
        restarts,
        node_silent: false,
    }
}

fn supervisor() -> ProbeTarget {
    let init = || {
        let init = Init {
            command: vec!["true".into()],
            working_dir: "/".into(),
            environment: std::collections::BTreeMap::new(),
            probe: Probe {
                port: None,
                path: None,
            },
        };
        Some(init)
    };
    ProbeTarget::Supervisor {
        init: Arc::new(init),
        identity: None,
    }
}

impl ProbeFixture {
    fn probe(&self, restarts: u32) {
        let ip = "10.0.0.1";
        self.readiness
            .ensure_probing(&key("a"), run(restarts), ip, supervisor());
    }

    /// Result at the next requeue of the sandbox.
    async fn next_result(&self, restarts: u32) -> Option<ProbeResult> {
        timeout(Duration::from_mins(10), self.queue.next())
            .await
            .ok()?;
        self.queue.done(&key("a"));
        self.readiness.result(&key("a"), &run(restarts))
    }
}

#[tokio::test(start_paused = true)]
async fn dormant_supervisor_is_initialized_once_it_listens() {
    use SupervisorState::{Dormant, Ready};
    let fixture = probe_fixture(&[None, None, Some(Dormant), Some(Ready)]);
    fixture.probe(0);
    assert_eq!(fixture.next_result(0).await, Some(ProbeResult::Ready));
    let tokens = fixture.script.tokens.lock().clone();
    assert_eq!(tokens.len(), 1);
    let verifier = Verifier::new(&fixture.keys.signer().public_key()).unwrap();
    let message = ControlMessage::recall(&tokens[0], &verifier, "pod").unwrap();
    assert!(matches!(message.grant, Grant::Init(_)));
}

#[tokio::test(start_paused = true)]
async fn init_message_is_encrypted_to_the_key_of_the_pod() {
    use SupervisorState::{Dormant, Ready};
    let fixture = probe_fixture(&[Some(Dormant), Some(Ready)]);
    let key = SealingKey::generate().unwrap();
    *fixture.script.sealing_key.lock() = Some(key.public_key().to_owned());
    fixture.probe(0);
    assert_eq!(fixture.next_result(0).await, Some(ProbeResult::Ready));
    let token = fixture.script.tokens.lock()[0].clone();
    let verifier = Verifier::new(&fixture.keys.signer().public_key()).unwrap();
    let message = ControlMessage::recall(&token, &verifier, "pod").unwrap();
    let Grant::SealedInit(sealed) = message.grant else {
        panic!("not encrypted");
    };
    let init: Init = key.open(&sealed, "pod").unwrap();
    assert_eq!(init.command, ["true"]);
}

#[tokio::test(start_paused = true)]
async fn running_supervisor_is_not_initialized_again() {
    let fixture = probe_fixture(&[Some(SupervisorState::Ready)]);
    fixture.probe(0);
    assert_eq!(fixture.next_result(0).await, Some(ProbeResult::Ready));
    assert!(fixture.script.tokens.lock().is_empty());
}

#[tokio::test(start_paused = true)]
async fn not_ready_requeues_only_once() {
    let fixture = probe_fixture(&[Some(SupervisorState::Starting)]);
    fixture.probe(0);
    assert_eq!(
        fixture.next_result(0).await,
        Some(ProbeResult::NotReady(None))
    );
    assert_eq!(fixture.next_result(0).await, None);
}

#[tokio::test(start_paused = true)]
async fn early_listener_is_detected_early() {
    use SupervisorState::Ready;
    let mut answers = vec![None; 6];
    answers.push(Some(Ready));
    let fixture = probe_fixture(&answers);
    let start = Instant::now();
    fixture.probe(0);
    assert_eq!(fixture.next_result(0).await, Some(ProbeResult::Ready));
    assert!(start.elapsed() < Duration::from_millis(150));
}

#[tokio::test(start_paused = true)]
async fn fast_not_ready_answers_are_polled_at_interval() {
    let fixture = probe_fixture(&[Some(SupervisorState::Starting)]);
    fixture.probe(0);
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert!(*fixture.script.probes.lock() <= 300);
}

#[tokio::test(start_paused = true)]
async fn new_container_run_is_probed_again() {
    let fixture = probe_fixture(&[Some(SupervisorState::Ready)]);
    fixture.probe(0);
    assert_eq!(fixture.next_result(0).await, Some(ProbeResult::Ready));
    assert_eq!(fixture.readiness.result(&key("a"), &run(1)), None);
    fixture.probe(1);
    assert_eq!(fixture.next_result(1).await, Some(ProbeResult::Ready));
}

#[tokio::test(start_paused = true)]
async fn forgotten_sandbox_is_not_probed() {
    let fixture = probe_fixture(&[None]);
    fixture.probe(0);
    tokio::time::sleep(Duration::from_secs(1)).await;
    fixture.readiness.forget(&key("a"));
    let probes = *fixture.script.probes.lock();
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(*fixture.script.probes.lock(), probes);
}

#[tokio::test(start_paused = true)]
async fn port_probe_is_ready_when_port_accepts() {
    let fixture = probe_fixture(&[]);
    let target = ProbeTarget::Port(80);
    let prober = &fixture.readiness;
    prober.ensure_probing(&key("a"), run(0), "10.0.0.1", target);
    assert_eq!(fixture.next_result(0).await, Some(ProbeResult::Ready));
}

/// Sandboxes of which only the listed ones become ready.
#[derive(Debug, Default)]
struct ManySupervisors {
    /// Addresses whose command is ready.
    ready: Mutex<Vec<String>>,
    waiting: Mutex<u32>,
    short: Mutex<u32>,
}

/// Counts a long poll while it runs.
struct Counted<'a>(&'a ManySupervisors);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        *self.0.waiting.lock() -= 1;
    }
}

impl ManySupervisors {
    fn report(&self, ip: &str) -> ReadyReport {
        let ready = self.ready.lock().iter().any(|r| r == ip);
        let state = if ready {
            SupervisorState::Ready
        } else {
            SupervisorState::Starting
        };
        state.into()
    }

    fn count(&self) -> Counted<'_> {
        *self.waiting.lock() += 1;
        Counted(self)
    }
}

impl Supervisors for ManySupervisors {
    fn init<'a>(
        &'a self,
        _: &'a SupervisorAddress,
        _: String,
    ) -> BoxFuture<'a, Result<(), SupervisorError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn ready<'a>(
        &'a self,
        at: &'a SupervisorAddress,
        _: String,
        wait: Duration,
    ) -> BoxFuture<'a, Result<ReadyReport, SupervisorError>> {
        Box::pin(async move {
            if wait.is_zero() {
                *self.short.lock() += 1;
            } else {
                let _counted = self.count();
                sleep(wait).await;
            }
            Ok(self.report(&at.ip))
        })
    }

    fn server_idle_time<'a>(&'a self, _: &'a str, _: u16) -> BoxFuture<'a, Option<Duration>> {
        Box::pin(std::future::ready(None))
    }

    fn accepts_connections<'a>(&'a self, _: &'a str, _: u16) -> BoxFuture<'a, bool> {
        Box::pin(std::future::ready(false))
    }
}

#[tokio::test(start_paused = true)]
async fn never_ready_sandboxes_do_not_delay_others() {
    let (supervisors, queue) = (
        Arc::new(ManySupervisors::default()),
        Arc::new(WorkQueue::default()),
    );
    let keys = Arc::new(Keys::derive(&[1; 32]).unwrap());
    let readiness = ReadinessProber::new(supervisors.clone(), keys, Clock::wall(), queue.clone());
    let readiness = Arc::new(readiness);
    for n in 0..1200 {
        let (key, ip) = (key(&format!("never-{n}")), format!("never-{n}"));
        readiness.ensure_probing(&key, run(0), &ip, supervisor());
    }
    for n in 0..12 {
        // At any moment of the other long polls.
        sleep(Duration::from_millis(1700)).await;
        let name = format!("soon-{n}");
        supervisors.ready.lock().push(name.clone());
        let start = Instant::now();
        readiness.ensure_probing(&key(&name), run(0), &name, supervisor());
        while readiness.result(&key(&name), &run(0)).is_none() {
            sleep(Duration::from_millis(1)).await;
        }
        assert!(*supervisors.waiting.lock() <= 1024);
        assert!(
            start.elapsed() <= Duration::from_millis(5),
            "{n}: {:?}",
            start.elapsed()
        );
    }
    assert!(*supervisors.waiting.lock() <= 1024);
    // Sandboxes without a long poll slot are probed rarely.
    let before = *supervisors.short.lock();
    sleep(Duration::from_secs(30)).await;
    let probes = *supervisors.short.lock() - before;
    assert!(probes <= 1200 * 30 / 2, "{probes}");
}

#[tokio::test(start_paused = true)]
async fn preempted_sandbox_still_becomes_ready() {
    let (supervisors, queue) = (
        Arc::new(ManySupervisors::default()),
        Arc::new(WorkQueue::default()),
    );
    let keys = Arc::new(Keys::derive(&[1; 32]).unwrap());
    let readiness = ReadinessProber::new(supervisors.clone(), keys, Clock::wall(), queue.clone());
    let readiness = Arc::new(readiness);
    readiness.ensure_probing(&key("a"), run(0), "first", supervisor());
    sleep(Duration::from_secs(1)).await;
    for n in 0..1200 {
        readiness.ensure_probing(&key(&n.to_string()), run(0), "never", supervisor());
    }
    sleep(Duration::from_secs(30)).await;
    supervisors.ready.lock().push("first".into());
    let start = Instant::now();
    while readiness.result(&key("a"), &run(0)) != Some(ProbeResult::Ready) {
        sleep(Duration::from_millis(10)).await;
    }
    assert!(
        start.elapsed() <= LONG_POLL_TIMEOUT,
        "{:?}",
        start.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn reports_not_ready_and_keeps_probing_when_node_is_silent() {
    let mut script = vec![None; 60];
    script.push(Some(SupervisorState::Ready));
    let fixture = probe_fixture(&script);
    let silent = ContainerRun {
        node_silent: true,
        ..run(0)
    };
    let ip = "10.0.0.1";
    let readiness = &fixture.readiness;
    readiness.ensure_probing(&key("a"), silent.clone(), ip, supervisor());
    let mut answers = Vec::new();
    for _ in 0..2 {
        fixture.next_result(0).await;
        answers.push(fixture.readiness.result(&key("a"), &silent).unwrap());
    }
    assert!(matches!(&answers[0], ProbeResult::NotReady(Some(_))));
    assert_eq!(answers[1], ProbeResult::Ready);
    assert_eq!(fixture.readiness.result(&key("a"), &run(0)), None);
}
