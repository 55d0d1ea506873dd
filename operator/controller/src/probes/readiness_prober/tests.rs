//! Probes of fake supervisors, in virtual time.

use std::collections::VecDeque;

use SupervisorState::{Dormant, Ready, Starting};
use crds::contract::control::{Init, PodOwner, Probe};
use crds::contract::persistence::{SaveReport, SnapshotReport};
use crds::contract::sealing::SealingKey;
use crds::contract::token::Verifier;
use futures::future::BoxFuture;
use tokio::time::timeout;

use super::*;
use crate::tests::{key, keys};

/// Supervisors that report one scripted state after the other, and the last one repeatedly.
/// Without a script only the listed addresses are ready, and a long poll waits.
#[derive(Debug, Default)]
struct FakeSupervisors {
    script: Mutex<VecDeque<Option<SupervisorState>>>,
    ready: Mutex<Vec<String>>,
    /// Offered for the init message.
    sealing_key: Mutex<Option<String>>,
    /// Sandbox that it reports.
    owner: Mutex<Option<PodOwner>>,
    tokens: Mutex<Vec<String>>,
    probes: Mutex<u32>,
    short_probes: Mutex<u32>,
    /// Each running long poll holds a clone.
    long_polls: Arc<()>,
}

impl FakeSupervisors {
    fn next_state(&self, ip: &str) -> Option<SupervisorState> {
        let mut script = self.script.lock();
        match script.len() {
            0 if self.ready.lock().iter().any(|ready| ready == ip) => Some(Ready),
            0 => Some(Starting),
            1 => script[0],
            _ => script.pop_front().flatten(),
        }
    }

    fn running_long_polls(&self) -> usize {
        Arc::strong_count(&self.long_polls) - 1
    }
}

impl Supervisors for FakeSupervisors {
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
        at: &'a SupervisorAddress,
        _: String,
        wait: Duration,
    ) -> BoxFuture<'a, Result<ReadyReport, SupervisorError>> {
        *self.probes.lock() += 1;
        *self.short_probes.lock() += u32::from(wait.is_zero());
        let is_scripted = !self.script.lock().is_empty();
        Box::pin(async move {
            if !is_scripted && !wait.is_zero() {
                let _running = self.long_polls.clone();
                sleep(wait).await;
            }
            let unreachable = || SupervisorError::Unreachable("refused".into());
            let state = self.next_state(&at.ip).ok_or_else(unreachable)?;
            Ok(ReadyReport {
                sealing_key: self.sealing_key.lock().clone(),
                owner: self.owner.lock().clone(),
                ..state.into()
            })
        })
    }

    fn save<'a>(
        &'a self,
        _: &'a SupervisorAddress,
        _: String,
        _: Duration,
    ) -> BoxFuture<'a, Result<SaveReport, SupervisorError>> {
        Box::pin(std::future::ready(Err(SupervisorError::Timeout)))
    }

    fn snapshot<'a>(
        &'a self,
        _: &'a SupervisorAddress,
        _: String,
        _: Duration,
    ) -> BoxFuture<'a, Result<SnapshotReport, SupervisorError>> {
        Box::pin(std::future::ready(Err(SupervisorError::Timeout)))
    }

    fn accepts_connections<'a>(&'a self, _: &'a str, port: u16) -> BoxFuture<'a, bool> {
        Box::pin(std::future::ready(port == 80))
    }

    fn server_idle_time<'a>(&'a self, _: &'a str, _: u16) -> BoxFuture<'a, Option<Duration>> {
        Box::pin(std::future::ready(None))
    }
}

struct ProbeFixture {
    supervisors: Arc<FakeSupervisors>,
    readiness: Arc<ReadinessProber>,
    queue: Arc<WorkQueue<Key>>,
    keys: Arc<Keys>,
}

