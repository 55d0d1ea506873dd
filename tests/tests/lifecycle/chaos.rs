//! A day on which almost every third Pod meets with an accident, and what is left of it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crds::Sandbox;
use crds::sandbox::{DesiredState, Phase};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::api::DeleteParams;
use serde_json::json;
use tests::world::{Dice, World};
use tokio::time::sleep;

/// Sandboxes of the first day, and of the one on which watches lag.
const MANY: u64 = 1000;
const SOME: u64 = 120;
const DAY: Duration = Duration::from_hours(24);
/// Somebody changes their mind this often.
const WISHES: Duration = Duration::from_secs(100);

/// What owners ask for, by the name of the sandbox.
type Wishes = BTreeMap<String, DesiredState>;

async fn begin(world: &World, size: u64) -> Wishes {
    let spec = json!({"lifecycle": {"startTimeout": "10m", "deleteStoppedAfter": "999h"}});
    let mut wishes = Wishes::new();
    for number in 0..size {
        let name = format!("s{number}");
        world.create_with(&name, &spec).await;
        wishes.insert(name, DesiredState::Running);
    }
    wishes
}

/// One owner changes their mind; stopped sandboxes are deleted and made anew.
async fn wish(world: &World, dice: &mut Dice, wishes: &mut Wishes) {
    use DesiredState::{Paused, Running, Stopped};
    let name = format!("s{}", dice.below(wishes.len() as u64));
    let state = match (wishes[&name], dice.below(8)) {
        (Stopped, _) => {
            let params = DeleteParams::default();
            world.sandboxes().delete(&name, &params).await.unwrap();
            while world.sandboxes().get_opt(&name).await.unwrap().is_some() {
                sleep(Duration::from_millis(10)).await;
            }
            world.create(&name).await;
            Running
        }
        (_, 0) => Stopped,
        (_, 1..4) => Paused,
        _ => Running,
    };
    world.ask(&name, state).await;
    wishes.insert(name, state);
}

/// What was given up is started anew by its owner. How many there were.
async fn retry_failed(world: &World) -> usize {
    let failed = world.index.list(|e| e.status.phase == Phase::Failed);
    for entry in &failed {
        world.ask(&entry.key.name, DesiredState::Paused).await;
        world.phase(&entry.key.name, Phase::Paused).await;
        world.ask(&entry.key.name, DesiredState::Running).await;
    }
    failed.len()
}

fn is_as_wished(phase: Phase, wish: DesiredState) -> bool {
    match wish {
        DesiredState::Running => phase == Phase::Running,
        DesiredState::Paused => phase == Phase::Paused,
        DesiredState::Stopped => phase == Phase::Stopped,
    }
}

/// Nothing is missing, and nothing is left over.
async fn check(world: &World, wishes: &Wishes) {
    let wanted = |states: &[DesiredState], suffix: &str| -> BTreeSet<String> {
        let of = wishes.iter().filter(|(_, wish)| states.contains(wish));
        of.map(|(name, _)| format!("{name}{suffix}")).collect()
    };
    let pods: BTreeSet<_> = world.names::<Pod>().await.into_iter().collect();
    assert_eq!(pods, wanted(&[DesiredState::Running], ""));
    let claims = world.names::<PersistentVolumeClaim>().await;
    let keep = [DesiredState::Running, DesiredState::Paused];
    assert_eq!(
        claims.into_iter().collect::<BTreeSet<_>>(),
        wanted(&keep, "-workspace")
    );
    assert_eq!(world.names::<Sandbox>().await.len(), wishes.len());
    world.node.assert_no_doubles();
}

async fn live_through(seed: u64, size: u64, lag: Duration) {
    let world = World::new();
    let mut dice = Dice::new(seed);
    world.api.faults().set_watch_lag(lag);
    world.node.let_accidents_happen(seed, 30);
    let mut wishes = begin(&world, size).await;
    let truth = tokio::spawn(world.watch_for_lies());
    let evening = tokio::time::Instant::now() + DAY;
    while tokio::time::Instant::now() < evening {
        sleep(WISHES).await;
        wish(&world, &mut dice, &mut wishes).await;
    }
    let accidents = world.node.end_accidents();
    world.node.heal_all().await;
    sleep(Duration::from_hours(4)).await;
    let failed = retry_failed(&world).await;
    let made = world.node.created().len();
    println!("seed {seed}: {made} Pods, {accidents} accidents, {failed} given up at the end");
    // Three bad starts in a row are rare: giving up is not how a day is survived.
    assert!(
        failed * 10 < usize::try_from(size).unwrap(),
        "{failed} of {size} were given up"
    );
    let reached = world.all(Duration::from_mins(1), |e| {
        is_as_wished(e.status.phase, wishes[&e.key.name])
    });
    reached.await;
    world.quiet().await;
    check(&world, &wishes).await;
    assert!(accidents * 100 > made * 25, "{accidents} of {made}");
    assert!(!truth.is_finished(), "somebody lied: {:?}", truth.await);
}

#[tokio::test(start_paused = true)]
async fn after_a_day_of_accidents_every_sandbox_is_what_its_owner_asked_for() {
    live_through(1, MANY, Duration::ZERO).await;
}

#[tokio::test(start_paused = true)]
async fn after_a_day_of_accidents_and_lag_every_sandbox_is_what_its_owner_asked_for() {
    live_through(2, SOME, Duration::from_secs(2)).await;
}
