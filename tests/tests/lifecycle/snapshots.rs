//! Snapshots of sandboxes, and sandboxes that begin with them.

use std::time::Duration;

use crds::conditions::Reason;
use crds::sandbox::{DesiredState, Phase};
use crds::snapshot::{SandboxSnapshotSpec, SnapshotPhase};
use crds::{SandboxSnapshot, names};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::api::events::v1::Event;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tests::test_cluster::TestCluster;
use tokio::time::sleep;

const STEP: Duration = Duration::from_millis(200);
const STEPS: u32 = 6000;

async fn create(cluster: &TestCluster, name: &str, spec: Value) {
    let spec: SandboxSnapshotSpec = serde_json::from_value(spec).unwrap();
    let api = cluster.api_of::<SandboxSnapshot>();
    let snapshot = SandboxSnapshot::new(name, spec);
    api.create(&PostParams::default(), &snapshot).await.unwrap();
}

/// Waits until a snapshot is in a phase.
async fn wait(cluster: &TestCluster, name: &str, phase: SnapshotPhase) -> SandboxSnapshot {
    let api = cluster.api_of::<SandboxSnapshot>();
    for _ in 0..STEPS {
        let snapshot = api.get(name).await.unwrap();
        if snapshot.phase() == phase {
            return snapshot;
        }
        sleep(STEP).await;
    }
    panic!("{:?}", api.get(name).await.unwrap().status);
}

fn message(snapshot: &SandboxSnapshot) -> &str {
    let status = snapshot.status.as_ref().unwrap();
    status.message.as_deref().unwrap_or_default()
}

fn keeps_root() -> Value {
    json!({"persistence": "Root"})
}

fn begins_with(snapshot: &str) -> Value {
    json!({"persistence": "Root", "source": {"snapshot": snapshot}})
}

