//! Warm pools: their size, claims, and what happens to claimed Pods.

use std::time::Duration;

use crds::SandboxPool;
use crds::conditions::Reason;
use crds::pool::SandboxPoolStatus;
use crds::sandbox::{DesiredState, Phase};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::Api;
use kube::api::DeleteParams;
use serde_json::{Value, json};
use tests::test_cluster::{PodScript, TestCluster, start_body};
use tokio::time::{Instant, sleep};

/// A pool with this number of warm Pods.
fn pool(replicas: u32, image: &str) -> Value {
    json!({"replicas": replicas, "template": {"image": image}})
}

/// Fields of a sandbox that has nothing but its pool, a command and variables.
fn of_pool() -> Value {
    json!({"pool": "p", "image": null, "workspace": null, "env": [{"name": "A", "value": "1"}]})
}

/// Waits until the status of the pool is as wanted.
async fn reaches(cluster: &TestCluster, wanted: impl Fn(&SandboxPoolStatus) -> bool) {
    cluster.wait_for_pool(Duration::from_mins(1), wanted).await;
}

/// Resources that the controller wrote for a claim, in order: Pod, PVC and Sandbox.
fn claim_writes(cluster: &TestCluster, names: &[&str]) -> Vec<String> {
    let writes = cluster.controller_writes().into_iter().map(|w| w.request);
    let own = writes.filter(|w| w.name.as_deref().is_some_and(|name| names.contains(&name)));
    own.map(|w| {
        w.subresource
            .filter(|sub| sub == "resize")
            .unwrap_or(w.resource)
    })
    .collect()
}

/// This API server has no `DaemonSets`.
#[tokio::test(start_paused = true)]
async fn images_that_cannot_be_pulled_ahead_are_reported_and_hold_up_nothing() {
    let cluster = TestCluster::new();
    let mut spec = pool(2, "i");
    spec["imagePulls"] = json!("EveryNode");
    cluster.put_pool(&spec).await;
    let reasons = |status: &SandboxPoolStatus| {
        let all = status.conditions.iter();
        all.map(|c| c.reason.clone()).collect::<Vec<_>>()
    };
    reaches(&cluster, |status| reasons(status) == ["Complete", "Failed"]).await;
    cluster.assert_unchanged_for(Duration::from_hours(1)).await;
}

#[tokio::test(start_paused = true)]
async fn sandboxes_claim_warm_pods_and_the_pool_is_refilled() {
    let cluster = TestCluster::new();
    cluster.put_pool(&pool(3, "i")).await;
    reaches(&cluster, |status| status.ready == 3).await;
    let before = cluster.warm_pods().await;
    assert_eq!(before.len(), 3);

    cluster.faults().clear_writes();
    let sandbox = cluster.running_with("a", &of_pool()).await;
    let name = sandbox.status.pod_name.clone().unwrap();
    assert!(sandbox.status.warm && before.contains(&name), "{sandbox:?}");
    assert_eq!(claim_writes(&cluster, &[&name, "a"]), ["pods", "sandboxes"]);

    reaches(&cluster, |status| status.ready == 3 && status.claimed == 1).await;
    assert_eq!(cluster.warm_pods().await.len(), 3);
    assert_eq!(cluster.node.created().len(), 4);

    // Without a workspace there is nothing that ties a resumed sandbox to an earlier Pod.
    cluster.bring("a", DesiredState::Paused).await;
    assert_eq!(cluster.names::<Pod>().await.len(), 3);
    cluster.bring("a", DesiredState::Running).await;
    let resumed = cluster.status("a").await;
    assert!(
        resumed.warm && resumed.pod_name != Some(name),
        "{resumed:?}"
    );
    cluster.node.assert_single_pod();
}

