//! Full image builds have one Pod each, also if controller, Pods and builds are lost or deleted.

use std::time::Duration;

use crds::image_build::BuildPhase;
use crds::{ImageBuild, names};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use operator::image_builds::ImageBuilds;
use serde_json::{Value, json};
use tests::test_cluster::TestCluster;
use tokio::time::sleep;

const NAMESPACE: &str = "sandbox-builds";
const PUSHED: &str = r#"{"digest":"sha256:1111111111111111111111111111111111111111111111111111111111111111","sizeBytes":7}"#;

/// A cluster whose controller makes full builds; this file plays the node.
struct Builds(TestCluster);

impl Builds {
    async fn new() -> Self {
        let mut cluster = TestCluster::without_controller();
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": NAMESPACE}});
        let namespace = serde_json::from_value::<Namespace>(namespace).unwrap();
        let namespaces = Api::<Namespace>::all(cluster.observer.clone());
        let created = namespaces.create(&PostParams::default(), &namespace).await;
        created.unwrap();
        cluster.config.image_builds = ImageBuilds::Full;
        cluster.start_controller();
        Self(cluster)
    }

    /// A build as gateways hand it over.
    async fn submit(&self, tag: &str, tenant: &str) -> String {
        let target = format!("r.example/runtime:{tag}");
        let name = names::image_build(tenant, &target);
        let build = json!({
            "apiVersion": "openhands.dev/v1alpha1", "kind": "ImageBuild",
            "metadata": {"name": name, "labels": {"openhands.dev/build-mode": "full"}},
            "spec": {"tenant": tenant, "target": target,
                "contextDigest": format!("sha256:{}", "0".repeat(64)), "mode": "Full"},
        });
        let build = serde_json::from_value(build).unwrap();
        self.builds()
            .create(&PostParams::default(), &build)
            .await
            .unwrap();
        let context = format!("r.example/runtime@sha256:{}", "2".repeat(64));
        let status = Patch::Merge(json!({"status": {"context": context}}));
        let params = PatchParams::default();
        self.builds()
            .patch_status(&name, &params, &status)
            .await
            .unwrap();
        name
    }

    fn builds(&self) -> Api<ImageBuild> {
        self.0.api_of()
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.0.observer.clone(), NAMESPACE)
    }

    async fn pod_names(&self) -> Vec<String> {
        let pods = self.pods().list(&ListParams::default()).await.unwrap();
        pods.items.iter().map(ResourceExt::name_any).collect()
    }

    /// Waits for the Pod of a build; its uid.
    async fn pod(&self, name: &str) -> String {
        for _ in 0..3600 {
            if let Some(pod) = self.pods().get_opt(name).await.unwrap()
                && pod.metadata.deletion_timestamp.is_none()
            {
                return pod.uid().unwrap();
            }
            sleep(Duration::from_millis(500)).await;
        }
        panic!("no Pod for {name}");
    }

    async fn set_pod(&self, name: &str, status: Value) {
        let patch = Patch::Merge(json!({"status": status}));
        let params = PatchParams::default();
        self.pods()
            .patch_status(name, &params, &patch)
            .await
            .unwrap();
    }

    async fn succeed(&self, name: &str) {
        let push = json!({"name": "push", "image": "", "imageID": "", "ready": false,
            "restartCount": 0, "state": {"terminated": {"exitCode": 0, "message": PUSHED}}});
        self.set_pod(
            name,
            json!({"phase": "Succeeded", "containerStatuses": [push]}),
        )
        .await;
    }

    async fn lose(&self, name: &str) {
        let evicted = json!({"phase": "Failed", "reason": "Evicted", "message": "disk pressure"});
        self.set_pod(name, evicted).await;
    }

    /// Waits until a build has ended and its Pod is gone; phase, reason and attempts.
    async fn end(&self, name: &str) -> (BuildPhase, Option<String>, u32) {
        for _ in 0..7200 {
            let build = self.builds().get(name).await.unwrap();
            let status = build.status.clone().unwrap_or_default();
            if build.is_finished() && !self.pod_names().await.contains(&name.to_owned()) {
                return (
                    status.phase,
                    status.reason,
                    status.attempts.unwrap_or_default(),
                );
            }
            sleep(Duration::from_millis(500)).await;
        }
        panic!("{name} does not end");
    }
}

#[tokio::test(start_paused = true)]
async fn image_that_the_pod_pushed_is_reported() {
    let builds = Builds::new().await;
    let one = &builds.submit("one", "alice").await;
    builds.pod(one).await;
    assert_eq!(
        builds.builds().get(one).await.unwrap().phase(),
        BuildPhase::Running
    );
    builds.succeed(one).await;
    assert_eq!(builds.end(one).await, (BuildPhase::Succeeded, None, 1));
    let status = builds.builds().get(one).await.unwrap().status.unwrap();
    assert_eq!(status.size_bytes, Some(7));
    assert!(PUSHED.contains(&status.digest.unwrap()));
}

