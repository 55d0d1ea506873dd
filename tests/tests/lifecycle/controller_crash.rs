//! The controller ends at any moment, and another one goes on (`docs/architecture.md`, invariant 8).

use std::time::Duration;

use crds::conditions::Reason;
use crds::contract::persistence::{KeptState, PersistenceLevel};
use crds::sandbox::{DesiredState, PauseReason, Phase, PodStatus};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::ResourceExt as _;
use kube::api::DeleteParams;
use operator::controller::facts::PAUSE_ANNOTATION;
use serde_json::{Value, json};
use tests::test_cluster::{PodScript, TestCluster};
use tokio::time::sleep;

/// More writes than any of the stories needs.
const MAX_WRITES: usize = 30;
const LAG: Duration = Duration::from_secs(2);

/// Change of a sandbox that the controller has to handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scenario {
    Start,
    Pause,
    Resume,
    /// Pause and resume of a sandbox whose state is saved before its Pod goes.
    SavedPause,
    SavedResume,
    /// Pause after which a Pod waits for the resume, and that resume.
    WarmPause,
    WarmResume,
    Stop,
    PodDeleted,
    Evicted,
    NodeLost,
    OutOfMemory,
    /// The volume claim disappears while the sandbox is paused, and then it is resumed.
    VolumeLost,
    IdlePause,
    SavedIdlePause,
    Wake,
    MaxRunTime,
    PausedTooLong,
    FailedTooLong,
    StoppedTooLong,
}

/// Changes by owners, and faults of Pods.
const FAULTS: [Scenario; 13] = [
    Scenario::Start,
    Scenario::Pause,
    Scenario::Resume,
    Scenario::SavedPause,
    Scenario::SavedResume,
    Scenario::WarmPause,
    Scenario::WarmResume,
    Scenario::Stop,
    Scenario::PodDeleted,
    Scenario::Evicted,
    Scenario::NodeLost,
    Scenario::OutOfMemory,
    Scenario::VolumeLost,
];

/// Changes by the controller itself, when a deadline passes.
const DEADLINES: [Scenario; 7] = [
    Scenario::IdlePause,
    Scenario::SavedIdlePause,
    Scenario::Wake,
    Scenario::MaxRunTime,
    Scenario::PausedTooLong,
    Scenario::FailedTooLong,
    Scenario::StoppedTooLong,
];

/// The deadline of each of those stories.
const DEADLINE: &str = "10m";
const BEYOND: Duration = Duration::from_mins(11);

/// Observable end state of a run.
#[derive(Debug, PartialEq)]
struct FinalState {
    status: Option<EndStatus>,
    pods: Vec<String>,
    claims: Vec<String>,
    /// The workspace is the one of before.
    same_claim: bool,
}

#[derive(Debug, PartialEq)]
struct EndStatus {
    phase: Phase,
    reason: Option<Reason>,
    pod_status: Option<PodStatus>,
    pause_reason: Option<PauseReason>,
    restarts: u32,
    persisted: Option<PersistenceLevel>,
    restored: Option<PersistenceLevel>,
    incarnation: u32,
    /// It has the URL that follows from its id.
    own_url: bool,
}

impl Scenario {
    /// A cluster just before it happens.
    async fn prepare(self) -> TestCluster {
        let cluster = TestCluster::new();
        if self == Self::Start {
            return cluster;
        }
        if self == Self::FailedTooLong {
            cluster.node.script_next_pod("a", PodScript::NeverReady);
        }
        let level = self.level();
        cluster.supervisors.keep(KeptState::of(level));
        cluster
            .create_with(
                "a",
                &json!({"lifecycle": self.lifecycle(), "persistence": level}),
            )
            .await;
        self.bring_about(&cluster).await;
        cluster.wait_until_quiet().await;
        cluster
    }

    fn level(self) -> PersistenceLevel {
        match self {
            Self::SavedPause
            | Self::SavedResume
            | Self::SavedIdlePause
            | Self::WarmPause
            | Self::WarmResume => PersistenceLevel::Root,
            _ => PersistenceLevel::Workspace,
        }
    }

