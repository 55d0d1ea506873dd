//! Sandboxes that lack something: they say what, and come back by themselves once it is there.

use std::time::Duration;

use crds::SandboxPool;
use crds::conditions::Reason;
use crds::sandbox::{DesiredState, Phase};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Secret};
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::{DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams};
use operator::index::Entry;
use serde_json::{Value, json};
use tests::world::{Fate, World};
use tokio::time::{Instant, sleep};

/// The longest a sandbox may wait for what it has been given.
const SOON: Duration = Duration::from_secs(10);

/// Waits until a sandbox says this; fails unless its message has these words, its condition the
/// same, and there is a warning that says so.
async fn says(world: &World, name: &str, reason: Reason, words: &str) -> Entry {
    let entry = world.wait(name, |e| e.status.reason == Some(reason)).await;
    let entry = (*entry.unwrap()).clone();
    assert_eq!(entry.status.reason, Some(reason), "{:?}", entry.status);
    let told = entry.status.message.clone().unwrap_or_default();
    assert!(told.contains(words), "{told}");
    let ready = entry.status.conditions.iter().find(|c| c.type_ == "Ready");
    let ready = ready.map(|c| (c.status.as_str(), c.reason.as_str(), c.message.clone()));
    assert_eq!(ready, Some(("False", reason.as_str(), told)));
    // Events come a moment later.
    sleep(Duration::from_secs(5)).await;
    let events: Api<Event> = world.api_of();
    let events = events.list(&ListParams::default()).await.unwrap();
    let said = events.items.iter().any(|event| {
        let note = event.note.as_deref().unwrap_or_default();
        event.type_.as_deref() == Some("Warning") && note.contains(words)
    });
    assert!(said, "no event says {words:?}: {:#?}", events.items);
    entry
}

/// How often the controller has written a status.
fn statuses(world: &World) -> usize {
    let writes = world.controller_writes();
    let of = writes.iter().filter(|w| w.request.resource == "sandboxes");
    of.count()
}

async fn runs_soon(world: &World, name: &str) {
    let given = Instant::now();
    world.phase(name, Phase::Running).await;
    assert!(given.elapsed() <= SOON, "{:?}", given.elapsed());
}

