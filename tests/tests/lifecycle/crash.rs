//! The controller ends at any moment, and another one goes on (design 9, invariant 8).

use std::time::Duration;

use crds::sandbox::{DesiredState, Phase, PodStatus};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::ResourceExt as _;
use kube::api::DeleteParams;
use tests::world::World;

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
}

const STORIES: [Story; 9] = [
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

/// Everything that somebody could tell the difference by.
#[derive(Debug, PartialEq)]
struct End {
    phase: Phase,
    pod_status: Option<PodStatus>,
    restarts: u32,
    url: Option<String>,
    id: Option<String>,
    pods: Vec<String>,
    claims: Vec<String>,
    /// The workspace is the one of before.
    same_claim: bool,
}

impl Story {
    /// A world just before it happens.
    async fn prepare(self) -> World {
        let world = World::new();
        if self == Self::Start {
            return world;
        }
        world.create("a").await;
        world.phase("a", Phase::Running).await;
        if matches!(self, Self::Resume | Self::VolumeLost) {
            world.ask("a", DesiredState::Paused).await;
            world.phase("a", Phase::Paused).await;
        }
        world.quiet().await;
        world
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
        }
    }
}

async fn claim_uid(world: &World) -> Option<String> {
    let claims = world.api_of::<PersistentVolumeClaim>();
    let claim = claims.get_opt("a-workspace").await.unwrap();
    claim.and_then(|c| c.uid())
}

async fn end(world: &World, claim_before: Option<String>) -> End {
    let status = world.status("a").await;
    let claim = claim_uid(world).await;
    End {
        phase: status.phase,
        pod_status: status.pod_status,
        restarts: status.restarts.count,
        url: status
            .url
            .map(|url| url.replace(status.runtime_id.as_deref().unwrap(), "ID")),
        id: status.runtime_id.map(|id| id.len().to_string()),
        pods: world.names::<Pod>().await,
        claims: world.names::<PersistentVolumeClaim>().await,
        same_claim: claim.is_some() && claim == claim_before,
    }
}

/// What a Pod was lost to may be forgotten together with it, but never that one was lost.
async fn check_reasons(story: Story, world: &World) {
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
    tokio::time::sleep(Duration::from_mins(20)).await;
    assert_eq!(
        world.api.revision(),
        before,
        "{story:?}: writes without a reason"
    );
    (crashed, end(&world, claim).await)
}

async fn survives_a_crash_after_any_write(lag: Duration) {
    for story in STORIES {
        let (_, undisturbed) = tell(story, lag, usize::MAX, false).await;
        for nth in 1..=MOST_WRITES {
            let (died, end) = tell(story, lag, nth, false).await;
            assert_eq!(end, undisturbed, "{story:?}, crash after write {nth}");
            if !died {
                assert!(nth > 1, "{story:?} wrote nothing");
                break;
            }
            assert!(nth < MOST_WRITES, "{story:?} never ends");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_crash_after_any_write_changes_nothing_in_the_end() {
    survives_a_crash_after_any_write(Duration::ZERO).await;
}

#[tokio::test(start_paused = true)]
async fn a_crash_after_any_write_changes_nothing_while_watches_lag() {
    survives_a_crash_after_any_write(LAG).await;
}

#[tokio::test(start_paused = true)]
async fn controllers_that_all_die_at_their_second_write_get_there_too() {
    for story in STORIES {
        for lag in [Duration::ZERO, LAG] {
            let (_, undisturbed) = tell(story, lag, usize::MAX, false).await;
            let (died, end) = tell(story, lag, 2, true).await;
            assert!(died, "{story:?} took a single write");
            assert_eq!(end, undisturbed, "{story:?}");
        }
    }
}
