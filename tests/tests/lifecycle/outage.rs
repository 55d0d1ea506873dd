//! Outages of machines and registries: no sandbox that was ready fails, and no workspace is lost.

use std::collections::BTreeMap;
use std::time::Duration;

use crds::sandbox::{DesiredState, Phase};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::ResourceExt as _;
use kube::api::ListParams;
use serde_json::json;
use tests::test_cluster::{PodScript, TestCluster, start_body};

/// Uids of all workspace PVCs, by name.
async fn workspaces(cluster: &TestCluster) -> BTreeMap<String, Option<String>> {
    let claims = cluster.api_of::<PersistentVolumeClaim>();
    let claims = claims.list(&ListParams::default()).await.unwrap();
    claims.iter().map(|c| (c.name_any(), c.uid())).collect()
}

#[tokio::test(start_paused = true)]
async fn outage_of_an_hour_keeps_every_sandbox_and_workspace() {
    const SANDBOXES: usize = 24;
    let mut cluster = TestCluster::new();
    let names: Vec<_> = (0..SANDBOXES).map(|n| format!("s{n}")).collect();
    for name in &names {
        cluster.create(name).await;
    }
    for name in &names {
        cluster.wait_for_phase(name, Phase::Running).await;
    }
    let before = workspaces(&cluster).await;
    assert_eq!(before.len(), SANDBOXES);
    // A third loses its nodes, a third its Pods, and a third is paused and resumed meanwhile.
    let problems = [
        PodScript::NeverReady,
        PodScript::CannotPull,
        PodScript::Unschedulable,
        PodScript::LacksSecret,
    ];
    for (at, name) in names.iter().enumerate() {
        let problem = problems[at % problems.len()];
        cluster.node.script_next_pod(name, problem);
        match at % 3 {
            0 => cluster.node.lose_node(name).await,
            1 => cluster.delete_pod_now(name).await,
            _ => {
                cluster.bring(name, DesiredState::Paused).await;
                cluster.set_state(name, DesiredState::Running).await;
            }
        }
    }
    tokio::time::sleep(Duration::from_mins(30)).await;
    cluster.start_controller();
    tokio::time::sleep(Duration::from_mins(30)).await;
    for name in &names {
        let phase = cluster.status(name).await.phase;
        let keeps_going = matches!(phase, Phase::Starting | Phase::Running);
        assert!(keeps_going, "{name}: {phase:?}");
    }
    cluster.node.heal_all().await;
    let back = cluster
        .wait_for_all(Duration::from_mins(30), operator::index::Entry::is_ready)
        .await;
    assert!(back <= Duration::from_mins(20), "{back:?}");
    assert_eq!(workspaces(&cluster).await, before);
}

#[tokio::test(start_paused = true)]
async fn resume_and_start_of_failed_session_keep_its_workspace() {
    let cluster = TestCluster::new();
    let gateway = cluster.gateway().await;
    let start = start_body("s");
    let name = gateway.start(&start).await["runtime_id"].clone();
    let name = name.as_str().unwrap();
    let mut before = None;
    for again in [("/resume", json!({"runtime_id": name})), ("/start", start)] {
        cluster.wait_for_phase(name, Phase::Running).await;
        before.get_or_insert(workspaces(&cluster).await);
        for _ in 0..3 {
            cluster.node.crash(name).await;
            tokio::time::sleep(Duration::from_secs(5)).await;
        }
        cluster.wait_for_phase(name, Phase::Failed).await;
        let (path, body) = again;
        let answer = gateway.post(path, &body).await.body;
        assert_eq!(answer["runtime_id"], name);
        assert_ne!(answer["status"], "error", "{answer}");
    }
    cluster.wait_for_phase(name, Phase::Running).await;
    assert_eq!(Some(workspaces(&cluster).await), before);
}
