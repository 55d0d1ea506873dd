//! Forks with processes in warm Pods that wait beside the snapshot.

use std::collections::BTreeSet;

use client::Level;
use crds::{Sandbox, SandboxPool, names};
use kube::ResourceExt;
use kube::api::ListParams;
use tests::fork_session::{apply_pool, await_pool, fork, new_forks, snapshot};
use tests::persistence_session::{body_with_processes, pause};
use tests::session::Session;

use crate::installation::{API_KEY, IMAGE, api};
use crate::test_namespace::TestNamespace;

const POOL: &str = "beside";
const SIZE: u32 = 2;

/// Names of the warm Pods.
async fn warm_pods(ns: &TestNamespace) -> BTreeSet<String> {
    let selector = ListParams::default().labels(&names::warm_selector(POOL));
    let pods = ns.pods().list(&selector).await.unwrap();
    pods.items.iter().map(ResourceExt::name_any).collect()
}

#[tokio::test]
#[ignore = "needs a real cluster: make test-cluster"]
async fn forks_go_on_in_warm_pods_beside_the_snapshot() {
    let ns = TestNamespace::of_gateway().await;
    let body = body_with_processes("beside", IMAGE, "root");
    let session = Session::start(&api(), API_KEY, &body).await;
    session
        .run("mine=parent; cd /var/lib; echo root >/etc/whose; sleep 10000 &")
        .await;
    let look = "echo \"$mine $PWD $(jobs | wc -l) $(cat /etc/whose)\"";
    let of_parent = session.run(look).await;
    assert_eq!(of_parent, "parent /var/lib 1 root");
    let taken = snapshot(&session, Level::Memory).await;
    apply_pool(POOL, &taken, SIZE);
    let warm = warm_pods(&ns).await;
    // They have its archives, and nothing of what is in them.
    let look_for_files = "ls /etc/whose /run/sandbox-snapshot 2>&1; \
        grep -rlaE 'whose|parent' /run/sandbox-snapshot || echo sealed";
    for pod in &warm {
        let seen = ns.exec(pod, look_for_files);
        assert!(
            seen.contains("No such file") && seen.contains("processes"),
            "{seen}"
        );
        assert!(seen.ends_with("sealed"), "{seen}");
    }

    let count = usize::try_from(SIZE).unwrap();
    let forks = fork(&session, &taken, &new_forks(count)).await;
    let mut identities = BTreeSet::from([session.key.clone()]);
    for (number, fork) in forks.iter().enumerate() {
        let info = fork.info().await;
        assert_eq!(info["restored"]["level"], "Memory", "{info}");
        let sandbox: Sandbox = ns.get(&fork.id).await;
        let status = sandbox.status.unwrap();
        assert!(status.warm, "{status:?}");
        assert!(warm.contains(&status.pod_name.unwrap()));
        assert_eq!(fork.run(look).await, of_parent, "fork {number}");
        fork.run(&format!("mine=fork-{number}; echo {number} >/etc/whose"))
            .await;
        assert_eq!(fork.status_with_key(&session.key).await, 403);
        identities.extend([fork.key.clone(), fork.run("echo host $(hostname)").await]);
    }
    assert_eq!(identities.len(), 2 * count + 1, "{identities:?}");
    assert_eq!(session.run(look).await, of_parent);

    // Its own state, in a Pod of its own.
    let first = &forks[0];
    let paused = pause(first).await;
    assert_eq!(paused["persisted"]["level"], "Memory", "{paused}");
    first.resume().await;
    first.ready().await;
    assert_eq!(first.run(look).await, "fork-0 /var/lib 1 0");
    await_pool(POOL, SIZE);

    // Nothing waits beside a snapshot that is gone.
    let own = &taken.snapshot_id;
    session.client.delete_snapshot(own).await.unwrap();
    await_pool(POOL, 0);
    for sandbox in forks.iter().chain([&session]) {
        sandbox.stop().await;
    }
    ns.delete::<SandboxPool>(POOL).await;
}