/// Owners of a PVC, by kind and name.
fn owners(claim: &PersistentVolumeClaim) -> Vec<String> {
    let owners = claim.owner_references().iter();
    owners
        .map(|owner| format!("{} {}", owner.kind, owner.name))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn sandbox_waits_for_its_snapshot_and_mounts_it_once() {
    let cluster = TestCluster::new();
    cluster.create_with("child", &begins_with("kept")).await;
    let waits = cluster
        .wait_for_reason("child", Reason::SnapshotNotFound)
        .await;
    assert_eq!(waits.status.phase, Phase::Pending);
    sleep(Duration::from_hours(5)).await;
    // One of a sandbox that starts is taken once it runs.
    create(
        &cluster,
        "kept",
        json!({"sandbox": "parent", "level": "Root"}),
    )
    .await;
    let failed = wait(&cluster, "kept", SnapshotPhase::Failed).await;
    assert_eq!(message(&failed), "there is no sandbox parent");
    let unusable = cluster
        .wait_for_reason("child", Reason::SnapshotUnusable)
        .await;
    assert_eq!(unusable.status.phase, Phase::Failed);

    cluster.running_with("parent", &keeps_root()).await;
    create(
        &cluster,
        "second",
        json!({"sandbox": "parent", "level": "Root"}),
    )
    .await;
    let ready = wait(&cluster, "second", SnapshotPhase::Ready).await;
    let status = ready.status.clone().unwrap();
    assert_eq!(status.claim.as_deref(), Some("parent-workspace"));
    let template = status.template.unwrap();
    assert_eq!(template["image"], "debian:12");
    assert!(template.get("state").is_none_or(|state| state == "Running"));

    cluster.running_with("fork", &begins_with("second")).await;
    let pods = cluster.api_of::<Pod>();
    let mounts = async |name: &str| {
        let pod = pods.get(name).await.unwrap().spec.unwrap();
        let all = pod.containers[0].volume_mounts.clone().unwrap();
        let own = all.iter().find(|mount| mount.name == "snapshot");
        own.and_then(|mount| mount.sub_path.clone())
    };
    let uid = ready.uid().unwrap();
    assert_eq!(mounts("fork").await, Some(format!("state/snapshots/{uid}")));
    cluster.bring("fork", DesiredState::Paused).await;
    cluster.bring("fork", DesiredState::Running).await;
    assert_eq!(mounts("fork").await, None);

    let of_snapshots = cluster.api_of::<Event>();
    let of_snapshots = of_snapshots.list(&ListParams::default()).await.unwrap();
    let mut of_snapshots: Vec<_> = of_snapshots
        .into_iter()
        .filter_map(|event| {
            let about = event
                .regarding
                .filter(|it| it.kind.as_deref() == Some("SandboxSnapshot"))?;
            Some((about.name?, event.reason?, event.note?))
        })
        .collect();
    of_snapshots.sort();
    // The supervisors of this cluster save no more.
    let ended = [
        ("kept", "Failed", "there is no sandbox parent"),
        (
            "second",
            "Ready",
            "the snapshot has the state of level Workspace",
        ),
    ];
    let ended = ended.map(|(name, reason, note)| (name.into(), reason.into(), note.into()));
    assert_eq!(of_snapshots, ended);
}

#[tokio::test(start_paused = true)]
async fn volume_stays_until_its_last_snapshot_is_gone() {
    let cluster = TestCluster::new();
    cluster.running_with("parent", &keeps_root()).await;
    for name in ["one", "two"] {
        create(&cluster, name, json!({"sandbox": "parent"})).await;
    }
    for name in ["one", "two"] {
        wait(&cluster, name, SnapshotPhase::Ready).await;
    }
    let claims = cluster.api_of::<PersistentVolumeClaim>();
    let claim = claims.get("parent-workspace").await.unwrap();
    let all = [
        "Sandbox parent",
        "SandboxSnapshot one",
        "SandboxSnapshot two",
    ];
    assert_eq!(owners(&claim), all);
    cluster.bring("parent", DesiredState::Stopped).await;
    let claim = claims.get("parent-workspace").await.unwrap();
    assert_eq!(owners(&claim), all[1..]);
    cluster.running_with("fork", &begins_with("one")).await;
    let snapshots = cluster.api_of::<SandboxSnapshot>();
    for name in ["one", "two"] {
        assert!(claims.get_opt("parent-workspace").await.unwrap().is_some());
        snapshots
            .delete(name, &DeleteParams::default())
            .await
            .unwrap();
    }
    for _ in 0..STEPS {
        if claims.get_opt("parent-workspace").await.unwrap().is_none() {
            return;
        }
        sleep(STEP).await;
    }
    panic!("the volume stays");
}

#[tokio::test(start_paused = true)]
async fn volume_has_a_bounded_number_of_snapshots() {
    let cluster = TestCluster::new();
    cluster.running_with("parent", &keeps_root()).await;
    let claims = cluster.api_of::<PersistentVolumeClaim>();
    let claim = claims.get("parent-workspace").await.unwrap();
    let sandbox = json!(claim.owner_references()[0]);
    for (others, phase) in [(128, SnapshotPhase::Failed), (127, SnapshotPhase::Ready)] {
        let snapshots = (0..others).map(|n| {
            json!({
                "apiVersion": "openhands.dev/v1alpha1", "kind": "SandboxSnapshot",
                "name": format!("other-{n}"), "uid": format!("uid-{n}"),
            })
        });
        let owners: Vec<_> = [sandbox.clone()].into_iter().chain(snapshots).collect();
        let patch = Patch::Merge(json!({"metadata": {"ownerReferences": owners}}));
        let params = PatchParams::default();
        claims
            .patch("parent-workspace", &params, &patch)
            .await
            .unwrap();
        let name = format!("after-{others}");
        create(&cluster, &name, json!({"sandbox": "parent"})).await;
        let snapshot = wait(&cluster, &name, phase).await;
        let is_refused = message(&snapshot).contains("has 128 snapshots");
        assert_eq!(is_refused, phase == SnapshotPhase::Failed);
        let claim = claims.get("parent-workspace").await.unwrap();
        // A failed one owns nothing.
        let count = claim.owner_references().len();
        assert_eq!(count, 129, "{others}");
    }
}

#[tokio::test(start_paused = true)]
async fn next_sandbox_of_the_name_gets_a_volume_of_its_own() {
    let cluster = TestCluster::new();
    cluster.running_with("parent", &keeps_root()).await;
    create(&cluster, "kept", json!({"sandbox": "parent"})).await;
    wait(&cluster, "kept", SnapshotPhase::Ready).await;
    cluster.bring("parent", DesiredState::Stopped).await;
    let deletion = DeleteParams::default();
    cluster
        .sandboxes()
        .delete("parent", &deletion)
        .await
        .unwrap();

    let entry = cluster.running_with("parent", &keeps_root()).await;
    let own = entry.status.workspace_claim.clone().unwrap();
    assert_eq!(own, names::second_workspace_claim("parent", &entry.uid));
    let claims = cluster.api_of::<PersistentVolumeClaim>();
    let owners_of = async |name: &str| owners(&claims.get(name).await.unwrap());
    assert_eq!(owners_of(&own).await, ["Sandbox parent"]);
    cluster.bring("parent", DesiredState::Paused).await;
    let resumed = cluster.bring("parent", DesiredState::Running).await;
    assert_eq!(resumed.status.workspace_claim.as_ref(), Some(&own));
    let pod = cluster.api_of::<Pod>().get("parent").await.unwrap();
    let volumes = pod.spec.unwrap().volumes.unwrap();
    let mounted = volumes
        .iter()
        .find_map(|volume| volume.persistent_volume_claim.as_ref());
    assert_eq!(mounted.unwrap().claim_name, own);
    cluster.bring("parent", DesiredState::Stopped).await;
    assert!(claims.get_opt(&own).await.unwrap().is_none());
    assert_eq!(
        owners_of("parent-workspace").await,
        ["SandboxSnapshot kept"]
    );
}

#[tokio::test(start_paused = true)]
async fn snapshot_expires_and_its_sandbox_does_not() {
    let cluster = TestCluster::new();
    cluster.running_with("parent", &keeps_root()).await;
    create(
        &cluster,
        "short",
        json!({"sandbox": "parent", "deleteAfter": "1h"}),
    )
    .await;
    wait(&cluster, "short", SnapshotPhase::Ready).await;
    let snapshots = cluster.api_of::<SandboxSnapshot>();
    sleep(Duration::from_mins(59)).await;
    assert!(snapshots.get_opt("short").await.unwrap().is_some());
    sleep(Duration::from_mins(2)).await;
    assert!(snapshots.get_opt("short").await.unwrap().is_none());
    let parent = cluster.wait_for_phase("parent", Phase::Running).await;
    assert_eq!(parent.status.restarts.count, 0);
}

#[tokio::test(start_paused = true)]
async fn snapshot_of_a_sandbox_without_state_or_pod_fails_with_the_reason() {
    let cluster = TestCluster::new();
    cluster.running("plain").await;
    cluster.running_with("paused", &keeps_root()).await;
    cluster.bring("paused", DesiredState::Paused).await;
    for (sandbox, reason) in [
        ("plain", "the sandbox keeps its workspace alone"),
        ("paused", "the sandbox does not run"),
    ] {
        create(&cluster, sandbox, json!({"sandbox": sandbox})).await;
        let failed = wait(&cluster, sandbox, SnapshotPhase::Failed).await;
        assert!(message(&failed).starts_with(reason), "{}", message(&failed));
    }
    // A failed one owns nothing.
    let claims = cluster.api_of::<PersistentVolumeClaim>();
    let claim = claims.get("paused-workspace").await.unwrap();
    assert_eq!(owners(&claim), ["Sandbox paused"]);
}

#[tokio::test(start_paused = true)]
async fn snapshot_outlives_the_controller_that_took_it_but_not_its_pod() {
    let mut cluster = TestCluster::new();
    cluster.running_with("parent", &keeps_root()).await;
    let spec = json!({"sandbox": "parent"});
    cluster.supervisors.hold_snapshots(true);
    create(&cluster, "resumed", spec.clone()).await;
    let saving = wait(&cluster, "resumed", SnapshotPhase::Saving).await;
    cluster.start_controller();
    cluster.supervisors.hold_snapshots(false);
    wait(&cluster, "resumed", SnapshotPhase::Ready).await;
    // The supervisor reports on the one that it has taken.
    assert_eq!(
        cluster.supervisors.snapshots(),
        [saving.uid().unwrap()].into()
    );

    cluster.supervisors.hold_snapshots(true);
    create(&cluster, "lost", spec).await;
    wait(&cluster, "lost", SnapshotPhase::Saving).await;
    cluster.stop_controller();
    cluster.delete_pod_now("parent").await;
    cluster.start_controller();
    let failed = wait(&cluster, "lost", SnapshotPhase::Failed).await;
    assert_eq!(
        message(&failed),
        "the Pod of the sandbox was lost before its state was copied"
    );
    let claims = cluster.api_of::<PersistentVolumeClaim>();
    let claim = claims.get("parent-workspace").await.unwrap();
    assert_eq!(
        owners(&claim),
        ["Sandbox parent", "SandboxSnapshot resumed"]
    );
}

/// The gateway names the tenant.
#[tokio::test(start_paused = true)]
async fn sandbox_of_no_tenant_has_no_snapshot_of_one() {
    let cluster = TestCluster::new();
    cluster.running_with("parent", &keeps_root()).await;
    let spec = json!({"sandbox": "parent", "tenant": "mallory"});
    create(&cluster, "foreign", spec).await;
    let failed = wait(&cluster, "foreign", SnapshotPhase::Failed).await;
    assert_eq!(message(&failed), "there is no sandbox parent");
}
