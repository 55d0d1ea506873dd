//! Warm Pods that wait beside a snapshot, and sandboxes that begin with it in one of them.

use std::time::Duration;

use crds::conditions::Reason;
use crds::pool::SandboxPoolStatus;
use crds::sandbox::{DesiredState, Phase};
use crds::snapshot::{SandboxSnapshotSpec, SnapshotPhase};
use crds::{SandboxPool, SandboxSnapshot};
use http::StatusCode;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};
use tests::fault_injection::{Failure, RequestInfo};
use tests::test_cluster::{NAMESPACE, TestCluster};
use tokio::time::sleep;

const STEP: Duration = Duration::from_millis(200);

/// A pool of two Pods whose sandboxes begin with the snapshot `s`.
fn pool(more: &Value) -> Value {
    let mut spec = json!({"replicas": 2, "template": {
        "image": "debian:12", "command": ["sleep", "infinity"], "workspace": {"size": "1Gi"},
        "persistence": "Root", "source": {"snapshot": "s"},
    }});
    let more = more.as_object().unwrap().clone();
    spec.as_object_mut().unwrap().extend(more);
    spec
}

/// Fields of a sandbox that has all from the pool.
fn of_pool() -> Value {
    json!({"pool": "p", "image": null, "command": null, "workspace": null})
}

/// Takes the snapshot `s` of a sandbox. Returns its uid.
async fn take_snapshot(cluster: &TestCluster, sandbox: &str) -> String {
    let api = cluster.api_of::<SandboxSnapshot>();
    let spec = json!({"sandbox": sandbox});
    let spec: SandboxSnapshotSpec = serde_json::from_value(spec).unwrap();
    let snapshot = SandboxSnapshot::new("s", spec);
    api.create(&PostParams::default(), &snapshot).await.unwrap();
    loop {
        let snapshot = api.get("s").await.unwrap();
        if snapshot.phase() == SnapshotPhase::Ready {
            return snapshot.uid().unwrap();
        }
        assert_ne!(snapshot.phase(), SnapshotPhase::Failed, "{snapshot:?}");
        sleep(STEP).await;
    }
}

async fn reaches(cluster: &TestCluster, wanted: impl Fn(&SandboxPoolStatus) -> bool) {
    cluster.wait_for_pool(Duration::from_mins(2), wanted).await;
}

/// Reason and message of the only condition.
async fn condition(cluster: &TestCluster) -> (String, String) {
    let status = cluster.pool_status().await;
    let [only] = &status.conditions[..] else {
        panic!("{status:?}");
    };
    (only.reason.clone(), only.message.clone())
}

/// Uid of a Pod, and the directory of the snapshot that it mounts.
async fn pod(cluster: &TestCluster, name: &str) -> (String, Option<String>) {
    let pod = cluster.api_of::<Pod>().get(name).await.unwrap();
    let uid = pod.uid().unwrap();
    let all = pod.spec.unwrap().containers[0].volume_mounts.clone();
    let mut all = all.unwrap().into_iter();
    let own = all.find(|mount| mount.name == "snapshot");
    (uid, own.and_then(|mount| mount.sub_path))
}

#[tokio::test(start_paused = true)]
async fn sandboxes_begin_with_the_snapshot_in_warm_pods() {
    let cluster = TestCluster::new();
    cluster.put_pool(&pool(&json!({}))).await;
    let missing = "SandboxSnapshot s does not exist";
    reaches(&cluster, |status| !status.conditions.is_empty()).await;
    assert_eq!(
        condition(&cluster).await,
        ("Blocked".to_owned(), missing.to_owned())
    );
    cluster.create_with("early", &of_pool()).await;
    cluster
        .wait_for_reason("early", Reason::SnapshotNotFound)
        .await;

    cluster
        .running_with("parent", &json!({"persistence": "Root"}))
        .await;
    let uid = take_snapshot(&cluster, "parent").await;
    reaches(&cluster, |status| status.ready == 2).await;
    let early = cluster.wait_for_phase("early", Phase::Running).await;
    assert!(!early.status.warm, "no Pod was ready when it could start");

    let warm = cluster.warm_pods().await;
    let directory = Some(format!("state/snapshots/{uid}"));
    let own = json!({"pool": "p", "persistence": "Root", "source": {"snapshot": "s"}});
    for (name, fields) in [("named", of_pool()), ("own", own)] {
        let fork = cluster.running_with(name, &fields).await;
        let pod_name = fork.status.pod_name.clone().unwrap();
        assert!(warm.contains(&pod_name), "{name}: {fork:?}");
        let (pod_uid, mounted) = pod(&cluster, &pod_name).await;
        assert_eq!(mounted, directory);
        assert_eq!(cluster.supervisors.source_of(&pod_uid), Some(uid.clone()));
    }
    reaches(&cluster, |status| status.ready == 2 && status.claimed == 2).await;

    // It has state of its own by now.
    cluster.bring("named", DesiredState::Paused).await;
    let resumed = cluster.bring("named", DesiredState::Running).await;
    assert!(!resumed.status.warm);
    let name = resumed.status.pod_name.clone().unwrap();
    let (pod_uid, mounted) = pod(&cluster, &name).await;
    assert_eq!(
        (mounted, cluster.supervisors.source_of(&pod_uid)),
        (None, None)
    );
    cluster.node.assert_single_pod();
}

