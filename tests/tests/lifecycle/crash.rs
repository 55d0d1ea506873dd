//! The controller ends at any moment, and another one goes on (design 9, invariant 8).

use std::time::Duration;

use crds::conditions::Reason;
use crds::sandbox::{DesiredState, PauseReason, Phase, PodStatus};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::ResourceExt as _;
use kube::api::DeleteParams;
use serde_json::{Value, json};
use tests::world::{Fate, World};
use tokio::time::sleep;

/// More writes than any of the stories needs.
const MOST_WRITES: usize = 30;
const LAG: Duration = Duration::from_secs(2);

/// What happens to a sandbox that the controller has to answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Story {
    Start,
    Pause,
    Resume,
    Stop,
    PodDeleted,
    Evicted,
    NodeLost,
    OutOfMemory,
    /// The volume claim disappears while the sandbox is paused, and then it is resumed.
    VolumeLost,
    IdlePause,
    Wake,
    MaxRunTime,
    PausedTooLong,
    FailedTooLong,
    StoppedTooLong,
}

/// What owners ask for, and what happens to Pods.
const ACCIDENTS: [Story; 9] = [
    Story::Start,
    Story::Pause,
    Story::Resume,
    Story::Stop,
    Story::PodDeleted,
    Story::Evicted,
    Story::NodeLost,
    Story::OutOfMemory,
    Story::VolumeLost,
];

/// What the controller does by itself, when its time has come.
const DEADLINES: [Story; 6] = [
    Story::IdlePause,
    Story::Wake,
    Story::MaxRunTime,
    Story::PausedTooLong,
    Story::FailedTooLong,
    Story::StoppedTooLong,
];

/// The deadline of each of those stories.
const DEADLINE: &str = "10m";
const BEYOND: Duration = Duration::from_mins(11);

/// Everything that somebody could tell the difference by.
#[derive(Debug, PartialEq)]
struct End {
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
    /// It has the URL that follows from its id.
    own_url: bool,
}

impl Story {
    /// A world just before it happens.
    async fn prepare(self) -> World {
        let world = World::new();
        if self == Self::Start {
            return world;
        }
        if self == Self::FailedTooLong {
            world.node.decide("a", Fate::NeverReady);
        }
        world
            .create_with("a", &json!({"lifecycle": self.lifecycle()}))
            .await;
        self.bring_about(&world).await;
        world.quiet().await;
        world
    }

    fn lifecycle(self) -> Value {
        match self {
            Self::IdlePause | Self::Wake => json!({"idleTimeout": DEADLINE}),
            Self::MaxRunTime => json!({"maxRunTime": DEADLINE}),
            Self::PausedTooLong => json!({"deletePausedAfter": DEADLINE}),
            Self::FailedTooLong => json!({"startTimeout": "1m", "deletePausedAfter": DEADLINE}),
            Self::StoppedTooLong => json!({"deleteStoppedAfter": DEADLINE}),
            _ => json!({}),
        }
    }

    async fn bring_about(self, world: &World) {
        if self == Self::FailedTooLong {
            world.phase("a", Phase::Failed).await;
            return;
        }
        world.phase("a", Phase::Running).await;
        match self {
            Self::Resume | Self::VolumeLost | Self::PausedTooLong => {
                world.ask("a", DesiredState::Paused).await;
                world.phase("a", Phase::Paused).await;
            }
            Self::Wake => {
                world.supervisors.all_idle_for(Some(BEYOND));
                world.phase("a", Phase::Paused).await;
                world.supervisors.all_idle_for(None);
            }
            Self::StoppedTooLong => {
                world.ask("a", DesiredState::Stopped).await;
                world.phase("a", Phase::Stopped).await;
            }
            _ => {}
        }
    }

    async fn happen(self, world: &World) {
        match self {
            Self::Start => drop(world.create("a").await),
            Self::Pause => world.ask("a", DesiredState::Paused).await,
            Self::Resume => world.ask("a", DesiredState::Running).await,
            Self::Stop => world.ask("a", DesiredState::Stopped).await,
            Self::PodDeleted => world.lose_pod("a").await,
            Self::Evicted => world.node.evict("a").await,
            Self::NodeLost => world.node.lose("a").await,
            Self::OutOfMemory => world.node.restart("a", "OOMKilled").await,
            Self::VolumeLost => {
                let claims = world.api_of::<PersistentVolumeClaim>();
                let now = DeleteParams::default();
                claims.delete("a-workspace", &now).await.unwrap();
                world.ask("a", DesiredState::Running).await;
            }
            Self::Wake => world.wake("a").await,
            Self::IdlePause => {
                world.supervisors.all_idle_for(Some(BEYOND));
                sleep(BEYOND).await;
            }
            _ => sleep(BEYOND).await,
        }
    }
}