fn probe_fixture(script: &[Option<SupervisorState>]) -> ProbeFixture {
    let (keys, queue) = (Arc::new(keys()), Arc::new(WorkQueue::default()));
    queue.open();
    let supervisors = Arc::new(FakeSupervisors::default());
    supervisors.script.lock().extend(script);
    let (all, clock) = (supervisors.clone(), Clock::wall());
    let readiness = ReadinessProber::new(
        all,
        keys.clone(),
        clock,
        queue.clone(),
        ControllerMetrics::default(),
    );
    ProbeFixture {
        supervisors,
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

fn supervisor(is_required: bool) -> ProbeTarget {
    let init = || {
        Ok(Init {
            sandbox_uid: Some("uid".into()),
            state: None,
            command: vec!["true".into()],
            working_dir: "/".into(),
            environment: std::collections::BTreeMap::new(),
            probe: Probe {
                port: None,
                path: None,
            },
        })
    };
    ProbeTarget::Supervisor {
        init: Arc::new(init),
        identity: None,
        created_at: None,
        owner: ExpectedOwner {
            sandbox_uid: "uid".into(),
            is_required,
        },
    }
}

impl ProbeFixture {
    fn probe(&self, restarts: u32) {
        self.probe_at("a", run(restarts), "10.0.0.1");
    }

    fn probe_at(&self, name: &str, run: ContainerRun, ip: &str) {
        let prober = &self.readiness;
        prober.ensure_probing(&key(name), run, ip, supervisor(false));
    }

    /// Time until a sandbox is ready.
    async fn time_until_ready(&self, name: &str) -> Duration {
        let start = Instant::now();
        while self.readiness.result(&key(name), &run(0)) != Some(ProbeResult::Ready) {
            sleep(Duration::from_millis(1)).await;
        }
        start.elapsed()
    }

    /// Result at the next requeue of the sandbox.
    async fn next_result(&self, restarts: u32) -> Option<ProbeResult> {
        let requeue = timeout(Duration::from_mins(10), self.queue.next());
        requeue.await.ok()?;
        self.queue.done(&key("a"));
        self.readiness.result(&key("a"), &run(restarts))
    }

    /// Probes the sandbox until it is ready; returns the init messages that it received.
    async fn init_grants(&self) -> Vec<Grant> {
        self.probe(0);
        assert_eq!(self.next_result(0).await, Some(ProbeResult::Ready));
        let verifier = Verifier::new(&self.keys.of(None).signer().public_key()).unwrap();
        let tokens = self.supervisors.tokens.lock();
        let open = |token: &String| {
            ControlMessage::recall(token, &verifier, "pod")
                .unwrap()
                .grant
        };
        tokens.iter().map(open).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn dormant_supervisor_is_initialized_once_it_listens() {
    let fixture = probe_fixture(&[None, None, Some(Dormant), Some(Ready)]);
    let grants = fixture.init_grants().await;
    assert!(matches!(grants[..], [Grant::Init(_)]), "{grants:?}");
}

#[tokio::test(start_paused = true)]
async fn init_message_is_encrypted_to_the_key_of_the_pod() {
    let fixture = probe_fixture(&[Some(Dormant), Some(Ready)]);
    let key = SealingKey::generate().unwrap();
    *fixture.supervisors.sealing_key.lock() = Some(key.public_key().to_owned());
    let grants = fixture.init_grants().await;
    let [Grant::SealedInit(sealed)] = &grants[..] else {
        panic!("not encrypted: {grants:?}");
    };
    let init: Init = key.open(sealed, "pod").unwrap();
    assert_eq!(init.command, ["true"]);
}

#[tokio::test(start_paused = true)]
async fn running_supervisor_is_not_initialized_again() {
    assert_eq!(probe_fixture(&[Some(Ready)]).init_grants().await, []);
}

#[tokio::test(start_paused = true)]
async fn supervisor_of_another_sandbox_is_never_ready() {
    for (reported, is_required, result) in [
        (Some("uid"), true, ProbeResult::Ready),
        (Some("other"), false, ProbeResult::OtherOwner),
        (None, true, ProbeResult::OtherOwner),
        // A supervisor of an earlier version names none.
        (None, false, ProbeResult::Ready),
    ] {
        let fixture = probe_fixture(&[Some(Ready)]);
        *fixture.supervisors.owner.lock() = reported.map(|uid| PodOwner {
            sandbox_uid: uid.to_owned(),
            init_digest: String::new(),
        });
        let target = supervisor(is_required);
        let prober = &fixture.readiness;
        prober.ensure_probing(&key("a"), run(0), "10.0.0.1", target);
        let found = fixture.next_result(0).await;
        assert_eq!(found, Some(result), "{reported:?} {is_required}");
    }
}

#[tokio::test(start_paused = true)]
async fn claimed_pod_without_any_answer_is_silent() {
    for (script, is_claimed, result) in [
        (&[None; 400][..], true, Some(ProbeResult::Silent)),
        (&[None; 400], false, None),
        // It has answered before.
        (
            &[Some(Starting), None],
            true,
            Some(ProbeResult::NotReady(None)),
        ),
    ] {
        let fixture = probe_fixture(script);
        *fixture.supervisors.owner.lock() = Some(PodOwner {
            sandbox_uid: "uid".to_owned(),
            init_digest: String::new(),
        });
        let target = supervisor(is_claimed);
        let prober = &fixture.readiness;
        prober.ensure_probing(&key("a"), run(0), "10.0.0.1", target);
        sleep(2 * CLAIMED_SILENCE).await;
        assert_eq!(prober.result(&key("a"), &run(0)), result, "{is_claimed}");
    }
}

#[tokio::test(start_paused = true)]
async fn not_ready_requeues_only_once() {
    let fixture = probe_fixture(&[Some(Starting)]);
    fixture.probe(0);
    let first = fixture.next_result(0).await;
    assert_eq!(first, Some(ProbeResult::NotReady(None)));
    assert_eq!(fixture.next_result(0).await, None);
}

#[tokio::test(start_paused = true)]
async fn early_listener_is_detected_early() {
    let fixture = probe_fixture(&[[None; 6].as_slice(), &[Some(Ready)]].concat());
    let start = Instant::now();
    fixture.probe(0);
    assert_eq!(fixture.next_result(0).await, Some(ProbeResult::Ready));
    assert!(start.elapsed() < Duration::from_millis(150));
}

#[tokio::test(start_paused = true)]
async fn fast_not_ready_answers_are_polled_at_interval() {
    let fixture = probe_fixture(&[Some(Starting)]);
    fixture.probe(0);
    sleep(Duration::from_mins(1)).await;
    assert!(*fixture.supervisors.probes.lock() <= 300);
}

#[tokio::test(start_paused = true)]
async fn new_container_run_is_probed_again() {
    let fixture = probe_fixture(&[Some(Ready)]);
    fixture.probe(0);
    assert_eq!(fixture.next_result(0).await, Some(ProbeResult::Ready));
    assert_eq!(fixture.readiness.result(&key("a"), &run(1)), None);
    fixture.probe(1);
    assert_eq!(fixture.next_result(1).await, Some(ProbeResult::Ready));
}

/// A Pod keeps its container run, but not its address, when its node has restarted.
#[tokio::test(start_paused = true)]
async fn changed_address_of_a_container_run_is_probed() {
    let fixture = probe_fixture(&[]);
    fixture.supervisors.ready.lock().push("10.0.0.2".into());
    fixture.probe(0);
    assert_eq!(
        fixture.next_result(0).await,
        Some(ProbeResult::NotReady(None))
    );
    fixture.probe_at("a", run(0), "10.0.0.2");
    assert_eq!(fixture.next_result(0).await, Some(ProbeResult::Ready));
}

#[tokio::test(start_paused = true)]
async fn forgotten_sandbox_is_not_probed() {
    let fixture = probe_fixture(&[None]);
    fixture.probe(0);
    sleep(Duration::from_secs(1)).await;
    fixture.readiness.forget(&key("a"));
    let probes = *fixture.supervisors.probes.lock();
    sleep(Duration::from_mins(1)).await;
    assert_eq!(*fixture.supervisors.probes.lock(), probes);
}

#[tokio::test(start_paused = true)]
async fn port_probe_is_ready_when_port_accepts() {
    let fixture = probe_fixture(&[]);
    let (prober, target) = (&fixture.readiness, ProbeTarget::Port(80));
    prober.ensure_probing(&key("a"), run(0), "10.0.0.1", target);
    assert_eq!(fixture.next_result(0).await, Some(ProbeResult::Ready));
}

#[tokio::test(start_paused = true)]
async fn never_ready_sandboxes_do_not_delay_others() {
    let fixture = probe_fixture(&[]);
    for n in 0..1200 {
        let name = format!("never-{n}");
        fixture.probe_at(&name, run(0), &name);
    }
    let supervisors = &fixture.supervisors;
    for n in 0..12 {
        // At any moment of the other long polls.
        sleep(Duration::from_millis(1700)).await;
        let name = format!("soon-{n}");
        supervisors.ready.lock().push(name.clone());
        fixture.probe_at(&name, run(0), &name);
        let took = fixture.time_until_ready(&name).await;
        assert!(supervisors.running_long_polls() <= 1024);
        assert!(took <= Duration::from_millis(5), "{n}: {took:?}");
    }
    // Sandboxes without a long poll slot are probed rarely.
    let before = *supervisors.short_probes.lock();
    sleep(Duration::from_secs(30)).await;
    let probes = *supervisors.short_probes.lock() - before;
    assert!(probes <= 1200 * 30 / 2, "{probes}");
}

#[tokio::test(start_paused = true)]
async fn preempted_sandbox_still_becomes_ready() {
    let fixture = probe_fixture(&[]);
    fixture.probe_at("a", run(0), "first");
    sleep(Duration::from_secs(1)).await;
    for n in 0..1200 {
        fixture.probe_at(&n.to_string(), run(0), "never");
    }
    sleep(Duration::from_secs(30)).await;
    fixture.supervisors.ready.lock().push("first".into());
    let took = fixture.time_until_ready("a").await;
    assert!(took <= LONG_POLL_TIMEOUT, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn reports_not_ready_and_keeps_probing_when_node_is_silent() {
    let fixture = probe_fixture(&[[None; 60].as_slice(), &[Some(Ready)]].concat());
    let silent = ContainerRun {
        node_silent: true,
        ..run(0)
    };
    let prober = &fixture.readiness;
    fixture.probe_at("a", silent.clone(), "10.0.0.1");
    let mut results = Vec::new();
    for _ in 0..2 {
        fixture.next_result(0).await;
        results.push(prober.result(&key("a"), &silent).unwrap());
    }
    assert!(matches!(&results[0], ProbeResult::NotReady(Some(_))));
    assert_eq!(results[1], ProbeResult::Ready);
    assert_eq!(prober.result(&key("a"), &run(0)), None);
}
