//! What those are told whose sandbox, made with kubectl, cannot work: the status says what is wrong, and
//! the log outlives the Pod for administrators alone.

use crds::conditions::Reason;
use crds::sandbox::{Phase, SandboxStatus};
use serde_json::json;

use crate::scene::Scene;
use crate::session::start_body;

impl Scene {
    /// Waits until the sandbox is given up because its command ends all the time.
    async fn given_up(&self, name: &str) -> SandboxStatus {
        let status = self
            .until(name, "given up", |s| s.phase == Phase::Failed)
            .await;
        assert_eq!(status.reason, Some(Reason::CrashLoop));
        status
    }
}

#[tokio::test]
#[ignore = "needs a real cluster: make test-cluster"]
async fn a_server_without_the_user_that_it_needs_says_so() {
    let scene = Scene::new("powerless").await;
    scene.apply("v0", &json!({"command": start_body("")["command"]}));
    let first = scene
        .until("v0", "started again", |s| {
            s.reason == Some(Reason::Restarting)
        })
        .await;
    let why = "started as root without the right to become openhands: \
        securityContext.runAsUser is missing";
    let message = first.message.unwrap();
    assert!(message.contains(why), "{message}");
    let message = scene.given_up("v0").await.message.unwrap();
    assert!(message.ends_with(why), "{message}");
    assert!(scene.saw("v0", "Failed").await.ends_with(why));
    scene
        .patch("v0", json!({"securityContext": {"runAsUser": 1000}}))
        .await;
    scene.ready("v0").await;
}

#[tokio::test]
#[ignore = "needs a real cluster: make test-cluster"]
async fn the_output_of_a_failed_command_is_for_administrators() {
    let scene = Scene::new("output").await;
    let script = "echo first; echo secret-of-the-command >&2; exit 3";
    scene.apply("own", &json!({"command": ["sh", "-c", script]}));
    let status = scene.given_up("own").await;
    let message = "the command ended 3 times, last with exit code 3";
    assert_eq!(status.message.as_deref(), Some(message));
    let pod = scene.pods().get_opt("own").await.unwrap();
    if let Some(pod) = pod {
        scene.gone(&pod).await;
    }
    let log = scene.operator(&["logs", "own"]).unwrap();
    assert!(
        log.contains("first") && log.contains("secret-of-the-command"),
        "{log}"
    );
    let end = scene.operator(&["logs", "own", "--tail", "1"]).unwrap();
    assert!(
        end.contains("command ended") && end.lines().count() == 1,
        "{end}"
    );
    let object =
        tests::tools::kubectl(&["get", "sbx", "own", "-n", &scene.namespace, "-o", "json"]);
    let object: serde_json::Value = serde_json::from_str(&object).unwrap();
    assert!(
        !object["status"]
            .to_string()
            .contains("secret-of-the-command")
    );
}

#[tokio::test]
#[ignore = "needs a real cluster: make test-cluster"]
async fn logs_and_tokens_are_found_or_missed_in_one_line() {
    let scene = Scene::new("missed").await;
    let missing = scene.operator(&["logs", "nobody"]).unwrap_err();
    let words = "sandbox-operator: sandboxes.openhands.dev \"nobody\" not found\n";
    assert_eq!(missing, words);
    scene.apply(
        "live",
        &json!({"command": ["sh", "-c", "echo hello; sleep infinity"]}),
    );
    scene.ready("live").await;
    scene.reported("live").await;
    let log = scene.operator(&["logs", "live"]).unwrap();
    assert!(log.contains("hello"), "{log}");
    let elsewhere = ["token", "live", "--operator-namespace", "kube-system"];
    let refused = scene.operator(&elsewhere).unwrap_err();
    let words = "sandbox-operator: no operator in namespace kube-system (--operator-namespace): \
        Secret sandbox-operator-root-key is not there yet: a controller makes it\n";
    assert_eq!(refused, words);
    let secrets = tests::tools::kubectl(&["get", "secrets", "-n", "kube-system", "-o", "name"]);
    assert!(!secrets.contains("root-key"), "{secrets}");
    scene.patch("live", json!({"state": "Paused"})).await;
    scene
        .until("live", "paused", |s| s.phase == Phase::Paused)
        .await;
    let paused = scene.operator(&["logs", "live"]).unwrap_err();
    assert!(
        paused.ends_with("it is paused, and the log goes with the Pod\n"),
        "{paused}"
    );
}