    fn lifecycle(self) -> Value {
        match self {
            Self::IdlePause | Self::SavedIdlePause | Self::Wake => json!({"idleTimeout": DEADLINE}),
            Self::WarmPause | Self::WarmResume => json!({"warmResumeFor": "10h"}),
            Self::MaxRunTime => json!({"maxRunTime": DEADLINE}),
            Self::PausedTooLong => json!({"deletePausedAfter": DEADLINE}),
            Self::FailedTooLong => json!({"startTimeout": "1m", "deletePausedAfter": DEADLINE}),
            Self::StoppedTooLong => json!({"deleteStoppedAfter": DEADLINE}),
            _ => json!({}),
        }
    }

    async fn bring_about(self, cluster: &TestCluster) {
        if self == Self::FailedTooLong {
            cluster.wait_for_phase("a", Phase::Failed).await;
            return;
        }
        cluster.wait_for_phase("a", Phase::Running).await;
        match self {
            Self::Resume
            | Self::SavedResume
            | Self::WarmResume
            | Self::VolumeLost
            | Self::PausedTooLong => {
                cluster.bring("a", DesiredState::Paused).await;
            }
            Self::Wake => {
                cluster.supervisors.all_idle_for(Some(BEYOND));
                cluster.wait_for_phase("a", Phase::Paused).await;
                cluster.supervisors.all_idle_for(None);
            }
            Self::StoppedTooLong => {
                cluster.bring("a", DesiredState::Stopped).await;
            }
            _ => {}
        }
    }

    async fn trigger(self, cluster: &TestCluster) {
        match self {
            Self::Start => drop(cluster.create("a").await),
            Self::Pause | Self::SavedPause | Self::WarmPause => {
                cluster.set_state("a", DesiredState::Paused).await;
            }
            Self::Resume | Self::SavedResume | Self::WarmResume => {
                cluster.set_state("a", DesiredState::Running).await;
            }
            Self::Stop => cluster.set_state("a", DesiredState::Stopped).await,
            Self::PodDeleted => cluster.delete_pod_now("a").await,
            Self::Evicted => cluster.node.evict("a").await,
            Self::NodeLost => cluster.node.lose_node("a").await,
            Self::OutOfMemory => cluster.node.restart("a", "OOMKilled").await,
            Self::VolumeLost => {
                let claims = cluster.api_of::<PersistentVolumeClaim>();
                let now = DeleteParams::default();
                claims.delete("a-workspace", &now).await.unwrap();
                cluster.set_state("a", DesiredState::Running).await;
            }
            Self::Wake => cluster.wake("a").await,
            Self::IdlePause | Self::SavedIdlePause => {
                cluster.supervisors.all_idle_for(Some(BEYOND));
                sleep(BEYOND).await;
            }
            _ => sleep(BEYOND).await,
        }
    }
}

async fn claim_uid(cluster: &TestCluster) -> Option<String> {
    let claims = cluster.api_of::<PersistentVolumeClaim>();
    let claim = claims.get_opt("a-workspace").await.unwrap();
    claim.and_then(|c| c.uid())
}

async fn end(cluster: &TestCluster, claim_before: Option<String>) -> FinalState {
    let sandbox = cluster.sandboxes().get_opt("a").await.unwrap();
    let status = sandbox.and_then(|s| s.status).map(|status| EndStatus {
        own_url: status
            .url
            .unwrap_or_default()
            .contains(&status.runtime_id.unwrap()),
        phase: status.phase,
        reason: status.reason,
        pod_status: status.pod_status,
        pause_reason: status.pause_reason,
        restarts: status.restarts.count,
        persisted: status.persisted.map(|state| state.level),
        restored: status.restored.map(|state| state.level),
        incarnation: status.incarnation,
    });
    let claim = claim_uid(cluster).await;
    FinalState {
        status,
        pods: cluster.names::<Pod>().await,
        claims: cluster.names::<PersistentVolumeClaim>().await,
        same_claim: claim.is_some() && claim == claim_before,
    }
}