#[tokio::test(start_paused = true)]
async fn other_shapes_and_empty_pools_start_cold() {
    let cluster = TestCluster::new();
    cluster.put_pool(&pool(1, "i")).await;
    reaches(&cluster, |status| status.ready == 1).await;
    for (name, other) in [
        ("image", json!({"image": "j"})),
        ("class", json!({"runtimeClassName": "gvisor"})),
        (
            "memory",
            json!({"resources": {"limits": {"memory": "3Gi"}}}),
        ),
        ("workspace", json!({"workspace": {"size": "1Gi"}})),
    ] {
        let mut fields = of_pool();
        let other = other.as_object().unwrap().clone();
        fields.as_object_mut().unwrap().extend(other);
        let sandbox = cluster.running_with(name, &fields).await;
        assert!(!sandbox.status.warm, "{name}");
        assert_eq!(sandbox.status.pod_name.as_deref(), Some(name));
    }
    assert_eq!(cluster.warm_pods().await.len(), 1);
    cluster.put_pool(&pool(0, "i")).await;
    reaches(&cluster, |status| status.ready == 0).await;
    assert!(!cluster.running_with("late", &of_pool()).await.status.warm);
}

#[tokio::test(start_paused = true)]
async fn deleted_and_shrunk_pools_leave_claimed_pods_alone() {
    let cluster = TestCluster::new();
    cluster.put_pool(&pool(2, "i")).await;
    reaches(&cluster, |status| status.ready == 2).await;
    let claimed = cluster.running_with("a", &of_pool()).await;
    let name = claimed.status.pod_name.clone().unwrap();
    cluster.put_pool(&pool(0, "i")).await;
    reaches(&cluster, |status| status.ready == 0 && status.claimed == 1).await;
    // Foreground deletion waits for the warm Pods, so none is created any more.
    cluster.put_pool(&pool(2, "i")).await;
    reaches(&cluster, |status| status.ready == 2).await;
    let pools: Api<SandboxPool> = cluster.api_of();
    let how = DeleteParams::foreground();
    pools.delete("p", &how).await.unwrap();
    cluster.wait_until_quiet().await;
    assert_eq!(cluster.names::<SandboxPool>().await, [""; 0]);
    assert_eq!(cluster.names::<Pod>().await, [name]);
    assert_eq!(cluster.status("a").await.phase, Phase::Running);
}

#[tokio::test(start_paused = true)]
async fn changed_template_replaces_warm_pods_within_bounds() {
    let cluster = TestCluster::new();
    cluster.put_pool(&pool(8, "i")).await;
    reaches(&cluster, |status| status.ready == 8).await;
    let before = cluster.warm_pods().await;
    cluster.put_pool(&pool(8, "j")).await;
    let limit = Instant::now() + Duration::from_mins(5);
    loop {
        let pods = cluster.warm_pods().await;
        assert!(pods.len() <= 8 + 2, "above maxSurge: {pods:?}");
        if pods.len() == 8 && pods.iter().all(|pod| !before.contains(pod)) {
            break;
        }
        assert!(Instant::now() < limit, "{pods:?}");
        sleep(Duration::from_millis(5)).await;
    }
    reaches(&cluster, |status| status.ready == 8 && status.outdated == 0).await;
    let sandbox = cluster.running_with("a", &of_pool()).await;
    assert!(sandbox.status.warm);
}

async fn claims(cluster: &TestCluster) -> Vec<String> {
    cluster.names::<PersistentVolumeClaim>().await
}