async fn put_pool(world: &World, template: &Value) {
    let pool = json!({"apiVersion": "openhands.dev/v1alpha1", "kind": "SandboxPool",
        "metadata": {"name": "p"}, "spec": {"template": template}});
    let params = PatchParams::apply("test").force();
    let pools: Api<SandboxPool> = world.api_of();
    pools
        .patch("p", &params, &Patch::Apply(&pool))
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_pool_that_does_not_exist_is_waited_for() {
    let world = World::new();
    world.create_with("a", &json!({"pool": "p"})).await;
    let entry = says(&world, "a", Reason::PoolNotFound, "SandboxPool p").await;
    assert_eq!(entry.status.phase, Phase::Pending);
    // However long: this is nobody's failure.
    sleep(Duration::from_hours(5)).await;
    put_pool(&world, &json!({"image": "debian:12"})).await;
    runs_soon(&world, "a").await;
}

#[tokio::test(start_paused = true)]
async fn what_failed_because_of_its_pool_comes_back_when_the_pool_is_mended() {
    let mut world = World::new();
    let broken = json!({"image": "debian:12", "podTemplate": {"spec": {"hostPID": true}}});
    put_pool(&world, &broken).await;
    world.create_with("a", &json!({"pool": "p"})).await;
    let entry = says(&world, "a", Reason::InvalidSpec, "hostPID").await;
    assert_eq!(entry.status.phase, Phase::Failed);

    // Neither time nor another controller nor the same template brings it back.
    world.start_controller();
    put_pool(&world, &broken).await;
    world.quiet().await;
    let before = world.api.faults().total_writes();
    sleep(Duration::from_hours(5)).await;
    assert_eq!(world.api.faults().total_writes(), before);

    // A mend that mends nothing is told.
    let worse = json!({"image": "debian:12", "podTemplate": {"spec": {"hostIPC": true}}});
    put_pool(&world, &worse).await;
    let told = |e: &Entry| {
        e.status
            .message
            .as_ref()
            .is_some_and(|m| m.contains("hostIPC"))
    };
    let entry = world.wait("a", told).await.unwrap();
    assert_eq!(entry.status.phase, Phase::Failed);

    // Nor need the controller be there when the pool is mended.
    world.stop_controller();
    put_pool(&world, &json!({"image": "debian:12"})).await;
    world.start_controller();
    runs_soon(&world, "a").await;
}

#[tokio::test(start_paused = true)]
async fn a_missing_secret_is_named_and_waited_for() {
    let world = World::new();
    world.node.decide("a", Fate::LacksSecret);
    let from = json!({"secretKeyRef": {"name": "keys", "key": "k"}});
    let env = json!({"env": [{"name": "K", "valueFrom": from}]});
    world.create_with("a", &env).await;
    let words = "secret \"keys\" not found";
    let entry = says(&world, "a", Reason::ContainerConfig, words).await;
    assert_eq!(entry.status.phase, Phase::Starting);
    sleep(Duration::from_mins(12)).await;
    let secret = Secret {
        metadata: ObjectMeta {
            name: Some("keys".into()),
            ..ObjectMeta::default()
        },
        ..Secret::default()
    };
    let secrets: Api<Secret> = world.api_of();
    secrets
        .create(&PostParams::default(), &secret)
        .await
        .unwrap();
    // The node finds it.
    world.node.heal("a").await;
    runs_soon(&world, "a").await;
    assert_eq!(world.node.created().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_missing_storage_class_is_named_and_waited_for() {
    let world = World::new();
    world.node.decide("a", Fate::LacksVolume);
    let workspace = json!({"size": "1Gi", "storageClassName": "fast"});
    world
        .create_with("a", &json!({"workspace": workspace}))
        .await;
    let words = "storage class fast";
    let entry = says(&world, "a", Reason::Unschedulable, words).await;
    assert_eq!(entry.status.phase, Phase::Starting);
    sleep(Duration::from_mins(12)).await;
    // Somebody makes the class, and with it comes the volume.
    world.node.heal("a").await;
    runs_soon(&world, "a").await;
    assert_eq!(world.node.created().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_used_up_quota_is_told_once_and_tried_again_ever_more_slowly() {
    let mut world = World::without_controller();
    let quota = world.use_up_quota();
    world.start_controller();
    let patience = json!({"lifecycle": {"startTimeout": "24h"}});
    world.create_with("a", &patience).await;
    let entry = says(&world, "a", Reason::Refused, "exceeded quota: team").await;
    assert_eq!(entry.status.phase, Phase::Pending);

    let (before, asked) = (statuses(&world), quota.refused());
    sleep(Duration::from_hours(1)).await;
    assert_eq!(statuses(&world), before);
    let asked = quota.refused() - asked;
    assert!((10..=40).contains(&asked), "{asked} attempts in an hour");

    quota.make_room();
    let given = Instant::now();
    world.phase("a", Phase::Running).await;
    assert!(
        given.elapsed() <= Duration::from_mins(5),
        "{:?}",
        given.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn a_refusal_in_ever_new_words_is_not_woken_by_its_own_reports() {
    let mut world = World::without_controller();
    let policy = world.use_up_quota();
    policy.chat();
    world.api.faults().set_watch_lag(Duration::from_millis(50));
    world.start_controller();
    let patience = json!({"lifecycle": {"startTimeout": "24h"}});
    world.create_with("a", &patience).await;
    says(&world, "a", Reason::Refused, "denied the request: audit id").await;
    let (before, asked) = (statuses(&world), policy.refused());
    sleep(Duration::from_hours(1)).await;
    let (written, asked) = (statuses(&world) - before, policy.refused() - asked);
    assert!(asked <= 40, "{asked} attempts in an hour");
    assert_eq!(written, asked);
}

#[tokio::test(start_paused = true)]
async fn a_claim_on_its_way_out_is_not_taken_for_the_workspace() {
    let world = World::new();
    world.create("a").await;
    world.phase("a", Phase::Running).await;
    world.ask("a", DesiredState::Paused).await;
    world.phase("a", Phase::Paused).await;
    let claims: Api<PersistentVolumeClaim> = world.api_of();
    let finalizers = |all: Value| Patch::Merge(json!({"metadata": {"finalizers": all}}));
    let (name, params) = ("a-workspace", PatchParams::default());
    let held = finalizers(json!(["example.com/held"]));
    claims.patch(name, &params, &held).await.unwrap();
    claims.delete(name, &DeleteParams::default()).await.unwrap();

    world.ask("a", DesiredState::Running).await;
    let told = |e: &Entry| e.status.message.as_ref().is_some_and(|m| m.contains(name));
    let entry = world.wait("a", told).await.unwrap();
    let told = entry.status.message.clone().unwrap();
    assert!(told.contains("is still being deleted"), "{told}");
    sleep(Duration::from_mins(10)).await;
    assert_eq!(world.node.created().len(), 1);
    claims
        .patch(name, &params, &finalizers(Value::Null))
        .await
        .unwrap();
    runs_soon(&world, "a").await;
    let claim = claims.get(name).await.unwrap();
    assert_eq!(claim.metadata.deletion_timestamp, None);
}

#[tokio::test(start_paused = true)]
async fn pods_that_vanish_at_birth_are_made_at_a_pace_and_then_no_more() {
    let world = World::new();
    world.node.decide("a", Fate::Vanishes);
    world.create("a").await;
    let begun = Instant::now();
    let entry = world.phase("a", Phase::Failed).await;
    assert_eq!(entry.status.reason, Some(Reason::CrashLoop));
    assert!(
        begun.elapsed() >= Duration::from_secs(1),
        "{:?}",
        begun.elapsed()
    );
    assert_eq!(world.node.created().len(), 3);
}
