//! Templates that pass the policy, and templates that need the flag or are rejected always.

use serde_json::{Value, json};

use super::*;
use crate::reconcile::build::pod_template::apply_template;
use crate::reconcile::build::tests::fixtures::config;

fn pod() -> Pod {
    serde_json::from_value(json!({
        "metadata": {"labels": {"openhands.dev/sandbox": "a"}},
        "spec": {
            "automountServiceAccountToken": false,
            "hostUsers": false,
            "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
            "volumes": [{"name": "sandbox-bin", "emptyDir": {}}, {"name": "workspace", "emptyDir": {}}],
            "initContainers": [{"name": "executor", "resources": {"limits": {"cpu": "1"}}}],
            "containers": [{
                "name": "sandbox",
                "command": ["supervise"],
                "env": [{"name": "SANDBOX_CONTROL_KEY", "value": "k"}],
                "resources": {"limits": {"cpu": "500m", "memory": "1Gi"}},
                "securityContext": {"capabilities": {"drop": ["ALL"]}},
            }],
        }
    }))
    .unwrap()
}

fn fault(template: &Value, privileged: bool) -> String {
    let mut config = config();
    config.pods.privileged_templates = privileged;
    let bounds = [("cpu", "600m"), ("memory", "1Gi")];
    let bounds = bounds.map(|(name, most)| (name.to_owned(), most.to_owned()));
    config.defaults.max_resources = bounds.into();
    let merged = apply_template(&pod(), template).unwrap();
    let result = check(&pod(), &merged, &config);
    result.err().map(|e| e.to_string()).unwrap_or_default()
}

fn spec(spec: &Value) -> Value {
    json!({ "spec": spec })
}

fn with(container: &Value) -> Value {
    let mut container = container.clone();
    container["name"] = json!("sandbox");
    spec(&json!({"containers": [container]}))
}

fn side(more: &Value) -> Value {
    let mut container = json!({
        "name": "side", "image": "s",
        "resources": {"limits": {"cpu": "100m", "memory": "0"}},
        "securityContext": {"capabilities": {"drop": ["ALL"]}},
    });
    for (field, value) in more.as_object().unwrap() {
        container[field] = value.clone();
    }
    spec(&json!({"containers": [container]}))
}

#[test]
fn unprivileged_template_passes() {
    for template in [
        json!({}),
        json!({"metadata": {
            "labels": {"team": "a", "kueue.x-k8s.io/queue-name": "q"},
            "annotations": {"note": "b", "prometheus.io/scrape": "true"},
        }}),
        spec(&json!({"nodeSelector": {"a": "b"}, "volumes": [{"name": "v", "emptyDir": {}}]})),
        spec(&json!({"hostNetwork": false, "hostUsers": false, "priorityClassName": "low"})),
        spec(&json!({"volumes": [{"name": "workspace", "emptyDir": {"medium": "Memory"}}]})),
        side(&json!({"command": ["x"], "ports": [{"containerPort": 1}]})),
        with(&json!({"securityContext": {"capabilities": {"add": ["CHOWN"]}}})),
        with(&json!({"env": [{"name": "A", "value": "1"}], "image": "other"})),
        with(
            &json!({"livenessProbe": {"httpGet": {"port": 80, "httpHeaders": [{"name": "h", "value": "v"}]}}}),
        ),
    ] {
        assert_eq!(fault(&template, false), "", "{template}");
    }
}

