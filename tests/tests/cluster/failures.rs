//! Failures of sandboxes made with kubectl, and of administrators' commands.

use crds::conditions::Reason;
use crds::sandbox::{Phase, SandboxStatus};
use serde_json::json;

use crate::session::start_body;
use crate::test_namespace::TestNamespace;

#[tokio::test]
#[ignore = "needs a real cluster: make test-cluster"]
async fn missing_right_to_change_user_is_reported() {
    let ns = TestNamespace::new("powerless").await;
    ns.apply("v0", &json!({"command": start_body("")["command"]}));
    let again = |s: &SandboxStatus| s.reason == Some(Reason::Restarting);
    let first = ns.until("v0", "started again", again).await;
    let why = "started as root without the right to become openhands: \
        securityContext.runAsUser is missing";
    let message = first.message.unwrap();
    assert!(message.contains(why), "{message}");
    let failed = |s: &SandboxStatus| s.phase == Phase::Failed;
    let given_up = ns.until("v0", "given up", failed).await;
    assert_eq!(given_up.reason, Some(Reason::CrashLoop));
    let message = given_up.message.unwrap();
    assert!(message.ends_with(why), "{message}");
    assert!(ns.wait_for_event("v0", "Failed").await.ends_with(why));
    let user = json!({"securityContext": {"runAsUser": 1000}});
    ns.patch("v0", user).await;
    ns.ready("v0").await;
}

#[tokio::test]
#[ignore = "needs a real cluster: make test-cluster"]
async fn failed_log_and_token_commands_print_one_line() {
    let ns = TestNamespace::new("missed").await;
    let missing = ns.operator(&["logs", "missing"]).unwrap_err();
    let words = "sandbox-operator: sandboxes.openhands.dev \"missing\" not found\n";
    assert_eq!(missing, words);
    let script = json!({"command": ["sh", "-c", "echo hello; sleep infinity"]});
    ns.apply("live", &script);
    ns.ready("live").await;
    ns.reported("live").await;
    let log = ns.operator(&["logs", "live"]).unwrap();
    assert!(log.contains("hello"), "{log}");
    let elsewhere = ["token", "live", "--operator-namespace", "kube-system"];
    let refused = ns.operator(&elsewhere).unwrap_err();
    let words = "sandbox-operator: no operator in namespace kube-system (--operator-namespace): \
        Secret sandbox-operator-root-key does not exist yet: the controller creates it\n";
    assert_eq!(refused, words);
    let secrets = tests::cli_tools::kubectl(&["get", "secrets", "-n", "kube-system", "-o", "name"]);
    assert!(!secrets.contains("root-key"), "{secrets}");
    ns.patch("live", json!({"state": "Paused"})).await;
    ns.paused("live").await;
    let paused = ns.operator(&["logs", "live"]).unwrap_err();
    let why = "it is paused, and its Pod is deleted\n";
    assert!(paused.ends_with(why), "{paused}");
}