#[tokio::test(start_paused = true)]
async fn sandboxes_of_another_state_claim_no_pod_beside_the_snapshot() {
    let cluster = TestCluster::new();
    cluster
        .running_with("parent", &json!({"persistence": "Root"}))
        .await;
    take_snapshot(&cluster, "parent").await;
    cluster
        .put_pool(&pool(&json!({"claimedBy": "Matching"})))
        .await;
    reaches(&cluster, |status| status.ready == 2).await;
    let session = json!({"tenant": "alice", "id": "a"});
    let empty = json!({"persistence": "Root", "session": session});
    let empty = cluster.running_with("empty", &empty).await;
    assert!(!empty.status.warm);
    // The snapshot has no tenant, and is for no sandbox of one, whose name the gateway derives.
    let keys = &cluster.keys;
    let foreign = keys.session_runtime_id(NAMESPACE, "bob", "b", 0);
    let own = json!({"persistence": "Root", "session": {"tenant": "bob", "id": "b"},
        "source": {"snapshot": "s"}});
    cluster.create_with(&foreign, &own).await;
    cluster
        .wait_for_reason(&foreign, Reason::SnapshotUnusable)
        .await;
    let (ready, claimed) = (2, 0);
    reaches(&cluster, |status| {
        (status.ready, status.claimed) == (ready, claimed)
    })
    .await;
}