#[tokio::test(start_paused = true)]
async fn volume_of_a_warm_pod_moves_with_the_claim() {
    let cluster = TestCluster::new();
    let template = json!({"image": "i", "workspace": {"size": "1Gi"}});
    let spec = json!({"replicas": 2, "template": template});
    cluster.put_pool(&spec).await;
    reaches(&cluster, |status| status.ready == 2).await;
    assert_eq!(claims(&cluster).await.len(), 2);

    cluster.faults().clear_writes();
    let sandbox = cluster.running_with("a", &of_pool()).await;
    let volume = sandbox.status.workspace_claim.clone().unwrap();
    let pod = sandbox.status.pod_name.clone().unwrap();
    assert_eq!(volume, format!("{pod}-workspace"));
    assert_eq!(
        claim_writes(&cluster, &[&volume, &pod, "a"]),
        ["pods", "persistentvolumeclaims", "sandboxes"]
    );

    // A paused sandbox keeps it, and a Pod that is created for the sandbox mounts it.
    cluster.bring("a", DesiredState::Paused).await;
    reaches(&cluster, |status| status.ready == 2).await;
    assert!(claims(&cluster).await.contains(&volume));
    cluster.bring("a", DesiredState::Running).await;
    let resumed = cluster.status("a").await;
    assert!(!resumed.warm && resumed.workspace_claim.as_ref() == Some(&volume));
    let pod = cluster.api_of::<Pod>().get("a").await.unwrap();
    let volumes = pod.spec.unwrap().volumes.unwrap();
    let mounted = volumes
        .iter()
        .find_map(|v| v.persistent_volume_claim.as_ref());
    assert_eq!(mounted.unwrap().claim_name, volume);

    cluster.bring("a", DesiredState::Stopped).await;
    assert!(!claims(&cluster).await.contains(&volume));
    cluster
        .put_pool(&json!({"replicas": 0, "template": spec["template"]}))
        .await;
    reaches(&cluster, |status| status.ready == 0).await;
    cluster.wait_until_quiet().await;
    assert!(claims(&cluster).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn sessions_claim_from_matching_pools_of_their_tenant() {
    let cluster = TestCluster::new();
    let gateway = cluster.gateway().await;
    let running = async |body: &Value| {
        let started = gateway.start(body).await;
        let name = started["runtime_id"].as_str().unwrap();
        cluster.wait_for_phase(name, Phase::Running).await
    };
    let cold = running(&start_body("cold")).await;
    let spec = cluster.sandboxes().get(&cold.key.name).await.unwrap().spec;
    let template = json!({"image": spec.image, "workspace": spec.workspace});
    let pool = |tenants: &[&str], policy: &str| json!({"replicas": 2, "claimedBy": policy, "tenants": tenants, "template": template});
    for (tenants, policy, warm) in [
        (&[][..], "Named", false),
        (&["other"], "Matching", false),
        (&["default", "other"], "Matching", true),
        (&[], "Matching", true),
    ] {
        cluster.put_pool(&pool(tenants, policy)).await;
        reaches(&cluster, |status| status.ready == 2).await;
        let mut body = start_body(&format!("{policy}-{}", tenants.len()));
        body["environment"] = json!({"SESSION": policy});
        let sandbox = running(&body).await;
        assert_eq!(sandbox.status.warm, warm, "{tenants:?} {policy}");
    }
}

/// Bodies of `/start` as the client families send them (`docs/specs/runtime-api.md`, section 3).
fn start_bodies(session: &str) -> [Value; 4] {
    let agent_server = ["/usr/local/bin/openhands-agent-server", "--port", "60000"];
    let v0 = json!({
        "image": "ghcr.io/openhands/runtime:0.62", "session_id": session,
        "command": ["/openhands/micromamba/bin/micromamba", "run", "-n", "openhands", "poetry", "run", "python", "-u",
            "-m", "openhands.runtime.action_execution_server", "60000", "--working-dir", "/workspace",
            "--plugins", "agent_skills", "jupyter", "--username", "openhands", "--user-id", "1000"],
        "working_dir": "/openhands/code/", "environment": {"SESSION": session}, "resource_factor": 1,
    });
    let app = json!({
        "image": "agent-server:1", "session_id": session, "command": agent_server,
        "working_dir": "/workspace", "resource_factor": 1,
        "environment": {"OH_WEBHOOKS_0_BASE_URL": format!("https://app/{session}"), "LOG_JSON": "1"},
        "run_as_user": 10001, "run_as_group": 10001, "fs_group": 10001,
    });
    let mut enterprise = app.clone();
    enterprise["working_dir"] = json!("/workspace/project");
    enterprise["environment"]["LMNR_PROJECT_API_KEY"] = json!(session);
    let sdk = json!({
        "image": "agent-server:1", "session_id": session, "command": agent_server.join(" "),
        "working_dir": "/", "environment": {"SESSION": session}, "run_as_user": 10001, "fs_group": 10001,
        "image_pull_policy": "IfNotPresent",
    });
    [v0, app, enterprise, sdk]
}

#[tokio::test(start_paused = true)]
async fn every_session_of_every_client_claims_from_its_pool() {
    for client in 0..start_bodies("").len() {
        let cluster = TestCluster::new();
        let gateway = cluster.gateway().await;
        let start = async |body: &Value| {
            let started = gateway.start(body).await;
            let name = started["runtime_id"].as_str().unwrap();
            cluster.wait_for_phase(name, Phase::Running).await
        };
        let body = |session: &str| start_bodies(session)[client].clone();
        let cold = start(&body("cold")).await;
        let spec = cluster.sandboxes().get(&cold.key.name).await.unwrap().spec;
        let template = json!({
            "image": spec.image, "workspace": spec.workspace, "resources": spec.resources,
            "securityContext": spec.security_context, "imagePullPolicy": spec.image_pull_policy,
        });
        cluster
            .put_pool(&json!({"replicas": 3, "claimedBy": "Matching", "template": template}))
            .await;
        for (claimed, session) in (0..).zip(["a", "b", "c", "d", "e"]) {
            reaches(&cluster, |status| {
                status.ready == 3 && status.claimed == claimed
            })
            .await;
            assert!(start(&body(session)).await.status.warm, "{}", body(session));
        }
        for (field, value) in [
            ("image", json!("other:1")),
            ("resource_factor", json!(2)),
            ("run_as_user", json!(7)),
        ] {
            let mut other = body(field);
            other[field] = value;
            assert!(!start(&other).await.status.warm, "{other}");
        }
    }
}

/// CPU limit of the container of a Pod.
async fn cpu_limit(cluster: &TestCluster, pod: &str) -> String {
    let pod = cluster.api_of::<Pod>().get(pod).await.unwrap();
    let resources = pod.spec.unwrap().containers.remove(0).resources.unwrap();
    resources.limits.unwrap()["cpu"].0.clone()
}

#[tokio::test(start_paused = true)]
async fn small_warm_pods_grow_when_they_are_claimed() {
    let cluster = TestCluster::new();
    let amounts = json!({"limits": {"cpu": "100m", "memory": "64Mi"}, "requests": {"cpu": "0.01"}});
    let template = json!({"image": "i", "resources": {"limits": {"cpu": "1"}}});
    let mut spec = json!({"replicas": 2, "template": template, "idleResources": amounts});
    cluster.put_pool(&spec).await;
    reaches(&cluster, |status| status.ready == 2).await;
    assert_eq!(
        cpu_limit(&cluster, &cluster.warm_pods().await[0]).await,
        "100m"
    );

    cluster.faults().clear_writes();
    let sandbox = cluster.running_with("a", &of_pool()).await;
    let pod = sandbox.status.pod_name.clone().unwrap();
    cluster.wait_until_quiet().await;
    assert_eq!(cpu_limit(&cluster, &pod).await, "1");
    // The sandbox is ready before its Pod grows.
    let writes = || claim_writes(&cluster, &[&pod, "a"]);
    assert_eq!(writes(), ["pods", "sandboxes", "resize"]);

    // The node cannot hold it: the sandbox gets a Pod of its own, with all resources.
    cluster.node.refuse_resize(&pod).await;
    cluster.wait("a", |entry| !entry.status.warm).await.unwrap();
    let replaced = cluster.wait_for_phase("a", Phase::Running).await;
    assert_eq!(replaced.status.pod_name.as_deref(), Some("a"));
    assert_eq!(cpu_limit(&cluster, "a").await, "1");
    cluster.wait_until_quiet().await;
    let resizes = writes().iter().filter(|w| *w == "resize").count();
    assert_eq!(resizes, 1);
    cluster.node.assert_single_pod();

    // Another QoS class cannot be left in place.
    spec["idleResources"] = json!({"limits": {"cpu": "10m"}, "requests": {"cpu": "10m"}});
    spec["template"]["resources"] =
        json!({"limits": {"memory": "1Gi"}, "requests": {"memory": "1Gi"}});
    cluster.put_pool(&spec).await;
    let is_blocked = |status: &SandboxPoolStatus| {
        let mut conditions = status.conditions.iter();
        conditions.any(|own| own.reason == "Blocked" && own.message.contains("QoS class"))
    };
    reaches(&cluster, is_blocked).await;
}

#[tokio::test(start_paused = true)]
async fn exhausted_pool_makes_sandboxes_wait_for_a_time() {
    let cluster = TestCluster::new();
    let pool = |wait: &str| {
        json!({"replicas": 1, "whenExhausted": "Wait", "maxWait": wait,
            "template": {"image": "i"}})
    };
    cluster.put_pool(&pool("10m")).await;
    reaches(&cluster, |status| status.ready == 1).await;
    cluster.node.script_next_pod("p", PodScript::Unschedulable);
    assert!(cluster.running_with("first", &of_pool()).await.status.warm);
    for name in ["a", "b"] {
        cluster.create_with(name, &of_pool()).await;
        cluster
            .wait_for_reason(name, Reason::WaitingForWarmPod)
            .await;
    }
    reaches(&cluster, |status| status.starting == 1).await;
    cluster.node.script_next_pod("p", PodScript::Runs);
    cluster.node.heal(&cluster.warm_pods().await[0]).await;
    let [a, b] = [
        cluster.wait_for_phase("a", Phase::Running).await,
        cluster.wait_for_phase("b", Phase::Running).await,
    ];
    assert!(a.status.warm && b.status.warm);
    assert!(
        a.status.ready_at <= b.status.ready_at,
        "the oldest is first"
    );

    reaches(&cluster, |status| status.ready == 1).await;
    cluster.put_pool(&pool("5s")).await;
    cluster.node.script_next_pod("p", PodScript::Unschedulable);
    assert!(cluster.running_with("c", &of_pool()).await.status.warm);
    assert!(!cluster.running_with("d", &of_pool()).await.status.warm);
}

#[tokio::test(start_paused = true)]
async fn exhausted_pool_refuses_new_sandboxes() {
    let cluster = TestCluster::new();
    let gateway = cluster.gateway().await;
    let cold = gateway.start(&start_body("cold")).await;
    let name = cold["runtime_id"].as_str().unwrap();
    let spec = cluster.sandboxes().get(name).await.unwrap().spec;
    let pool = json!({"replicas": 1, "whenExhausted": "Refuse", "claimedBy": "Matching",
        "template": {"image": spec.image, "workspace": spec.workspace}});
    cluster.node.script_next_pod("p", PodScript::Unschedulable);
    cluster.put_pool(&pool).await;
    reaches(&cluster, |status| status.starting == 1).await;
    let refused = gateway.post("/start", &start_body("s")).await;
    assert_eq!(refused.status, 503, "{}", refused.body);
    let expected = "no warm Pod of the pool p is ready; retry later";
    assert_eq!(refused.body["detail"], expected);
    // Another session, and a retry of the same one, once there is a Pod.
    cluster.node.heal(&cluster.warm_pods().await[0]).await;
    reaches(&cluster, |status| status.ready == 1).await;
    let started = gateway.start(&start_body("s")).await;
    let name = started["runtime_id"].as_str().unwrap();
    assert!(
        cluster
            .wait_for_phase(name, Phase::Running)
            .await
            .status
            .warm
    );
    // A sandbox that was ready gets a Pod of its own.
    cluster
        .delete_pod_now(&cluster.status(name).await.pod_name.unwrap())
        .await;
    let replaced = cluster
        .wait(name, |entry| !entry.status.warm)
        .await
        .unwrap();
    assert_ne!(replaced.status.phase, Phase::Failed);
}

#[tokio::test(start_paused = true)]
async fn pool_grows_with_its_demand_and_shrinks_later() {
    let cluster = TestCluster::new();
    let invariants = cluster.watch_invariants();
    let pool = json!({"replicas": 1, "demand": {"maxReplicas": 4, "hits": 100},
        "template": {"image": "i"}});
    cluster.put_pool(&pool).await;
    reaches(&cluster, |status| status.ready == 1).await;
    for number in 0..6 {
        cluster.create_with(&format!("s{number}"), &of_pool()).await;
    }
    reaches(&cluster, |status| status.ready == 4 && status.desired == 4).await;
    sleep(Duration::from_hours(1)).await;
    reaches(&cluster, |status| status.ready == 1 && status.desired == 1).await;
    invariants.assert_held();
}
