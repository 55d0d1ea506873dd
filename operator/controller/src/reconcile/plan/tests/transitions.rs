//! One fixture per transition: a sandbox in some phase, and the fact that leads out of it.

use super::*;
use DesiredState::{Paused, Running, Stopped};

/// A row of the table in `docs/lifecycle.md`.
pub(super) struct Transition {
    pub(super) description: &'static str,
    pub(super) fixture: PlanFixture,
    /// Rejection of the planned actions.
    pub(super) rejection: Option<ActionRejection>,
}

type Row = (&'static str, PlanFixture);

pub(super) fn transitions() -> Vec<Transition> {
    let rejected = rejections().into_iter().map(|(row, reason, is_terminal)| {
        let rejection = rejection(reason, is_terminal);
        (row, Some(rejection))
    });
    let new = new_objects().into_iter().map(|row| (row, None));
    let later = [
        starts(),
        unsupervised(),
        start_problems(),
        running(),
        lost_pods(),
        pauses(),
        final_phases(),
    ];
    let later = later.into_iter().flatten().map(|row| (row, None));
    let all = new.chain(rejected).chain(later);
    all.map(|((description, fixture), rejection)| Transition {
        description,
        fixture,
        rejection,
    })
    .collect()
}

impl PlanFixture {
    fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    fn with_pod(mut self, change: impl FnOnce(&mut PodFacts)) -> Self {
        change(self.pod());
        self
    }

    fn without_pod(self) -> Self {
        self.with(Self::lose_pod)
    }

    fn wants(self, state: DesiredState) -> Self {
        self.with(|it| it.set_desired_state(state))
    }

    fn woken(self) -> Self {
        self.with(|it| it.entry.wake_at = Some(it.now))
    }

    fn ready(self) -> Self {
        self.with(|it| it.facts.readiness = Some(ProbeResult::Ready))
    }

    fn not_ready(self) -> Self {
        self.with(|it| it.facts.readiness = Some(ProbeResult::NotReady(None)))
    }

    fn decided(self, quota: QuotaDecision) -> Self {
        self.with(|it| it.facts.quota = quota)
    }

    fn later(self, seconds: i64) -> Self {
        self.with(|it| it.advance(seconds))
    }

    /// Grace period of the Pod that ends in so many seconds.
    fn terminating(self, seconds: i64) -> Self {
        let ends = self.at(seconds);
        self.with_pod(|pod| pod.grace_ends_at = ends)
    }

    fn idle_for(self, seconds: impl Into<Option<i64>>) -> Self {
        self.with(|it| it.report_idle_for(seconds))
    }

    /// A start problem since now.
    fn with_problem(self, kind: StartProblemKind) -> Self {
        let problem = start_problem(kind, self.now);
        self.with_pod(|pod| pod.start_problem = Some(problem))
    }

    /// A command that terminated so many times.
    fn crashed(self, times: u32) -> Self {
        let container = terminated(ContainerState::BackingOff, times - 1, "exit code 1");
        self.with_pod(|pod| pod.container = container)
    }

    /// Planned so far.
    fn planned(mut self) -> Self {
        self.plan_and_apply();
        self
    }
}

const HOUR: i64 = 3600;
const START_TIMEOUT: i64 = 15 * 60;

/// A sandbox whose Pod has just been created.
fn started() -> PlanFixture {
    let mut fixture = PlanFixture::starting();
    fixture.facts.pod = Some(PodFacts {
        ip: None,
        ..waiting_pod()
    });
    fixture.later(4)
}

/// A sandbox whose Pod has an address.
fn addressed() -> PlanFixture {
    started().with(|it| it.facts.pod = Some(pod()))
}

/// A sandbox that was queued for quota.
fn waiting() -> PlanFixture {
    PlanFixture::new().decided(queued()).planned()
}

fn idle() -> PlanFixture {
    let mut fixture = PlanFixture::running();
    fixture.deadlines.idle_timeout = Some(10 * MINUTE);
    fixture.later(600).idle_for(600)
}

/// An idle pause whose Pod still runs.
fn pausing_idle() -> PlanFixture {
    idle().planned()
}

fn paused_idle() -> PlanFixture {
    pausing_idle().without_pod().planned()
}

fn stopped() -> PlanFixture {
    let running = PlanFixture::running().wants(Stopped);
    running.without_pod().planned()
}

fn failed() -> PlanFixture {
    let failed = started().with_problem(StartProblemKind::ImageName);
    failed.planned().with(|it| it.facts.pod = None)
}

/// Paused sandboxes are deleted after an hour.
fn expiring(mut fixture: PlanFixture) -> PlanFixture {
    fixture.deadlines.delete_paused_after = Some(60 * MINUTE);
    fixture
}

/// A sandbox without a command.
fn plain(port: Option<u16>) -> PlanFixture {
    let mut fixture = addressed().with_pod(|pod| pod.supervised = false);
    fixture.spec().command = None;
    fixture.probe.port = port;
    fixture
}

fn new_objects() -> Vec<Row> {
    let new = PlanFixture::new;
    let without_pool = new().with(|it| {
        it.spec().pool = Some("default".into());
        it.facts.pool_missing = true;
    });
    let exhausted = new().decided(queued());
    let admitted = waiting().decided(QuotaDecision::Admitted);
    let overdue = waiting().later(START_TIMEOUT);
    let exceeded = QuotaDecision::Exceeded("the sandbox requests too much".into());
    let exceeded = new().decided(exceeded);
    let paused = new().wants(Paused);
    vec![
        ("a new object", new()),
        ("its pool does not exist", without_pool),
        ("the quota of the API key is exhausted", exhausted),
        ("… and quota becomes available", admitted),
        ("… and `startTimeout` has passed", overdue),
        ("it requests more than the API key allows", exceeded),
        ("`state: Paused` at creation", paused),
    ]
}

/// Objects whose Pod is rejected, with the reason and whether the rejection is terminal.
fn rejections() -> Vec<(Row, Reason, bool)> {
    let invalid = "the spec, completed from its pool, is invalid";
    let by_policy =
        "the Pod is rejected by policy or `ResourceQuota`: retried, at least every five minutes";
    let foreign = "a Pod, PVC or Secret of that name has another owner: retried likewise";
    let terminating = "an earlier PVC or Pod of this name is still terminating";
    let (new, lost) = (PlanFixture::new, PlanFixture::running().without_pod());
    vec![
        ((invalid, new()), Reason::InvalidSpec, true),
        ((by_policy, new()), Reason::Refused, false),
        ((foreign, new()), Reason::NameTaken, false),
        ((terminating, new()), Reason::CreatingPod, false),
        (
            ("the replacement Pod is rejected", lost),
            Reason::Refused,
            false,
        ),
    ]
}

fn starts() -> Vec<Row> {
    let full = |pod: &mut PodFacts| pod.unschedulable = Some("0/3 nodes are available".into());
    vec![
        ("the Pod is scheduled, or its image pulled", started()),
        ("the Pod is unschedulable", started().with_pod(full)),
        ("the Pod has an IP", addressed()),
        ("the command runs and is not ready", addressed().not_ready()),
        ("the readiness probe succeeds", addressed().ready()),
        ("`startTimeout` has passed", started().later(START_TIMEOUT)),
        ("`state: Paused`", started().wants(Paused)),
        ("`state: Stopped`", started().wants(Stopped)),
    ]
}

fn unsupervised() -> Vec<Row> {
    let ready = |port| plain(port).with_pod(|pod| pod.ready = true);
    let refusing = "no command, a port: the Pod is `Ready`, the port does not accept";
    vec![
        ("no command, no port: the Pod is not `Ready`", plain(None)),
        ("… the Pod is `Ready` and has run for 2 s", ready(None)),
        (refusing, ready(Some(8000)).not_ready()),
        ("… the port accepts", ready(Some(8000)).ready()),
    ]
}

fn start_problems() -> Vec<Row> {
    use StartProblemKind::{ContainerConfig, ImageName, ImagePull, MissingReference, NoCommand};
    let problem = |kind| started().with_problem(kind).planned();
    let lost = "persistentvolumeclaim \"a-workspace\" not found";
    let claim_lost = started().with_pod(|pod| pod.unschedulable = Some(lost.into()));
    let no_command = started().with_problem(NoCommand);
    let missing = "a Secret or ConfigMap is missing, until `startTimeout`";
    let secret_lost = started().with_problem(MissingReference).with_pod(|pod| {
        pod.environment_secret = Some("a-1-sbx-env".into());
        if let Some(problem) = &mut pod.start_problem {
            problem.message = "secret \"a-1-sbx-env\" not found".into();
        }
    });
    vec![
        ("the image cannot be pulled", problem(ImagePull)),
        ("… for two minutes", problem(ImagePull).later(120)),
        ("invalid image name", started().with_problem(ImageName)),
        ("neither image nor spec has a command", no_command),
        (
            "the container configuration is invalid",
            problem(ContainerConfig),
        ),
        ("… for two minutes", problem(ContainerConfig).later(120)),
        (missing, problem(MissingReference).later(120)),
        ("… the environment Secret of this Pod", secret_lost),
        ("the command terminated once or twice", started().crashed(1)),
        ("the command terminated three times", started().crashed(3)),
        ("the PVC was deleted", claim_lost),
    ]
}

fn running() -> Vec<Row> {
    let running = PlanFixture::running;
    let forgotten = || running().with(|it| it.facts.readiness = None);
    let restarted = forgotten().later(600).with(|it| {
        it.pod().container = terminated(ContainerState::Waiting, 1, "OOMKilled");
        it.run_container();
    });
    let failing = running().not_ready();
    let failed = failing.clone().planned().later(START_TIMEOUT);
    let unchecked = idle().with(|it| it.facts.idle = None);
    let overdue = running().with(|it| it.deadlines.max_run_time = Some(60 * MINUTE));
    vec![
        ("no change", running()),
        ("the controller was restarted", forgotten()),
        (
            "the container restarted, for example after `OOMKilled`",
            restarted,
        ),
        ("the readiness probe fails", failing),
        ("… for `startTimeout`", failed),
        ("`idleTimeout` has passed since it was ready", unchecked),
        ("… and there is no activity", idle()),
        ("… and the idle time is unknown", idle().idle_for(None)),
        ("`maxRunTime` has passed", overdue.later(HOUR)),
        ("`state: Paused`", running().wants(Paused)),
        ("`state: Stopped`", running().wants(Stopped)),
    ]
}

fn lost_pods() -> Vec<Row> {
    let running = PlanFixture::running;
    let in_phase = |phase| running().with_pod(|pod| pod.phase = phase);
    let evicted = in_phase(PodPhase::Failed).with_pod(|pod| pod.reason = Some("Evicted".into()));
    let silent = running().with_pod(|pod| pod.node_silent = true);
    let unreachable = silent.clone().not_ready();
    let early = PlanFixture::new().with(|it| it.facts.had_lost_pod = true);
    let backing_off = running().without_pod();
    let backing_off = backing_off.with(|it| it.facts.replace_at = it.at(8));
    let deleted = "the Pod is being deleted, by hand or by preemption";
    let stuck = running().terminating(0).planned().later(30);
    vec![
        ("the Pod was evicted", evicted),
        ("the Pod terminated", in_phase(PodPhase::Succeeded)),
        ("the node of the Pod is lost", in_phase(PodPhase::Unknown)),
        ("the node is silent, and the sandbox responds", silent),
        ("… and the sandbox does not respond", unreachable),
        (deleted, running().terminating(10)),
        ("… and still exists 30 s after its grace period", stuck),
        ("the Pod is gone", running().without_pod()),
        ("the Pod is gone before the first status", early),
        (
            "… repeatedly: the replacement waits for the backoff",
            backing_off,
        ),
    ]
}

fn pauses() -> Vec<Row> {
    let confirmed = |seconds: i64| pausing_idle().later(2).idle_for(seconds);
    let resumed = || PlanFixture::paused().wants(Running);
    let (seen, woken) = (pausing_idle().later(2), pausing_idle().woken());
    let cancelled = "… there was activity: the pause is cancelled";
    let early = resumed()
        .with(|it| it.facts.pod = Some(pod()))
        .terminating(10);
    let stopped = PlanFixture::paused().wants(Stopped);
    let expired = expiring(PlanFixture::paused()).later(HOUR);
    let warm = PlanFixture::paused().with(|it| it.deadlines.warm_resume_for = Some(60 * MINUTE));
    let waiting = warm.clone().with(|it| {
        let created_in_pause = it.entry.status.paused_at.as_ref().map(|at| at.0);
        it.facts.pod = Some(PodFacts {
            created_in_pause,
            ..pod()
        });
    });
    vec![
        ("idle: every gateway has seen the pause", seen),
        ("… and there is still no activity", confirmed(700)),
        (cancelled, confirmed(1)),
        ("a request arrived: the pause is cancelled", woken),
        ("the Pod is gone", pausing_idle().without_pod()),
        ("idle: a request or a resume arrived", paused_idle().woken()),
        ("idle: `state: Paused`", paused_idle().wants(Paused)),
        ("`state: Running`", resumed()),
        ("… while the old Pod is terminating", early),
        ("`warmResumeFor` is set", warm),
        ("… and `state: Running`", waiting.clone().wants(Running)),
        ("… and `warmResumeFor` has passed", waiting.later(HOUR)),
        ("`deletePausedAfter` has passed", expired),
        ("`state: Stopped`", stopped),
    ]
}

fn final_phases() -> Vec<Row> {
    let changed_pool = failed().with(|it| {
        it.entry.status.pool_revision = Some("old".into());
        it.facts.pool_revision = Some("new".into());
    });
    let expired = expiring(PlanFixture::paused()).later(HOUR);
    let expired = expired
        .with(|it| it.entry.status = it.plan().status)
        .planned();
    let expired = expired.wants(Running);
    let deleted = PlanFixture::running().with(|it| it.entry.deleting = true);
    let changed_spec = failed().with(|it| it.entry.generation += 1);
    let expired_failure = expiring(failed()).planned().later(HOUR);
    let tombstone = stopped().later(24 * HOUR);
    let woken = failed().woken();
    vec![
        ("no change", failed()),
        ("the spec was changed", changed_spec),
        ("the wake annotation is newer than the start", woken),
        ("the template of its pool was changed", changed_pool),
        ("`deletePausedAfter` has passed", expired_failure),
        ("`deleteStoppedAfter` has passed", tombstone),
        ("expired, `state: Running`", expired),
        (
            "the object is being deleted; Kubernetes deletes the owned objects",
            deleted,
        ),
    ]
}
