//! A model of everything around the planner: one sandbox, its Pod and node, and a controller that
//! can end, forget what it had in memory, and lose its writes.

use crds::sandbox::{PauseReason, Phase};

use super::super::*;
use crate::controller::facts::{Quiet, Run};
use crate::controller::pace::Pace;

/// Passes at one moment after which a controller that still writes would write for ever.
const SETTLED_AFTER: usize = 8;
/// Steps in which a healthy cluster has to bring a sandbox to where it shall be.
const HEALED_AFTER: usize = 100;

/// Who says that the sandbox is ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Supervised,
    Port,
    Kubelet,
}

/// What may happen to a Pod.
#[derive(Debug, Clone, Copy)]
pub(super) enum Fault {
    /// The command ends.
    Ends(&'static str),
    BacksOff(&'static str),
    /// The command ends and is started again before anybody looks.
    Restarts(&'static str),
    Evicted,
    Completed,
    Vanishes,
    DeletedByHand,
    NodeLost,
    Unknown,
    Trouble(TroubleKind),
    Unschedulable,
}

/// The model.
#[derive(Debug)]
pub(super) struct Cluster {
    pub(super) world: World,
    kind: Kind,
    pace: Pace,
    pods: u32,
    /// The last run of a container that has really been ready.
    proven: Option<Run>,
    controller: bool,
    next: Option<Timestamp>,
    asks: bool,
    asks_quiet: bool,
    /// When something last happened in the sandbox.
    active_at: Timestamp,
    pub(super) lose_report: bool,
    pub(super) fail_action: bool,
    pub(super) deleted: bool,
}

impl Cluster {
    pub(super) fn new(kind: Kind, deadlines: Deadlines) -> Self {
        let mut world = World::new();
        world.deadlines = deadlines;
        world.port = (kind == Kind::Port).then_some(8080);
        Self {
            world,
            kind,
            pace: Pace::default(),
            pods: 0,
            proven: None,
            controller: true,
            next: None,
            asks: false,
            asks_quiet: false,
            active_at: Timestamp::MIN,
            lose_report: false,
            fail_action: false,
            deleted: false,
        }
    }

    pub(super) fn phase(&self) -> Phase {
        self.world.status().phase
    }

    pub(super) fn wanted(&self) -> DesiredState {
        self.world.entry.wanted()
    }

    /// A gateway asks the sandbox to be awake, or a person does.
    pub(super) fn wake(&mut self) {
        let now = Timestamp::from_second(self.world.now.as_second()).unwrap();
        self.world.entry.wake_at = Some(now);
    }

    /// Something happens in the sandbox.
    pub(super) fn use_it(&mut self) {
        self.active_at = self.world.now;
    }

    /// The sandbox and the gateways say since when nothing happened, if they were asked.
    pub(super) fn answer_quiet(&mut self, known: bool) {
        if std::mem::take(&mut self.asks_quiet) && self.controller && self.has_pod() {
            self.world.facts.quiet = Some(Quiet {
                asked: self.world.now,
                since: known.then_some(self.active_at),
            });
        }
    }

    pub(super) fn has_pod(&self) -> bool {
        self.world.facts.pod.is_some()
    }

    /// The owner asks for a state; asking for the same one again is a change too, as of a label
    /// in the spec.
    pub(super) fn want(&mut self, state: DesiredState) {
        self.world.want(state);
    }

    pub(super) fn end_controller(&mut self) {
        self.controller = false;
    }

    /// A new process, which knows nothing but what the API says.
    pub(super) fn start_controller(&mut self) {
        if self.controller {
            return;
        }
        self.controller = true;
        self.pace = Pace::default();
        (self.asks, self.asks_quiet) = (false, false);
        (self.world.facts.answer, self.world.facts.quiet) = (None, None);
        let now = self.world.now;
        let trouble = self
            .world
            .facts
            .pod
            .as_mut()
            .and_then(|p| p.trouble.as_mut());
        if let Some(trouble) = trouble {
            trouble.since = Some(now);
        }
    }

    /// Passes at this moment, until there is nothing left to do.
    pub(super) fn reconcile(&mut self) {
        for _ in 0..SETTLED_AFTER {
            if !self.controller || self.deleted || !self.step() {
                return;
            }
        }
        panic!("never settles: {self:#?}");
    }

    /// One pass. Whether there may be more to do.
    fn step(&mut self) -> bool {
        let key = &self.world.entry.key;
        self.world.facts.replace_at = self.pace.next(key, self.world.now);
        let plan = self.world.plan();
        self.check(&plan);
        self.asks = plan.asks;
        self.asks_quiet |= plan.asks_quiet;
        let acts = !plan.actions.is_empty();
        if acts && std::mem::take(&mut self.fail_action) {
            return true;
        }
        for action in &plan.actions {
            self.carry_out(action);
        }
        let status = stored(&plan.status);
        let writes = plan.reports && status != self.world.entry.status;
        if writes && std::mem::take(&mut self.lose_report) {
            return true;
        }
        if writes {
            self.world.entry.status = status;
        }
        if plan.lost {
            self.pace.note(&self.world.entry.key, self.world.now);
        }
        self.next = plan.next;
        acts || writes
    }

    fn carry_out(&mut self, action: &Action) {
        let now = self.world.now;
        match action {
            Action::CreateClaim | Action::DeleteClaim | Action::DeleteSecret => {}
            Action::CreatePod { restarts } => {
                self.pods += 1;
                self.forget_answers();
                self.world.facts.pod = Some(PodFacts {
                    uid: format!("pod-{}", self.pods),
                    created_at: Some(Timestamp::from_second(now.as_second()).unwrap()),
                    phase: PodPhase::Pending,
                    ip: None,
                    node: None,
                    restarts_before: *restarts,
                    supervised: self.kind == Kind::Supervised,
                    container: Container::default(),
                    ..pod()
                });
            }
            Action::DeletePod { grace, .. } => {
                let pod = self.world.pod();
                if *grace == Grace::None || pod.node.is_none() {
                    self.lose_pod();
                } else {
                    pod.deletion = Some(now + SignedDuration::from_secs(10));
                }
            }
            Action::DeleteSandbox => self.deleted = true,
        }
    }

    fn lose_pod(&mut self) {
        self.world.facts.pod = None;
        self.forget_answers();
    }

    /// What was said is of an earlier run of the container.
    fn forget_answers(&mut self) {
        (self.world.facts.answer, self.world.facts.quiet) = (None, None);
        self.asks_quiet = false;
    }

    /// Lets time pass. The controller looks when it said it would, and has nothing to do before.
    pub(super) fn pass(&mut self, seconds: i64) {
        let until = self.world.now + SignedDuration::from_secs(seconds);
        for _ in 0..1000 {
            let due = self
                .next
                .filter(|at| *at <= until && self.controller && !self.deleted);
            let Some(due) = due else {
                self.world.now = until;
                self.check_quiet();
                return;
            };
            let before = due - SignedDuration::from_millis(1);
            if before > self.world.now {
                self.world.now = before;
                self.check_quiet();
            }
            self.world.now = due.max(self.world.now) + SignedDuration::from_millis(1);
            self.reconcile();
        }
        panic!("looks again and again: {self:#?}");
    }

    /// The sandbox is answered for by its supervisor or port, if it is asked.
    pub(super) fn answer(&mut self, answer: Answer) {
        let asks = self.asks && self.controller;
        let Some(pod) = self.world.facts.pod.as_mut() else {
            return;
        };
        let runs = matches!(pod.container.state, ContainerState::Running { .. });
        if !runs || pod.phase != PodPhase::Running || pod.deletion.is_some() {
            return;
        }
        if self.kind == Kind::Kubelet {
            pod.ready = answer == Answer::Ready;
        } else if asks {
            pod.ready = answer == Answer::Ready;
            if pod.ready {
                self.proven = Some(pod.run());
            }
            self.world.facts.answer = Some(answer);
        }
    }

    /// The node does the next thing that it has to do for the Pod.
    pub(super) fn progress(&mut self) {
        let now = Timestamp::from_second(self.world.now.as_second()).unwrap();
        let Some(pod) = self.world.facts.pod.as_mut() else {
            return;
        };
        let lost = pod.phase == PodPhase::Unknown || pod.reason.is_some();
        if pod.deletion.is_some() && !lost {
            return self.lose_pod();
        }
        if matches!(pod.phase, PodPhase::Failed | PodPhase::Succeeded) || lost {
            return;
        }
        if pod.unschedulable.take().is_some() || pod.trouble.take().is_some() {
            return;
        }
        match pod.container.state {
            ContainerState::Running { .. } => {}
            ContainerState::Waiting => run(pod, now),
            ContainerState::BackingOff | ContainerState::Ended => {
                pod.container.restarts += 1;
                run(pod, now);
                self.forget_answers();
            }
        }
    }

    pub(super) fn suffer(&mut self, fault: Fault) {
        let now = Timestamp::from_second(self.world.now.as_second()).unwrap();
        let Some(pod) = self.world.facts.pod.as_mut() else {
            return;
        };
        let runs = matches!(pod.container.state, ContainerState::Running { .. });
        let waits = pod.container.state == ContainerState::Waiting;
        match fault {
            Fault::Ends(why) if runs => ends(pod, ContainerState::Ended, why),
            Fault::BacksOff(why) if runs => ends(pod, ContainerState::BackingOff, why),
            Fault::Restarts(why) if runs => {
                ends(pod, ContainerState::Ended, why);
                pod.container.restarts += 1;
                run(pod, now);
                self.forget_answers();
            }
            Fault::Evicted => fails(pod, PodPhase::Failed, Some("Evicted")),
            Fault::Completed if runs => fails(pod, PodPhase::Succeeded, None),
            Fault::Vanishes => self.lose_pod(),
            Fault::DeletedByHand if pod.deletion.is_none() => {
                pod.deletion = Some(now + SignedDuration::from_secs(10));
            }
            Fault::NodeLost => fails(pod, pod.phase, Some("NodeLost")),
            Fault::Unknown => fails(pod, PodPhase::Unknown, None),
            Fault::Trouble(kind) if waits => pod.trouble = Some(trouble(kind, now)),
            Fault::Unschedulable if waits && pod.node.is_none() => {
                pod.unschedulable = Some("no node is large enough".into());
            }
            _ => {}
        }
    }

    /// Ends all faults and lets everybody do their work until nothing moves any more.
    pub(super) fn heal(&mut self) {
        self.start_controller();
        (self.lose_report, self.fail_action) = (false, false);
        for _ in 0..HEALED_AFTER {
            self.reconcile();
            let before = format!("{:?}", (&self.world.facts, &self.world.entry.status));
            self.progress();
            self.answer(Answer::Ready);
            self.use_it();
            self.answer_quiet(true);
            self.reconcile();
            let after = format!("{:?}", (&self.world.facts, &self.world.entry.status));
            let at_rest =
                !matches!(self.phase(), Phase::Starting | Phase::Pausing) && !self.fading();
            if self.deleted || (before == after && at_rest) {
                return;
            }
            if before == after {
                let next = self
                    .next
                    .expect("somebody waits for something, and nobody looks");
                let wait = next.duration_since(self.world.now).as_secs().max(0) + 1;
                self.pass(wait);
            }
        }
        panic!("does not converge: {self:#?}");
    }

    /// A Pod that is not wanted is still there.
    fn fading(&self) -> bool {
        self.has_pod() && self.phase() != Phase::Running
    }

    /// Nothing happened, so there is nothing to do and nothing to say.
    fn check_quiet(&mut self) {
        if !self.controller || self.deleted || self.lose_report || self.fail_action {
            return;
        }
        let key = &self.world.entry.key;
        self.world.facts.replace_at = self.pace.next(key, self.world.now);
        let plan = self.world.plan();
        assert_eq!(plan.actions, [], "without a reason: {self:#?}");
        if plan.reports {
            assert_eq!(
                stored(&plan.status),
                *self.world.status(),
                "without a reason"
            );
        }
        assert_eq!(plan.next, self.next, "another deadline without a reason");
    }

    /// What must hold of every plan.
    fn check(&self, plan: &Plan) {
        let pod = self.world.facts.pod.as_ref();
        for action in &plan.actions {
            match action {
                Action::CreatePod { .. } => {
                    assert_eq!(pod, None, "a second Pod");
                    assert_eq!(self.wanted(), DesiredState::Running, "nobody wants a Pod");
                }
                Action::DeletePod { uid, .. } => assert_eq!(Some(uid), pod.map(|p| &p.uid)),
                Action::DeleteSandbox => assert_eq!(self.wanted(), DesiredState::Stopped),
                Action::CreateClaim | Action::DeleteClaim | Action::DeleteSecret => {}
            }
        }
        let ready = condition(&plan.status, "Ready");
        let runs = plan.status.phase == Phase::Running;
        assert_eq!(ready.as_deref() == Some("True"), runs, "{:?}", plan.status);
        match plan.status.phase {
            Phase::Running => self.check_running(plan),
            Phase::Paused => assert_eq!(pod, None, "paused with a Pod"),
            Phase::Failed => assert_eq!(plan.status.pod_name, None, "failed with a Pod"),
            Phase::Pausing => self.check_pausing(plan),
            _ => {}
        }
        assert!(
            plan.next.is_none_or(|at| at > self.world.now),
            "{plan:#?} at {}",
            self.world.now
        );
    }

    /// Nobody's work is paused away: the sandbox was asked a moment ago, and was idle for long enough.
    fn check_pausing(&self, plan: &Plan) {
        let begins = self.phase() == Phase::Running;
        if !begins || plan.status.pause_reason != Some(PauseReason::Idle) {
            return;
        }
        let quiet = self.world.facts.quiet.expect("paused by guess");
        let age = self.world.now.duration_since(quiet.asked);
        assert!(age <= SignedDuration::from_secs(5), "asked {age} ago");
        let limit = self.world.deadlines.idle_timeout.expect("a timeout");
        let idle = self
            .world
            .now
            .duration_since(quiet.since.expect("an answer"));
        assert!(
            idle >= SignedDuration::try_from(limit).unwrap(),
            "idle for {idle}"
        );
        assert_eq!(plan.actions, [], "cut off before the gateways know");
    }

    /// Only what has answered in its present run is said to run.
    fn check_running(&self, plan: &Plan) {
        let pod = self
            .world
            .facts
            .pod
            .as_ref()
            .expect("running without a Pod");
        assert_eq!(
            self.wanted(),
            DesiredState::Running,
            "running against the wish"
        );
        assert_eq!(
            (pod.deletion, pod.phase),
            (None, PodPhase::Running),
            "{pod:#?}"
        );
        assert!(pod.ip.is_some() && plan.status.pod_ip == pod.ip);
        let runs = matches!(pod.container.state, ContainerState::Running { .. });
        assert!(runs, "running, and its container does not");
        if self.kind == Kind::Kubelet {
            assert!(pod.ready, "running against the kubelet's word");
        } else {
            assert_eq!(
                self.proven,
                Some(pod.run()),
                "said to run before it answered"
            );
            let denied = matches!(self.world.facts.answer, Some(Answer::NotReady(_)));
            assert!(!denied, "said to run, and it denies it");
        }
    }
}

fn run(pod: &mut PodFacts, now: Timestamp) {
    pod.node = Some("node-1".into());
    // The worst case: addresses are given out again at once.
    pod.ip = Some("10.0.0.1".into());
    pod.phase = PodPhase::Running;
    pod.container.state = ContainerState::Running {
        started_at: Some(now),
    };
}

fn ends(pod: &mut PodFacts, state: ContainerState, why: &str) {
    pod.ready = false;
    pod.container.state = state;
    pod.container.last_end = Some(why.to_owned());
}

fn fails(pod: &mut PodFacts, phase: PodPhase, reason: Option<&str>) {
    pod.ready = false;
    pod.phase = phase;
    pod.reason = reason.map(str::to_owned);
}
