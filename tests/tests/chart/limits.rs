//! The sample of cluster-wide limits: what exceeds them fails at once, and the sandbox says why.

use serde_json::json;

use crate::rbac::sandbox;
use crate::release::{IMAGE, SANDBOXES};
use tests::cli_tools::{get, kubectl, until, wait};

const POLICY: &str = "manifests/policies/sandbox-limits.yaml";
const LABEL: &str = "openhands.dev/sandbox-limits";

pub(crate) fn hold_for_all_sandboxes_of_a_namespace() {
    kubectl(&["apply", "-f", POLICY]);
    let label =
        |value: &str| kubectl(&["label", "namespace", SANDBOXES, &format!("{LABEL}{value}")]);
    label("=standard");
    let large = json!({"limits": {"cpu": "9", "memory": "1Gi"}});
    let spec = json!({"image": IMAGE, "command": ["sleep", "infinity"], "resources": large});
    // A policy takes a moment to be known to the API server.
    until("the policy holds", || {
        sandbox("large", &spec);
        wait(SANDBOXES, "jsonpath={.status.reason}", "large");
        let refused = get(&["sandbox", "large", "-n", SANDBOXES])["status"].clone();
        kubectl(&["delete", "sandbox", "large", "-n", SANDBOXES]);
        let message = refused["message"].as_str().unwrap_or_default();
        refused["reason"] == "InvalidSpec" && message.contains("a CPU limit, of 8 at most")
    });
    label("-");
    kubectl(&["delete", "-f", POLICY]);
}