#[test]
#[allow(clippy::too_many_lines, reason = "a table of cases")]
fn privileged_template_requires_flag() {
    let security = |context: Value| with(&json!({ "securityContext": context }));
    let annotation = |key: &str| json!({"metadata": {"annotations": {key: "unconfined"}}});
    let volume = |source: Value| {
        let mut volume = source;
        volume["name"] = json!("v");
        spec(&json!({"volumes": [volume]}))
    };
    for (template, what) in [
        (spec(&json!({"hostNetwork": true})), "hostNetwork"),
        (spec(&json!({"hostPID": true})), "hostPID"),
        (spec(&json!({"hostIPC": true})), "hostIPC"),
        (spec(&json!({"hostUsers": true})), "hostUsers"),
        (
            spec(&json!({"serviceAccountName": "admin"})),
            "serviceAccountName",
        ),
        (
            spec(&json!({"automountServiceAccountToken": true})),
            "automountServiceAccountToken",
        ),
        (spec(&json!({"overhead": {"cpu": "1"}})), "overhead"),
        (
            spec(&json!({"priorityClassName": "system-node-critical"})),
            "a priorityClassName of the system",
        ),
        (
            spec(&json!({"securityContext": {"seLinuxOptions": {"type": "spc_t"}}})),
            "securityContext.seLinuxOptions",
        ),
        (
            spec(&json!({"securityContext": {"windowsOptions": {"hostProcess": true}}})),
            "securityContext.windowsOptions",
        ),
        (
            spec(&json!({"securityContext": {"sysctls": [{"name": "a", "value": "b"}]}})),
            "securityContext.sysctls",
        ),
        (
            spec(&json!({"securityContext": {"seccompProfile": {"type": "Unconfined"}}})),
            "securityContext.seccompProfile Unconfined",
        ),
        (
            annotation("container.apparmor.security.beta.kubernetes.io/sandbox"),
            "the annotation container.apparmor.security.beta.kubernetes.io/sandbox",
        ),
        (
            annotation("openhands.dev/restarts"),
            "the annotation openhands.dev/restarts",
        ),
        (
            json!({"metadata": {"labels": {"app.kubernetes.io/name": "sandbox-operator"}}}),
            "the label app.kubernetes.io/name",
        ),
        (
            volume(json!({"hostPath": {"path": "/"}})),
            "hostPath of volume v",
        ),
        (
            volume(json!({"nfs": {"server": "s", "path": "/"}})),
            "nfs of volume v",
        ),
        (
            volume(json!({"projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}})),
            "serviceAccountToken of volume v",
        ),
        (
            volume(json!({"persistentVolumeClaim": {"claimName": "b-workspace"}})),
            "the PVC b-workspace of another sandbox",
        ),
        (
            security(json!({"privileged": true})),
            "privileged of container sandbox",
        ),
        (
            security(json!({"procMount": "Unmasked"})),
            "procMount of container sandbox",
        ),
        (
            security(json!({"seLinuxOptions": {"type": "spc_t"}})),
            "seLinuxOptions of container sandbox",
        ),
        (
            security(json!({"capabilities": {"add": ["SYS_ADMIN"]}})),
            "the capability SYS_ADMIN of container sandbox",
        ),
        (
            security(json!({"capabilities": {"drop": ["KILL"]}})),
            "securityContext.capabilities without drop: [ALL] of container sandbox",
        ),
        (
            security(json!({"seccompProfile": {"type": "Unconfined"}})),
            "seccompProfile Unconfined of container sandbox",
        ),
        (
            side(&json!({"securityContext": {}})),
            "securityContext.capabilities without drop: [ALL] of container side",
        ),
        (
            with(&json!({"ports": [{"containerPort": 1, "hostPort": 1}]})),
            "hostPort of container sandbox",
        ),
        (
            with(&json!({"livenessProbe": {"httpGet": {"host": "10.0.0.1", "port": 80}}})),
            "httpGet.host of container sandbox",
        ),
        (
            with(&json!({"resources": {"limits": {"cpu": "64"}}})),
            "more cpu than 600m (--max-resources)",
        ),
        (
            side(&json!({"resources": {"limits": {"cpu": "200m", "memory": "0"}}})),
            "more cpu than 600m (--max-resources)",
        ),
        (
            side(&json!({"resources": {}})),
            "container side without a limit of cpu",
        ),
    ] {
        let expected =
            format!("spec.podTemplate: {what} is allowed only with --allow-privileged-templates");
        assert_eq!(fault(&template, false), expected);
        assert_eq!(fault(&template, true), "");
    }
}

#[test]
fn template_cannot_change_operator_parts() {
    for (template, path) in [
        (
            with(&json!({"command": ["sh"]})),
            "containers[sandbox].command: ",
        ),
        (
            with(&json!({"args": ["x"]})),
            "containers[sandbox].command: ",
        ),
        (
            with(&json!({"env": [{"name": "SANDBOX_CONTROL_KEY", "value": "mine"}]})),
            "containers[sandbox].env: ",
        ),
        (
            spec(&json!({"volumes": [{"name": "sandbox-bin", "emptyDir": {"medium": "Memory"}}]})),
            "volumes: ",
        ),
    ] {
        let fault = fault(&template, true);
        let expected = format!("spec.podTemplate.spec.{path}");
        assert!(fault.starts_with(&expected), "{fault}");
    }
}
