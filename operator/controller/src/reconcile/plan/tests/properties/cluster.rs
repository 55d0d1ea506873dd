//! A model of the environment of the planner: one sandbox, its Pod and node, and a controller that
//! can stop, lose its memory, and lose its writes.

mod invariants;

use super::super::*;
use crate::facts::ContainerRun;
use crate::sandbox_memory::SandboxMemory;

/// Reconciles at one moment after which a controller that still writes would write endlessly.
const SETTLED_AFTER: usize = 8;
/// Steps within which a healthy cluster must reach the desired state.
const HEALED_AFTER: usize = 100;

/// Source of the readiness of the sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReadinessSource {
    Supervised,
    Port,
    Kubelet,
}

/// A fault of the Pod or its node.
#[derive(Debug, Clone, Copy)]
pub(super) enum ModelFault {
    /// The command terminates.
    Ends(&'static str),
    BacksOff(&'static str),
    /// The command terminates and restarts between two reconciles.
    Restarts(&'static str),
    Evicted,
    Completed,
    Vanishes,
    DeletedByHand,
    NodeLost,
    Unknown,
    Trouble(StartProblemKind),
    Unschedulable,
}

/// The model.
#[derive(Debug)]
pub(super) struct ClusterModel {
    pub(super) fixture: PlanFixture,
    kind: ReadinessSource,
    memory: SandboxMemory,
    pods: u32,
    /// The last container run that was really ready.
    proven: Option<ContainerRun>,
    /// A controller process runs.
    pub(super) controller: bool,
    next: Option<Timestamp>,
    probes: bool,
    /// Uid of the last Pod that may have had an init message.
    initialized: Option<String>,
    checks_idle: bool,
    /// Time of the last activity in the sandbox.
    active_at: Timestamp,
    pub(super) lose_status_write: bool,
    pub(super) fail_action: bool,
    pub(super) deleted: bool,
}

impl ClusterModel {
    pub(super) fn new(kind: ReadinessSource, deadlines: Deadlines) -> Self {
        let mut fixture = PlanFixture::new();
        fixture.deadlines = deadlines;
        if kind != ReadinessSource::Supervised {
            fixture.deadlines.warm_resume_for = None;
        }
        fixture.probe.port = (kind == ReadinessSource::Port).then_some(8080);
        Self {
            fixture,
            kind,
            memory: SandboxMemory::default(),
            pods: 0,
            proven: None,
            controller: true,
            next: None,
            probes: false,
            initialized: None,
            checks_idle: false,
            active_at: Timestamp::MIN,
            lose_status_write: false,
            fail_action: false,
            deleted: false,
        }
    }

    pub(super) fn phase(&self) -> Phase {
        self.fixture.status().phase
    }

    pub(super) fn desired_state(&self) -> DesiredState {
        self.fixture.entry.desired_state()
    }

    /// The time as objects contain it.
    fn second(&self) -> Timestamp {
        Timestamp::from_second(self.fixture.now.as_second()).unwrap()
    }

    /// Sets the wake annotation.
    pub(super) fn wake(&mut self) {
        self.fixture.entry.wake_at = Some(self.second());
    }

    /// Activity in the sandbox.
    pub(super) fn record_activity(&mut self) {
        self.active_at = self.fixture.now;
    }

    /// Completes a requested idle check.
    pub(super) fn complete_idle_check(&mut self, known: bool) {
        if std::mem::take(&mut self.checks_idle) && self.controller && self.has_pod() {
            self.fixture.facts.idle = Some(IdleReport {
                checked_at: self.fixture.now,
                idle_since: known.then_some(self.active_at),
            });
        }
    }

    pub(super) fn has_pod(&self) -> bool {
        self.fixture.facts.pod.is_some()
    }

    /// Returns whether the Pod waits for a resume.
    pub(super) fn has_waiting_pod(&self) -> bool {
        let pod = self.fixture.facts.pod.as_ref();
        pod.is_some_and(|pod| pod.waits_for_resume(self.fixture.status()))
    }

    /// Starts a controller process without memory of the last one.
    pub(super) fn start_controller(&mut self) {
        if self.controller {
            return;
        }
        self.controller = true;
        self.memory = SandboxMemory::default();
        (self.probes, self.checks_idle) = (false, false);
        (self.fixture.facts.readiness, self.fixture.facts.idle) = (None, None);
        let pod = self.fixture.facts.pod.as_mut();
        if let Some(problem) = pod.and_then(|pod| pod.start_problem.as_mut()) {
            problem.since = Some(self.fixture.now);
        }
    }

    /// Reconciles at this moment until the plan is stable.
    pub(super) fn reconcile(&mut self) {
        for _ in 0..SETTLED_AFTER {
            if !self.controller || self.deleted || !self.step() {
                return;
            }
        }
        panic!("does not settle: {self:#?}");
    }

    fn plan(&mut self) -> Plan {
        let key = &self.fixture.entry.key;
        self.fixture.facts.replace_at = self.memory.earliest_replacement(key, self.fixture.now);
        let paused_at = self.fixture.status().paused_at.as_ref().map(|at| at.0);
        let count = paused_at.map_or(0, |at| self.memory.waiting_pods(key, at));
        self.fixture.facts.waiting_pods = count;
        self.fixture.plan()
    }

    /// One reconcile. Returns whether another one may have an effect.
    fn step(&mut self) -> bool {
        let plan = self.plan();
        self.check(&plan);
        self.probes = plan.probe_readiness;
        if let Some(pod) = self.fixture.facts.pod.as_ref().filter(|_| self.probes) {
            self.initialized = Some(pod.uid.clone());
        }
        self.checks_idle |= plan.check_idle;
        let acts = !plan.actions.is_empty();
        if acts && std::mem::take(&mut self.fail_action) {
            return true;
        }
        for action in &plan.actions {
            self.carry_out(action);
        }
        let status = stored(&plan.status);
        let writes = plan.write_status && status != self.fixture.entry.status;
        if writes && std::mem::take(&mut self.lose_status_write) {
            return true;
        }
        if writes {
            self.fixture.entry.status = status;
        }
        if plan.pod_lost {
            self.memory
                .record_replacement(&self.fixture.entry.key, self.fixture.now);
        }
        self.next = plan.requeue_at;
        acts || writes
    }

    fn carry_out(&mut self, action: &Action) {
        match action {
            Action::CreatePod { restarts } => self.create_pod(*restarts, None),
            Action::CreateWaitingPod { paused_at } => {
                self.create_pod(0, Some(*paused_at));
                let key = &self.fixture.entry.key;
                self.memory.record_waiting_pod(key, *paused_at);
            }
            Action::DeletePod { grace, .. } => {
                let ends = self.fixture.at(10);
                let pod = self.fixture.pod();
                if *grace == DeletionGrace::Force || pod.node.is_none() {
                    self.lose_pod();
                } else {
                    pod.grace_ends_at = ends;
                }
            }
            Action::DeleteSandbox => self.deleted = true,
            _ => {}
        }
    }

    fn create_pod(&mut self, restarts: u32, created_in_pause: Option<Timestamp>) {
        self.pods += 1;
        self.forget_reports();
        self.fixture.facts.pod = Some(PodFacts {
            uid: format!("pod-{}", self.pods),
            created_at: Some(self.second()),
            ip: None,
            node: None,
            restarts_before: restarts,
            created_in_pause,
            supervised: self.kind == ReadinessSource::Supervised,
            ..waiting_pod()
        });
    }

    fn lose_pod(&mut self) {
        self.fixture.facts.pod = None;
        self.forget_reports();
    }

    /// Forgets reports about an earlier container run.
    fn forget_reports(&mut self) {
        (self.fixture.facts.readiness, self.fixture.facts.idle) = (None, None);
        self.checks_idle = false;
    }

    /// Advances the time. The controller reconciles when its requeue is due, and must be idle
    /// before.
    pub(super) fn advance(&mut self, seconds: i64) {
        let until = self.fixture.now + SignedDuration::from_secs(seconds);
        for _ in 0..1000 {
            let acts = self.controller && !self.deleted;
            let Some(due) = self.next.filter(|at| *at <= until && acts) else {
                self.fixture.now = until;
                self.check_no_change();
                return;
            };
            let before = due - SignedDuration::from_millis(1);
            if before > self.fixture.now {
                self.fixture.now = before;
                self.check_no_change();
            }
            self.fixture.now = due.max(self.fixture.now) + SignedDuration::from_millis(1);
            self.reconcile();
        }
        panic!("requeues endlessly: {self:#?}");
    }

    /// Completes a readiness probe, if one is running.
    pub(super) fn complete_probe(&mut self, answer: ProbeResult) {
        let probes = self.probes && self.controller;
        let Some(pod) = self.fixture.facts.pod.as_mut() else {
            return;
        };
        let runs = matches!(pod.container.state, ContainerState::Running { .. });
        if !runs || pod.phase != PodPhase::Running || pod.grace_ends_at.is_some() {
            return;
        }
        if self.kind == ReadinessSource::Kubelet {
            pod.ready = answer == ProbeResult::Ready;
        } else if probes {
            pod.ready = answer == ProbeResult::Ready;
            if pod.ready {
                self.proven = Some(pod.container_run());
            }
            self.fixture.facts.readiness = Some(answer);
        }
    }

    /// The node advances the Pod by one step.
    pub(super) fn progress(&mut self) {
        let now = self.second();
        let Some(pod) = self.fixture.facts.pod.as_mut() else {
            return;
        };
        let lost = pod.phase == PodPhase::Unknown || pod.reason.is_some();
        if pod.grace_ends_at.is_some() && !lost {
            return self.lose_pod();
        }
        if matches!(pod.phase, PodPhase::Failed | PodPhase::Succeeded) || lost {
            return;
        }
        if pod.unschedulable.take().is_some() || pod.start_problem.take().is_some() {
            return;
        }
        match pod.container.state {
            ContainerState::Running { .. } => {}
            ContainerState::Waiting => run(pod, now),
            ContainerState::BackingOff | ContainerState::Terminated => {
                pod.container.restarts += 1;
                run(pod, now);
                self.forget_reports();
            }
        }
    }

    pub(super) fn inject(&mut self, fault: ModelFault) {
        let now = self.second();
        let Some(pod) = self.fixture.facts.pod.as_mut() else {
            return;
        };
        let runs = matches!(pod.container.state, ContainerState::Running { .. });
        let waits = pod.container.state == ContainerState::Waiting;
        match fault {
            ModelFault::Ends(why) if runs => ends(pod, ContainerState::Terminated, why),
            ModelFault::BacksOff(why) if runs => ends(pod, ContainerState::BackingOff, why),
            ModelFault::Restarts(why) if runs => {
                ends(pod, ContainerState::Terminated, why);
                pod.container.restarts += 1;
                run(pod, now);
                self.forget_reports();
            }
            ModelFault::Evicted => fails(pod, PodPhase::Failed, Some("Evicted")),
            ModelFault::Completed if runs => fails(pod, PodPhase::Succeeded, None),
            ModelFault::Vanishes => self.lose_pod(),
            ModelFault::DeletedByHand if pod.grace_ends_at.is_none() => {
                pod.grace_ends_at = Some(now + SignedDuration::from_secs(10));
            }
            ModelFault::NodeLost => fails(pod, pod.phase, Some("NodeLost")),
            ModelFault::Unknown => fails(pod, PodPhase::Unknown, None),
            ModelFault::Trouble(kind) if waits => {
                pod.start_problem = Some(start_problem(kind, now));
            }
            ModelFault::Unschedulable if waits && pod.node.is_none() => {
                pod.unschedulable = Some("no node is large enough".into());
            }
            _ => {}
        }
    }

    /// Ends all faults and runs the model until it is stable.
    pub(super) fn heal(&mut self) {
        self.start_controller();
        (self.lose_status_write, self.fail_action) = (false, false);
        let state = |fixture: &PlanFixture| (fixture.facts.clone(), fixture.status().clone());
        for _ in 0..HEALED_AFTER {
            self.reconcile();
            let before = state(&self.fixture);
            self.progress();
            self.complete_probe(ProbeResult::Ready);
            self.record_activity();
            self.complete_idle_check(true);
            self.reconcile();
            let after = state(&self.fixture);
            let at_rest = !matches!(self.phase(), Phase::Starting | Phase::Pausing)
                && (!self.has_pod() || self.has_waiting_pod() || self.phase() == Phase::Running);
            if self.deleted || (before == after && at_rest) {
                return;
            }
            if before == after {
                let next = self.next.expect("the controller waits without a requeue");
                let wait = next.duration_since(self.fixture.now).as_secs().max(0) + 1;
                self.advance(wait);
            }
        }
        panic!("does not converge: {self:#?}");
    }
}

fn run(pod: &mut PodFacts, now: Timestamp) {
    pod.node = Some("node-1".into());
    // The worst case: the IP is reused at once.
    pod.ip = Some("10.0.0.1".into());
    pod.phase = PodPhase::Running;
    let started_at = Some(now);
    pod.container.state = ContainerState::Running { started_at };
}

fn ends(pod: &mut PodFacts, state: ContainerState, why: &str) {
    pod.ready = false;
    pod.container.state = state;
    pod.container.last_termination = Some(why.to_owned());
}

fn fails(pod: &mut PodFacts, phase: PodPhase, reason: Option<&str>) {
    pod.ready = false;
    pod.phase = phase;
    pod.reason = reason.map(str::to_owned);
}