async fn claim_uid(world: &World) -> Option<String> {
    let claims = world.api_of::<PersistentVolumeClaim>();
    let claim = claims.get_opt("a-workspace").await.unwrap();
    claim.and_then(|c| c.uid())
}

async fn end(world: &World, claim_before: Option<String>) -> End {
    let sandbox = world.sandboxes().get_opt("a").await.unwrap();
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
    });
    let claim = claim_uid(world).await;
    End {
        status,
        pods: world.names::<Pod>().await,
        claims: world.names::<PersistentVolumeClaim>().await,
        same_claim: claim.is_some() && claim == claim_before,
    }
}

/// What a Pod was lost to may be forgotten together with it, but never that one was lost.
async fn check_reasons(story: Story, world: &World) {
    if story == Story::StoppedTooLong {
        return;
    }
    let reasons = world.status("a").await.restarts.reasons;
    let expected: &[&str] = match story {
        Story::PodDeleted => &["Deleted"],
        Story::Evicted => &["Evicted", "Deleted"],
        Story::NodeLost => &["NodeLost", "Deleted"],
        Story::OutOfMemory => &["OOMKilled"],
        _ => return assert!(reasons.is_empty(), "{story:?}: {reasons:?}"),
    };
    let known = reasons.iter().all(|r| expected.contains(&r.as_str()));
    assert!(reasons.len() == 1 && known, "{story:?}: {reasons:?}");
}

/// Tells a story in which the controller dies at its `nth` write, and the next ones at every
/// write if `always`. Whether one died, and how it ended.
async fn tell(story: Story, lag: Duration, nth: usize, always: bool) -> (bool, End) {
    let mut world = story.prepare().await;
    let claim = claim_uid(&world).await;
    world.api.faults().set_watch_lag(lag);
    world.arm_crash(nth);
    story.happen(&world).await;
    let crashed = world.await_crash().await;
    let mut dies = crashed;
    for life in 0.. {
        if !dies {
            break;
        }
        assert!(life < MOST_WRITES, "{story:?} never ends");
        if always {
            world.arm_crash(nth);
        }
        world.start_controller();
        dies = world.await_crash().await;
    }
    world.quiet().await;
    world.node.assert_no_doubles();
    check_reasons(story, &world).await;
    let before = world.api.revision();
    sleep(Duration::from_mins(20)).await;
    assert_eq!(
        world.api.revision(),
        before,
        "{story:?}: writes without a reason"
    );
    (crashed, end(&world, claim).await)
}

async fn survives_a_crash_after_any_write(stories: &[Story], lag: Duration) {
    for &story in stories {
        let (_, undisturbed) = tell(story, lag, usize::MAX, false).await;
        for nth in 1..=MOST_WRITES {
            let (crashed, end) = tell(story, lag, nth, false).await;
            assert_eq!(end, undisturbed, "{story:?}, crash after write {nth}");
            if !crashed {
                assert!(nth > 1, "{story:?} wrote nothing");
                break;
            }
            assert!(nth < MOST_WRITES, "{story:?} never ends");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_crash_after_any_write_changes_nothing_in_the_end() {
    survives_a_crash_after_any_write(&ACCIDENTS, Duration::ZERO).await;
}

#[tokio::test(start_paused = true)]
async fn a_crash_after_any_write_changes_nothing_while_watches_lag() {
    survives_a_crash_after_any_write(&ACCIDENTS, LAG).await;
}

#[tokio::test(start_paused = true)]
async fn a_crash_after_any_write_at_a_deadline_changes_nothing_in_the_end() {
    survives_a_crash_after_any_write(&DEADLINES, Duration::ZERO).await;
}

#[tokio::test(start_paused = true)]
async fn a_crash_after_any_write_at_a_deadline_changes_nothing_while_watches_lag() {
    survives_a_crash_after_any_write(&DEADLINES, LAG).await;
}

#[tokio::test(start_paused = true)]
async fn controllers_that_all_die_at_their_second_write_get_there_too() {
    // The removal of a tombstone is a single write.
    let several = |story: &Story| *story != Story::StoppedTooLong;
    for story in ACCIDENTS.into_iter().chain(DEADLINES).filter(several) {
        for lag in [Duration::ZERO, LAG] {
            let (_, undisturbed) = tell(story, lag, usize::MAX, false).await;
            let (crashed, end) = tell(story, lag, 2, true).await;
            assert!(crashed, "{story:?} took a single write");
            assert_eq!(end, undisturbed, "{story:?}");
        }
    }
}