#[tokio::test(start_paused = true)]
async fn lost_pods_are_replaced_three_times_at_most() {
    let builds = Builds::new().await;
    let one = &builds.submit("one", "alice").await;
    let mut seen = Vec::new();
    for _ in 0..3 {
        let uid = builds.pod(one).await;
        assert!(!seen.contains(&uid));
        seen.push(uid);
        builds.lose(one).await;
        while builds
            .pods()
            .get_opt(one)
            .await
            .unwrap()
            .is_some_and(|pod| pod.uid() == seen.last().cloned())
        {
            sleep(Duration::from_millis(500)).await;
        }
    }
    let (phase, reason, attempts) = builds.end(one).await;
    assert_eq!(
        (phase, reason.as_deref(), attempts),
        (BuildPhase::Failed, Some("Interrupted"), 3)
    );
    let message = builds
        .builds()
        .get(one)
        .await
        .unwrap()
        .status
        .unwrap()
        .message;
    assert_eq!(message.as_deref(), Some("disk pressure"));
}

#[tokio::test(start_paused = true)]
async fn builds_of_a_tenant_take_turns_and_expire_in_the_queue() {
    let builds = Builds::new().await;
    let mut names = Vec::new();
    for (tag, tenant) in [("1", "alice"), ("1", "bob"), ("2", "alice"), ("3", "alice")] {
        names.push(builds.submit(tag, tenant).await);
        sleep(Duration::from_secs(1)).await;
    }
    let [first, other, second, third] = &names[..] else {
        unreachable!();
    };
    sleep(Duration::from_mins(20)).await;
    let mut running = builds.pod_names().await;
    running.sort_by_key(|name| name == other);
    assert_eq!(running.iter().collect::<Vec<_>>(), [first, other]);
    builds.succeed(first).await;
    assert_eq!(builds.end(first).await.0, BuildPhase::Succeeded);
    builds.pod(second).await;
    // The kubelet is silent; the controller keeps the deadline. What has waited until then is late.
    let (phase, reason, _) = builds.end(second).await;
    assert_eq!(
        (phase, reason.as_deref()),
        (BuildPhase::Failed, Some("DeadlineExceeded"))
    );
    let (phase, reason, attempts) = builds.end(third).await;
    assert_eq!(
        (phase, reason.as_deref(), attempts),
        (BuildPhase::Failed, Some("QueueExpired"), 0)
    );
}

#[tokio::test(start_paused = true)]
async fn next_controller_goes_on_with_the_pod_and_removes_leftovers() {
    let mut builds = Builds::new().await;
    let one = &builds.submit("one", "alice").await;
    let deleted = &builds.submit("deleted", "bob").await;
    let uid = builds.pod(one).await;
    builds.pod(deleted).await;
    builds.0.stop_controller();
    builds
        .builds()
        .delete(deleted, &DeleteParams::default())
        .await
        .unwrap();
    builds.0.start_controller();
    while builds.pod_names().await != [one.clone()] {
        sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(builds.pod(one).await, uid);
    builds.succeed(one).await;
    assert_eq!(builds.end(one).await, (BuildPhase::Succeeded, None, 1));
}

#[tokio::test(start_paused = true)]
async fn pod_of_a_deleted_build_is_deleted() {
    let builds = Builds::new().await;
    let one = &builds.submit("one", "alice").await;
    builds.pod(one).await;
    builds
        .builds()
        .delete(one, &DeleteParams::default())
        .await
        .unwrap();
    while !builds.pod_names().await.is_empty() {
        sleep(Duration::from_secs(1)).await;
    }
    // Its place is free again.
    let two = &builds.submit("two", "alice").await;
    builds.pod(two).await;
}

/// A failed build is replaced by one of the same name, of which the leftover Pod knows nothing.
#[tokio::test(start_paused = true)]
async fn pod_of_an_earlier_build_of_the_name_is_replaced() {
    let mut builds = Builds::new().await;
    let one = &builds.submit("one", "alice").await;
    let uid = builds.pod(one).await;
    builds.0.stop_controller();
    let params = DeleteParams::default();
    builds.builds().delete(one, &params).await.unwrap();
    let one = &builds.submit("one", "alice").await;
    builds.succeed(one).await;
    builds.0.start_controller();
    while builds.pod(one).await == uid {
        sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(
        builds.builds().get(one).await.unwrap().phase(),
        BuildPhase::Running
    );
    builds.succeed(one).await;
    assert_eq!(builds.end(one).await, (BuildPhase::Succeeded, None, 1));
}