/// The sandbox of the snapshot is gone, and any node can attach the volume.
#[tokio::test(start_paused = true)]
async fn first_pod_beside_an_unused_volume_decides_on_the_node_of_the_others() {
    let cluster = TestCluster::new();
    let root = json!({"persistence": "Root"});
    cluster.running_with("parent", &root).await;
    take_snapshot(&cluster, "parent").await;
    cluster.bring("parent", DesiredState::Stopped).await;
    cluster.put_pool(&pool(&json!({"replicas": 4}))).await;
    reaches(&cluster, |status| status.ready == 4).await;
    let pods = cluster.api_of::<Pod>();
    let mut bound = 0;
    for name in cluster.warm_pods().await {
        let spec = pods.get(&name).await.unwrap().spec.unwrap();
        let affinity = json!(spec.affinity).to_string();
        bound += usize::from(affinity.contains(r#""values":["scripted"]"#));
    }
    assert_eq!(bound, 3, "all but the first");
}

#[tokio::test(start_paused = true)]
async fn pool_of_tenants_without_the_snapshot_is_blocked() {
    let cluster = TestCluster::new();
    let root = json!({"persistence": "Root"});
    cluster.running_with("parent", &root).await;
    take_snapshot(&cluster, "parent").await;
    cluster
        .put_pool(&pool(&json!({"tenants": ["alice", "bob"]})))
        .await;
    reaches(&cluster, |status| !status.conditions.is_empty()).await;
    let expected = "SandboxSnapshot s belongs to another tenant";
    assert_eq!(
        condition(&cluster).await,
        ("Blocked".to_owned(), expected.to_owned())
    );
    assert_eq!(cluster.warm_pods().await, [""; 0]);
}

/// A sandbox keeps what its pool was when it started.
#[tokio::test(start_paused = true)]
async fn sandbox_of_before_gets_no_snapshot_when_its_pool_does() {
    let cluster = TestCluster::new();
    let root = json!({"persistence": "Root"});
    cluster.running_with("parent", &root).await;
    take_snapshot(&cluster, "parent").await;
    let mut without = pool(&json!({"whenExhausted": "Refuse"}));
    without["template"]["source"] = Value::Null;
    cluster.put_pool(&without).await;
    reaches(&cluster, |status| status.ready == 2).await;
    cluster.running_with("before", &of_pool()).await;
    let mut missing = pool(&json!({"whenExhausted": "Refuse"}));
    missing["template"]["source"] = json!({"snapshot": "missing"});
    cluster.put_pool(&missing).await;
    reaches(&cluster, |status| status.ready + status.starting == 0).await;
    cluster.bring("before", DesiredState::Paused).await;
    let resumed = cluster.bring("before", DesiredState::Running).await;
    let (_, mounted) = pod(&cluster, resumed.status.pod_name.as_ref().unwrap()).await;
    assert_eq!(mounted, None);
    // One that begins now is not refused, but waits for the snapshot.
    cluster.create_with("now", &of_pool()).await;
    cluster
        .wait_for_reason("now", Reason::SnapshotNotFound)
        .await;
}

/// Until snapshots are read, none is missing.
#[tokio::test(start_paused = true)]
async fn next_controller_keeps_the_pods_while_it_cannot_read_snapshots() {
    let mut cluster = TestCluster::new();
    let root = json!({"persistence": "Root"});
    cluster.running_with("parent", &root).await;
    take_snapshot(&cluster, "parent").await;
    cluster.put_pool(&pool(&json!({}))).await;
    reaches(&cluster, |status| status.ready == 2).await;
    let before = cluster.warm_pods().await;
    cluster.stop_controller();
    let unavailable = Failure::Code(StatusCode::SERVICE_UNAVAILABLE);
    let is_list = |request: &RequestInfo| request.resource == "sandboxsnapshots";
    cluster.faults().fail_next(1000, unavailable, is_list);
    cluster.start_controller();
    reaches(&cluster, |status| {
        status.conditions[0].message == "the snapshots have not been read yet"
    })
    .await;
    cluster.create_with("early", &of_pool()).await;
    cluster
        .wait_for_reason("early", Reason::WaitingForSnapshot)
        .await;
    cluster.faults().clear_failures();
    let early = cluster.wait_for_phase("early", Phase::Running).await;
    assert!(before.contains(&early.status.pod_name.clone().unwrap()));
}

#[tokio::test(start_paused = true)]
async fn pods_beside_a_deleted_snapshot_go_and_those_of_the_next_one_come() {
    let cluster = TestCluster::new();
    let root = json!({"persistence": "Root"});
    cluster.running_with("parent", &root).await;
    let first = take_snapshot(&cluster, "parent").await;
    cluster.put_pool(&pool(&json!({}))).await;
    reaches(&cluster, |status| status.ready == 2).await;
    let snapshots = cluster.api_of::<SandboxSnapshot>();
    let now = DeleteParams::default();
    snapshots.delete("s", &now).await.unwrap();
    reaches(&cluster, |status| status.ready + status.starting == 0).await;
    assert_eq!(cluster.warm_pods().await, [""; 0]);
    assert_eq!(condition(&cluster).await.0, "Blocked");
    cluster.assert_unchanged_for(Duration::from_hours(1)).await;

    let second = take_snapshot(&cluster, "parent").await;
    assert_ne!(first, second);
    reaches(&cluster, |status| status.ready == 2).await;
    for name in cluster.warm_pods().await {
        let (_, mounted) = pod(&cluster, &name).await;
        assert_eq!(mounted, Some(format!("state/snapshots/{second}")));
    }
    let fork = cluster.running_with("fork", &of_pool()).await;
    assert!(fork.status.warm);
}

#[tokio::test]
async fn pool_that_keeps_no_state_or_prestarts_is_rejected() {
    let cluster = TestCluster::new();
    let pools = cluster.api_of::<SandboxPool>();
    for (more, path, value, reason) in [
        (
            json!({}),
            "persistence",
            Value::Null,
            "needs persistence Root or Memory",
        ),
        (
            json!({}),
            "persistence",
            json!("Workspace"),
            "needs persistence Root or Memory",
        ),
        (json!({}), "workspace", Value::Null, "need a workspace"),
        (
            json!({"prestart": "Executor"}),
            "image",
            json!("i"),
            "exclude each other",
        ),
    ] {
        let mut spec = pool(&more);
        spec["template"][path] = value;
        let pool = SandboxPool::new("p", serde_json::from_value(spec).unwrap());
        let created = pools.create(&PostParams::default(), &pool).await;
        let error = created.unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }
}
