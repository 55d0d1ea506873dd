//! What keeps a sandbox from starting: images that are not there, configuration that cannot be, commands
//! that end. Each is said in words, waited for as long as it makes sense, and over once it is mended.

use crds::conditions::Reason;
use crds::sandbox::{Phase, PodStatus, SandboxStatus};
use k8s_openapi::api::core::v1::Secret;
use kube::api::PostParams;
use serde_json::json;

use crate::installation::IMAGE;
use crate::machine::ctr;
use crate::scene::Scene;

fn failed(status: &SandboxStatus) -> bool {
    status.phase == Phase::Failed
}

fn waits_for(reason: Reason) -> impl Fn(&SandboxStatus) -> bool {
    move |status| status.phase == Phase::Starting && status.reason == Some(reason)
}

fn message(status: &SandboxStatus) -> &str {
    status.message.as_deref().unwrap_or_default()
}

fn condition<'a>(status: &'a SandboxStatus, kind: &str) -> (&'a str, &'a str) {
    let mut all = status.conditions.iter();
    let found = all.find(|c| c.type_ == kind).unwrap();
    (&found.status, &found.reason)
}

#[tokio::test]
#[ignore = "needs a real cluster: make test-cluster"]
async fn an_image_that_is_not_there_is_given_up_after_a_while() {
    let mut scene = Scene::new("missing").await;
    let image = "localhost/not-there:1";
    let spec =
        json!({"image": image, "command": ["sleep", "infinity"], "workspace": {"size": "10Mi"}});
    scene.apply("missing", &spec);
    let waits = scene
        .until("missing", "without image", waits_for(Reason::ImagePull))
        .await;
    assert!(message(&waits).contains(image), "{waits:?}");
    assert_eq!(waits.pod_status, Some(PodStatus::Pending));
    assert_eq!(condition(&waits, "Ready"), ("False", "ImagePull"));
    scene
        .until("missing", "backing off", |s| {
            message(s).starts_with("ImagePullBackOff")
        })
        .await;
    assert!(scene.saw("missing", "ImagePull").await.contains(image));

    // Two minutes in which others may have the node for themselves.
    scene.leaves_the_node();
    let given_up = scene.until("missing", "given up", failed).await;
    assert_eq!(given_up.reason, Some(Reason::ImagePull));
    assert_eq!(given_up.pod_status, Some(PodStatus::Failed));
    assert!(message(&given_up).contains(image), "{given_up:?}");
    assert_eq!(condition(&given_up, "Failed"), ("True", "ImagePull"));
    assert!(given_up.workspace_claim.is_some());
    let said = scene.saw("missing", "Failed").await;
    assert!(
        said.starts_with("ImagePull: ") && said.contains(image),
        "{said}"
    );

    // The image of a sandbox that is to run stays as it is: mended, it is started by a second change.
    let mended = json!({"image": IMAGE, "state": "Paused"});
    scene.patch("missing", mended).await;
    scene
        .until("missing", "paused", |s| s.phase == Phase::Paused)
        .await;
    scene.patch("missing", json!({"state": "Running"})).await;
    assert_eq!(scene.ready("missing").await.restarts.count, 0);
    scene.saw("missing", "Resumed").await;
}

#[tokio::test]
#[ignore = "needs a real cluster: make test-cluster"]
async fn an_image_that_comes_late_is_used() {
    let scene = Scene::new("late").await;
    let image = format!("localhost/{}:1", scene.namespace);
    let spec =
        json!({"image": image, "imagePullPolicy": "Never", "command": ["sleep", "infinity"]});
    scene.apply("late", &spec);
    let waits = scene
        .until("late", "without image", waits_for(Reason::ImagePull))
        .await;
    assert!(
        message(&waits).starts_with("ErrImageNeverPull"),
        "{waits:?}"
    );
    ctr(&["images", "tag", IMAGE, &image]);
    let status = scene.ready("late").await;
    assert_eq!(status.restarts.count, 0);
}

#[tokio::test]
#[ignore = "needs a real cluster: make test-cluster"]
async fn a_name_that_is_none_is_given_up_at_once() {
    let scene = Scene::new("name").await;
    scene.apply("odd", &json!({"image": "Bad:::Name", "command": ["true"]}));
    let status = scene.until("odd", "given up", failed).await;
    assert_eq!(status.reason, Some(Reason::ImagePull));
    assert!(
        message(&status).starts_with("InvalidImageName"),
        "{status:?}"
    );
}

#[tokio::test]
#[ignore = "needs a real cluster: make test-cluster"]
async fn configuration_that_is_missing_is_waited_for() {
    let scene = Scene::new("config").await;
    let variable =
        json!({"name": "A", "valueFrom": {"secretKeyRef": {"name": "later", "key": "a"}}});
    scene.apply(
        "c",
        &json!({"command": ["sleep", "infinity"], "env": [variable]}),
    );
    let waits = scene
        .until("c", "without secret", waits_for(Reason::ContainerConfig))
        .await;
    assert!(
        message(&waits).contains(r#"secret "later" not found"#),
        "{waits:?}"
    );
    scene.saw("c", "ContainerConfig").await;
    let secret = json!({"metadata": {"name": "later"}, "stringData": {"a": "b"}});
    let secret: Secret = serde_json::from_value(secret).unwrap();
    let api = scene.api::<Secret>();
    api.create(&PostParams::default(), &secret).await.unwrap();
    scene.ready("c").await;
}

#[tokio::test]
#[ignore = "needs a real cluster: make test-cluster"]
async fn commands_that_end_are_given_up_with_their_status() {
    let scene = Scene::new("crash").await;
    scene.apply(
        "ends",
        &json!({"command": ["sh", "-c", "echo at the end; exit 3"]}),
    );
    scene.apply("absent", &json!({"command": ["/does/not/exist"]}));
    let absent = "exit code 127: \"/does/not/exist\" was not found";
    for (name, end, reason) in [
        ("ends", "exit code 3", "exit code 3"),
        ("absent", absent, "exit code 127 (command not found)"),
    ] {
        let given_up = scene.until(name, "given up", failed).await;
        assert_eq!(given_up.reason, Some(Reason::CrashLoop));
        assert_eq!(given_up.pod_status, Some(PodStatus::CrashLoopBackOff));
        let wanted = format!("the command ended 3 times, last with {end}");
        assert_eq!(message(&given_up), wanted);
        assert_eq!(given_up.restarts.reasons, [reason, reason]);
        let said = scene.saw(name, "Failed").await;
        assert_eq!(said, format!("CrashLoop: {wanted}"));
        // What it printed is kept for its owner.
        assert!(name == "absent" || given_up.sealed_log.is_some());
    }
}