/// The reason of a lost Pod may be lost with a crash, but never the count.
async fn check_reasons(story: Scenario, cluster: &TestCluster) {
    if story == Scenario::StoppedTooLong {
        return;
    }
    let reasons = cluster.status("a").await.restarts.reasons;
    let expected: &[&str] = match story {
        Scenario::PodDeleted => &["Deleted"],
        Scenario::Evicted => &["Evicted", "Deleted"],
        Scenario::NodeLost => &["NodeLost", "Deleted"],
        Scenario::OutOfMemory => &["OOMKilled"],
        _ => return assert!(reasons.is_empty(), "{story:?}: {reasons:?}"),
    };
    let known = reasons.iter().all(|r| expected.contains(&r.as_str()));
    assert!(reasons.len() == 1 && known, "{story:?}: {reasons:?}");
}

/// A Pod that waits for a resume never had an init message; the resume took it.
async fn check_waiting_pod(story: Scenario, cluster: &TestCluster) {
    if !matches!(story, Scenario::WarmPause | Scenario::WarmResume) {
        return;
    }
    let pod = cluster.api_of::<Pod>().get("a").await.unwrap();
    assert!(pod.annotations().contains_key(PAUSE_ANNOTATION));
    let pod = pod.uid().unwrap();
    let is_initialized = cluster.supervisors.inits().iter().any(|init| init.0 == pod);
    assert_eq!(is_initialized, story == Scenario::WarmResume);
}

/// Tells a story in which the controller dies at its `nth` write, and the next ones at every
/// write if `always`. Whether one died, and how it ended.
async fn run_scenario(
    story: Scenario,
    lag: Duration,
    nth: usize,
    always: bool,
) -> (bool, FinalState) {
    let mut cluster = story.prepare().await;
    let claim = claim_uid(&cluster).await;
    cluster.faults().set_watch_lag(lag);
    cluster.arm_crash(nth);
    story.trigger(&cluster).await;
    let crashed = cluster.await_crash().await;
    let mut dies = crashed;
    for life in 0.. {
        if !dies {
            break;
        }
        assert!(life < MAX_WRITES, "{story:?} never ends");
        if always {
            cluster.arm_crash(nth);
        }
        cluster.start_controller();
        dies = cluster.await_crash().await;
    }
    cluster.wait_until_quiet().await;
    cluster.node.assert_single_pod();
    check_reasons(story, &cluster).await;
    check_waiting_pod(story, &cluster).await;
    cluster.assert_unchanged_for(Duration::from_mins(20)).await;
    (crashed, end(&cluster, claim).await)
}

async fn survives_a_crash_after_any_write(stories: &[Scenario], lag: Duration) {
    for &story in stories {
        let (_, undisturbed) = run_scenario(story, lag, usize::MAX, false).await;
        for nth in 1..=MAX_WRITES {
            let (crashed, end) = run_scenario(story, lag, nth, false).await;
            assert_eq!(end, undisturbed, "{story:?}, crash after write {nth}");
            if !crashed {
                assert!(nth > 1, "{story:?} wrote nothing");
                break;
            }
            assert!(nth < MAX_WRITES, "{story:?} never ends");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn crash_after_any_write_keeps_final_state() {
    survives_a_crash_after_any_write(&FAULTS, Duration::ZERO).await;
}

#[tokio::test(start_paused = true)]
async fn crash_after_any_write_keeps_final_state_when_watches_lag() {
    survives_a_crash_after_any_write(&FAULTS, LAG).await;
}

#[tokio::test(start_paused = true)]
async fn crash_after_any_write_at_a_deadline_keeps_final_state() {
    survives_a_crash_after_any_write(&DEADLINES, Duration::ZERO).await;
}

#[tokio::test(start_paused = true)]
async fn crash_after_any_write_at_a_deadline_keeps_final_state_when_watches_lag() {
    survives_a_crash_after_any_write(&DEADLINES, LAG).await;
}

#[tokio::test(start_paused = true)]
async fn controllers_that_crash_at_every_second_write_converge() {
    // The removal of a tombstone is a single write.
    let several = |story: &Scenario| *story != Scenario::StoppedTooLong;
    for story in FAULTS.into_iter().chain(DEADLINES).filter(several) {
        for lag in [Duration::ZERO, LAG] {
            let (_, undisturbed) = run_scenario(story, lag, usize::MAX, false).await;
            let (crashed, end) = run_scenario(story, lag, 2, true).await;
            assert!(crashed, "{story:?} took a single write");
            assert_eq!(end, undisturbed, "{story:?}");
        }
    }
}
