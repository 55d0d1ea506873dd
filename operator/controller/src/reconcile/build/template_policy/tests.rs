//! Templates that pass the policy, and templates that need the flag or are rejected always.

use serde_json::{Value, json};

use super::*;
use crate::reconcile::build::pod_template::apply_template;
use crate::tests::config;

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
                "env": [{"name": "SANDBOX_CONTROL_PUBLIC_KEY", "value": "k"}],
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
    config.defaults.resources.max_resources = bounds.into();
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

/// Places of a template, the fragment there, and the text of the rejection.
const PRIVILEGED: &str = r#"
spec | {"hostNetwork": true} | hostNetwork
spec | {"hostPID": true} | hostPID
spec | {"hostIPC": true} | hostIPC
spec | {"hostUsers": true} | hostUsers
spec | {"serviceAccountName": "admin"} | serviceAccountName
spec | {"automountServiceAccountToken": true} | automountServiceAccountToken
spec | {"overhead": {"cpu": "1"}} | overhead
spec | {"priorityClassName": "system-node-critical"} | a priorityClassName of the system
spec | {"securityContext": {"seLinuxOptions": {"type": "spc_t"}}} | securityContext.seLinuxOptions
spec | {"securityContext": {"windowsOptions": {"hostProcess": true}}} | securityContext.windowsOptions
spec | {"securityContext": {"sysctls": [{"name": "a", "value": "b"}]}} | securityContext.sysctls
spec | {"securityContext": {"seccompProfile": {"type": "Unconfined"}}} | securityContext.seccompProfile Unconfined
annotation | "container.apparmor.security.beta.kubernetes.io/sandbox" | the annotation container.apparmor.security.beta.kubernetes.io/sandbox
annotation | "openhands.dev/restarts" | the annotation openhands.dev/restarts
label | "app.kubernetes.io/name" | the label app.kubernetes.io/name
volume | {"hostPath": {"path": "/"}} | hostPath of volume v
volume | {"nfs": {"server": "s", "path": "/"}} | nfs of volume v
volume | {"projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}} | serviceAccountToken of volume v
volume | {"persistentVolumeClaim": {"claimName": "b-workspace"}} | the PVC b-workspace of another sandbox
security | {"privileged": true} | privileged of container sandbox
security | {"procMount": "Unmasked"} | procMount of container sandbox
security | {"seLinuxOptions": {"type": "spc_t"}} | seLinuxOptions of container sandbox
security | {"capabilities": {"add": ["SYS_ADMIN"]}} | the capability SYS_ADMIN of container sandbox
security | {"capabilities": {"drop": ["KILL"]}} | securityContext.capabilities without drop: [ALL] of container sandbox
security | {"seccompProfile": {"type": "Unconfined"}} | seccompProfile Unconfined of container sandbox
side | {"securityContext": {}} | securityContext.capabilities without drop: [ALL] of container side
container | {"ports": [{"containerPort": 1, "hostPort": 1}]} | hostPort of container sandbox
container | {"livenessProbe": {"httpGet": {"host": "10.0.0.1", "port": 80}}} | httpGet.host of container sandbox
container | {"resources": {"limits": {"cpu": "64"}}} | more cpu than 600m (--max-resources)
side | {"resources": {"limits": {"cpu": "200m", "memory": "0"}}} | more cpu than 600m (--max-resources)
side | {"resources": {}} | container side without a limit of cpu
"#;

/// A template with a fragment in one place.
fn template(place: &str, fragment: &str) -> Value {
    let fragment: Value = serde_json::from_str(fragment).unwrap();
    let named = |mut volume: Value| {
        volume["name"] = json!("v");
        volume
    };
    match place {
        "spec" => spec(&fragment),
        "annotation" => json!({"metadata": {"annotations": {fragment.as_str().unwrap(): "x"}}}),
        "label" => json!({"metadata": {"labels": {fragment.as_str().unwrap(): "x"}}}),
        "volume" => spec(&json!({"volumes": [named(fragment)]})),
        "security" => with(&json!({ "securityContext": fragment })),
        "side" => side(&fragment),
        _ => with(&fragment),
    }
}

fn rows(table: &str) -> impl Iterator<Item = [&str; 3]> {
    let rows = table.trim().lines();
    rows.map(|row| row.split(" | ").collect::<Vec<_>>().try_into().unwrap())
}

#[test]
fn privileged_template_requires_flag() {
    for [place, fragment, what] in rows(PRIVILEGED) {
        let template = template(place, fragment);
        let expected =
            format!("spec.podTemplate: {what} is allowed only with --allow-privileged-templates");
        assert_eq!(fault(&template, false), expected);
        assert_eq!(fault(&template, true), "", "{fragment}");
    }
}

/// The same for what no template may change, with the path of the rejection.
const RESERVED: &str = r#"
container | {"command": ["sh"]} | containers[sandbox].command
container | {"args": ["x"]} | containers[sandbox].command
container | {"env": [{"name": "SANDBOX_CONTROL_PUBLIC_KEY", "value": "mine"}]} | containers[sandbox].env
spec | {"volumes": [{"name": "sandbox-bin", "emptyDir": {"medium": "Memory"}}]} | volumes
"#;

#[test]
fn template_cannot_change_operator_parts() {
    for [place, fragment, path] in rows(RESERVED) {
        let fault = fault(&template(place, fragment), true);
        let expected = format!("spec.podTemplate.spec.{path}: ");
        assert!(fault.starts_with(&expected), "{fault}");
    }
}
