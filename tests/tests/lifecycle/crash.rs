//! The controller ends at any moment, and another one goes on.

use std::time::Duration;

use crds::sandbox::{DesiredState, Phase};
use k8s_openapi::api::core::v1::Pod;
use tests::world::World;

/// Ends the controller after each revision of the API, until `reached` holds without.
async fn restart_at_every_write(world: &mut World, name: &str, reached: Phase) {
    for _ in 0..100 {
        let revision = world.api.revision();
        world.start_controller();
        // Let it get as far as one more write.
        for _ in 0..10_000 {
            if world.api.revision() > revision {
                break;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        world.stop_controller();
        let sandbox = world.sandboxes().get(name).await.unwrap();
        if sandbox.status.is_some_and(|s| s.phase == reached) {
            return;
        }
    }
    panic!("{name} never became {reached:?}");
}

#[tokio::test(start_paused = true)]
async fn a_crash_after_any_write_changes_nothing_in_the_end() {
    let mut world = World::without_controller();
    world.create("a").await;
    restart_at_every_write(&mut world, "a", Phase::Running).await;
    assert_eq!(world.names::<Pod>().await, ["a"]);

    world.ask("a", DesiredState::Paused).await;
    restart_at_every_write(&mut world, "a", Phase::Paused).await;
    assert!(world.names::<Pod>().await.is_empty());

    world.ask("a", DesiredState::Running).await;
    restart_at_every_write(&mut world, "a", Phase::Running).await;
    assert_eq!(world.names::<Pod>().await, ["a"]);

    world.ask("a", DesiredState::Stopped).await;
    restart_at_every_write(&mut world, "a", Phase::Stopped).await;
    assert!(world.names::<Pod>().await.is_empty());
}
