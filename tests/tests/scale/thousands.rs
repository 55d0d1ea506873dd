//! Two thousand Sandboxes start at once, live on under a new controller, and go: what that costs in
//! writes (`docs/architecture.md`, invariant 4).

use std::time::Duration;

use crds::Sandbox;
use futures::StreamExt as _;
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams};
use serde_json::json;
use tests::audit::{Writes, writes, writes_by_object};
use tests::cli_tools::define_resources;
use tests::size::full_or;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::operator::{client, start};

/// User of the controller in the audit log.
const NAME: &str = "the-controller";

/// Number of Sandboxes.
fn count() -> usize {
    full_or(2000, 500)
}

/// Writes of a start, besides those of the user and Events.
const START: [&str; 3] = [
    "create persistentvolumeclaims 201",
    "create pods 201",
    "patch sandboxes/status 200",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a cluster with fake nodes: make test-cluster"]
async fn two_thousand_sandboxes_stay_within_cost_limits() {
    define_resources();
    let sandboxes: Api<Sandbox> = Api::namespaced(client("the-user").await, "default");
    let shutdown = CancellationToken::new();
    let controller = start(NAME, shutdown.clone());

    // A lone start takes the minimum of writes.
    create(&sandboxes, "first").await;
    until(&sandboxes, 1).await;
    assert_lone_start(&writes(NAME), 1);

    let began = Instant::now();
    fill(&sandboxes).await;
    println!("\n{} created after {:.1?}", count(), began.elapsed());
    until(&sandboxes, count() + 1).await;
    println!("{} ready after {:.1?}", count(), began.elapsed());
    let before = writes(NAME);
    println!("{before:#?}");
    starts_are_cheap(&before);

    // A controller that begins anew writes nothing for them: only for the one that comes after.
    shutdown.cancel();
    controller.await.unwrap();
    let before = writes(NAME);
    let shutdown = CancellationToken::new();
    let controller = start(NAME, shutdown.clone());
    create(&sandboxes, "last").await;
    until(&sandboxes, count() + 2).await;
    let new = difference(&before, &writes(NAME));
    println!("one more, under a new controller: {new:#?}");
    // Beside hundreds of others it may wait long on a busy machine, and reports why.
    assert_lone_start(&new, 2);

    let (how, which) = (DeleteParams::default(), ListParams::default());
    sandboxes.delete_collection(&how, &which).await.unwrap();
    let began = Instant::now();
    until(&sandboxes, 0).await;
    println!("all gone after {:.1?}", began.elapsed());
    shutdown.cancel();
    controller.await.unwrap();
}

/// Claim, Pod and at most so many statuses.
fn assert_lone_start(writes: &Writes, max_statuses: usize) {
    let of = |deed: &str| writes.get(deed).copied().unwrap_or_default();
    let [claims, pods, statuses] = START.map(of);
    assert!(claims == 1 && pods == 1, "{writes:#?}");
    assert!((1..=max_statuses).contains(&statuses), "{writes:#?}");
    assert!(writes.keys().all(|deed| is_expected(deed)), "{writes:#?}");
}

/// Claim, Pod and a status for each, and hardly a conflict. The few that wait longest report why.
fn starts_are_cheap(writes: &Writes) {
    let of = |deed: &str| writes.get(deed).copied().unwrap_or_default();
    let all = count() + 1;
    assert_eq!(of(START[0]), all);
    assert_eq!(of(START[1]), all);
    let statuses = writes_by_object(NAME, START[2]);
    assert_eq!(statuses.len(), all);
    assert!(
        2 * statuses.values().sum::<usize>() <= 3 * all,
        "{statuses:#?}"
    );
    let conflicts = writes.iter().filter(|(deed, _)| deed.ends_with(" 409"));
    assert!(conflicts.map(|(_, count)| count).sum::<usize>() <= count() / 100);
    let fine = |deed: &String| is_expected(deed) || deed.ends_with(" 409");
    assert!(writes.keys().all(fine));
}

fn is_expected(deed: &str) -> bool {
    START.contains(&deed) || deed.contains(" events ")
}

fn difference(before: &Writes, after: &Writes) -> Writes {
    let new = after.iter().map(|(deed, count)| {
        let earlier = before.get(deed).copied().unwrap_or_default();
        (deed.clone(), count - earlier)
    });
    new.filter(|(_, count)| *count > 0).collect()
}

async fn fill(sandboxes: &Api<Sandbox>) {
    futures::stream::iter(0..count())
        .for_each_concurrent(32, async |number| {
            create(sandboxes, &format!("scale-{number}")).await;
        })
        .await;
}

async fn create(sandboxes: &Api<Sandbox>, name: &str) {
    let sandbox = json!({
        "metadata": {"name": name},
        "spec": {"image": "debian:12", "command": ["sleep", "infinity"], "workspace": {"size": "1Gi"}},
    });
    let sandbox = serde_json::from_value(sandbox).unwrap();
    let created = sandboxes.create(&PostParams::default(), &sandbox).await;
    created.unwrap();
}

/// Waits until so many are ready and no others are there.
async fn until(sandboxes: &Api<Sandbox>, count: usize) {
    let end = Instant::now() + Duration::from_mins(8);
    loop {
        let all = sandboxes.list(&ListParams::default()).await.unwrap().items;
        let ready = |s: &&Sandbox| s.status.as_ref().is_some_and(|s| s.ready_at.is_some());
        let readied = all.iter().filter(ready).count();
        if all.len() == count && readied == count {
            return;
        }
        assert!(Instant::now() < end, "{readied} of {} are ready", all.len());
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}
