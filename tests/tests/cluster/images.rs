//! Problems of a start: missing images, commands that end. Each is reported,
//! retried as long as it makes sense, and over once it is fixed. The log outlives the Pod.

use crds::conditions::Reason;
use crds::sandbox::{Phase, PodStatus, SandboxStatus};
use serde_json::json;

use crate::installation::IMAGE;
use crate::test_namespace::TestNamespace;
use tests::cli_tools::get;

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
async fn missing_image_fails_after_start_timeout() {
    let ns = TestNamespace::new("missing").await;
    let image = "localhost/not-there:1";
    let spec =
        json!({"image": image, "command": ["sleep", "infinity"], "workspace": {"size": "10Mi"}});
    ns.apply("missing", &spec);
    let waits = ns.until(
        "missing",
        "without image",
        waits_for(Reason::ImagePullBackOff),
    );
    let waits = waits.await;
    assert!(message(&waits).contains(image), "{waits:?}");
    assert_eq!(waits.pod_status, Some(PodStatus::Pending));
    assert_eq!(condition(&waits, "Ready"), ("False", "ImagePullBackOff"));
    let backing_off = |s: &SandboxStatus| message(s).starts_with("ImagePullBackOff");
    ns.until("missing", "backing off", backing_off).await;
    let said = ns.wait_for_event("missing", "ImagePullBackOff").await;
    assert!(said.contains(image), "{said}");

    // Two minutes in which others may have the node for themselves.
    let given_up = ns.until("missing", "given up", failed).await;
    assert_eq!(given_up.reason, Some(Reason::ImagePullBackOff));
    assert_eq!(given_up.pod_status, Some(PodStatus::Failed));
    assert!(message(&given_up).contains(image), "{given_up:?}");
    assert_eq!(condition(&given_up, "Failed"), ("True", "ImagePullBackOff"));
    assert!(given_up.workspace_claim.is_some());
    let said = ns.wait_for_event("missing", "Failed").await;
    let told = said.starts_with("ImagePullBackOff: ") && said.contains(image);
    assert!(told, "{said}");

    // The image of a sandbox that is to run stays as it is: mended, it is started by a second change.
    let mended = json!({"image": IMAGE, "state": "Paused"});
    ns.patch("missing", mended).await;
    ns.paused("missing").await;
    ns.patch("missing", json!({"state": "Running"})).await;
    assert_eq!(ns.ready("missing").await.restarts.count, 0);
    ns.wait_for_event("missing", "Resumed").await;
}

#[tokio::test]
#[ignore = "needs a real cluster: make test-cluster"]
async fn ending_commands_fail_with_their_status() {
    let ns = TestNamespace::new("crash").await;
    let script = "echo first; echo secret-of-the-command >&2; exit 3";
    ns.apply("ends", &json!({"command": ["sh", "-c", script]}));
    ns.apply("absent", &json!({"command": ["/does/not/exist"]}));
    let absent = "exit code 127: \"/does/not/exist\" was not found";
    for (name, end, reason) in [
        ("ends", "exit code 3", "exit code 3"),
        ("absent", absent, "exit code 127 (command not found)"),
    ] {
        let given_up = ns.until(name, "given up", failed).await;
        assert_eq!(given_up.reason, Some(Reason::CrashLoop));
        assert_eq!(given_up.pod_status, Some(PodStatus::CrashLoopBackOff));
        let wanted = format!("the command terminated 3 times; last termination: {end}");
        assert_eq!(message(&given_up), wanted);
        assert_eq!(given_up.restarts.reasons, [reason, reason]);
        let said = ns.wait_for_event(name, "Failed").await;
        assert_eq!(said, format!("CrashLoop: {wanted}"));
    }
    // The output outlives the Pod, for administrators only.
    let pod = ns.pods().get_opt("ends").await.unwrap();
    if let Some(pod) = pod {
        ns.gone(&pod).await;
    }
    let log = ns.operator(&["logs", "ends"]).unwrap();
    let (first, secret) = ("first", "secret-of-the-command");
    assert!(log.contains(first) && log.contains(secret), "{log}");
    let end = ns.operator(&["logs", "ends", "--tail", "1"]).unwrap();
    // The two streams of a container have no order: the node may store the last line of one first.
    assert!(log.contains("command ended"), "{log}");
    assert_eq!(end.trim_end(), log.lines().last().unwrap());
    let object = get(&["sbx", "ends", "-n", &ns.namespace]);
    assert!(!object["status"]["sealedLog"].is_null());
    assert!(!object["status"].to_string().contains(secret));
}
