//! How far a template may go. Whoever may create Sandboxes need not be allowed to create Pods, let
//! alone privileged ones, and the operator would create them in its own name.
//!
//! Beyond the sandbox reaches what the baseline Pod security standard forbids, and service accounts.

pub mod secrets;

use crds::names;
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, SecurityContext, Volume};

use super::BuildError;
use super::container::RESERVED;
use super::profile::SUDO;
use super::volumes::{BIN, STATE};

/// Place of everything that is checked here.
const SPEC: &str = "spec.podTemplate.spec";

/// Checks a Pod after its template. `privileged`: the installation trusts its templates.
pub fn check(built: &Pod, patched: &Pod, privileged: bool) -> Result<(), BuildError> {
    let (Some(built), Some(patched)) = (&built.spec, &patched.spec) else {
        return Err(BuildError::at(SPEC, "must stay"));
    };
    keeps_machinery(built, patched)?;
    if privileged {
        return Ok(());
    }
    let containers = patched.containers.iter();
    let violation = of_pod(patched)
        .or_else(|| patched.volumes.iter().flatten().find_map(of_volume))
        .or_else(|| claim_of_another(built, patched))
        .or_else(|| {
            containers
                .chain(patched.init_containers.iter().flatten())
                .find_map(of_container)
        });
    match violation {
        Some(what) => Err(BuildError::at(
            SPEC,
            format!("{what} is allowed only with --allow-privileged-templates"),
        )),
        None => Ok(()),
    }
}

/// What the operator itself relies on stays as it was built.
fn keeps_machinery(built: &PodSpec, patched: &PodSpec) -> Result<(), BuildError> {
    let (Some(before), Some(after)) = (own(built), own(patched)) else {
        let path = format!("{SPEC}.containers");
        let fault = format!("the container {} must stay", names::CONTAINER);
        return Err(BuildError::at(path, fault));
    };
    let path = |field| format!("{SPEC}.containers[{}].{field}", names::CONTAINER);
    // Only a supervised sandbox has a command here.
    if before.command.is_some() && (before.command != after.command || after.args.is_some()) {
        let fault = "runs the supervisor: use spec.command";
        return Err(BuildError::at(path("command"), fault));
    }
    if variables(before) != variables(after) {
        return Err(BuildError::at(
            path("env"),
            "changes variables of the operator",
        ));
    }
    let volumes = |spec: &PodSpec| {
        let all = spec.volumes.iter().flatten();
        all.filter(|v| [BIN, STATE].contains(&v.name.as_str()))
            .cloned()
            .collect::<Vec<_>>()
    };
    if volumes(built) != volumes(patched) {
        let path = format!("{SPEC}.volumes");
        return Err(BuildError::at(path, "changes volumes of the operator"));
    }
    Ok(())
}

fn own(spec: &PodSpec) -> Option<&Container> {
    let mut all = spec.containers.iter();
    all.find(|c| c.name == names::CONTAINER)
}

fn variables(container: &Container) -> Vec<&k8s_openapi::api::core::v1::EnvVar> {
    let all = container.env.iter().flatten();
    all.filter(|v| RESERVED.contains(&v.name.as_str()))
        .collect()
}

fn of_pod(spec: &PodSpec) -> Option<String> {
    let security = spec.security_context.as_ref();
    let seccomp = security.and_then(|s| s.seccomp_profile.as_ref());
    let armor = security.and_then(|s| s.app_armor_profile.as_ref());
    let found = [
        ("hostNetwork", spec.host_network == Some(true)),
        ("hostPID", spec.host_pid == Some(true)),
        ("hostIPC", spec.host_ipc == Some(true)),
        (
            "automountServiceAccountToken",
            spec.automount_service_account_token != Some(false),
        ),
        ("serviceAccountName", spec.service_account_name.is_some()),
        ("serviceAccount", spec.service_account.is_some()),
        (
            "securityContext.seccompProfile Unconfined",
            seccomp.is_some_and(|s| s.type_ == "Unconfined"),
        ),
        (
            "securityContext.appArmorProfile Unconfined",
            armor.is_some_and(|s| s.type_ == "Unconfined"),
        ),
        (
            "securityContext.sysctls",
            security.is_some_and(|s| s.sysctls.is_some()),
        ),
        ("ephemeralContainers", spec.ephemeral_containers.is_some()),
    ];
    let violation = found.iter().find(|(_, is)| *is);
    violation.map(|(what, _)| (*what).to_owned())
}

fn of_volume(volume: &Volume) -> Option<String> {
    let sources = volume.projected.iter().flat_map(|p| &p.sources).flatten();
    let token = sources
        .into_iter()
        .any(|s| s.service_account_token.is_some());
    let what = match volume {
        Volume {
            host_path: Some(_), ..
        } => "hostPath",
        _ if token => "serviceAccountToken",
        _ => return None,
    };
    Some(format!("{what} of volume {}", volume.name))
}

/// The workspace of another sandbox is nobody else's.
fn claim_of_another(built: &PodSpec, patched: &PodSpec) -> Option<String> {
    let own: Vec<_> = claims(built).collect();
    let mut all = claims(patched);
    let other = all.find(|claim| names::is_workspace_claim(claim) && !own.contains(claim))?;
    Some(format!("the volume claim {other} of another sandbox"))
}

fn claims(spec: &PodSpec) -> impl Iterator<Item = &str> {
    let volumes = spec.volumes.iter().flatten();
    volumes.filter_map(|v| Some(v.persistent_volume_claim.as_ref()?.claim_name.as_str()))
}

fn of_container(container: &Container) -> Option<String> {
    let security = container.security_context.as_ref();
    let host_port =
        |p: &k8s_openapi::api::core::v1::ContainerPort| p.host_port.is_some_and(|p| p != 0);
    let what = if container.ports.iter().flatten().any(host_port) {
        "hostPort".to_owned()
    } else {
        of_security(security?)?
    };
    Some(format!("{what} of container {}", container.name))
}

fn of_security(security: &SecurityContext) -> Option<String> {
    let seccomp = security.seccomp_profile.as_ref();
    let armor = security.app_armor_profile.as_ref();
    let added = security.capabilities.iter().flat_map(|c| &c.add).flatten();
    let mut beyond = added.filter(|name| !SUDO.contains(&name.as_str()));
    if security.privileged == Some(true) {
        Some("privileged".into())
    } else if let Some(name) = beyond.next() {
        Some(format!("the capability {name}"))
    } else if security
        .proc_mount
        .as_deref()
        .is_some_and(|m| m != "Default")
    {
        Some("procMount".into())
    } else if seccomp.is_some_and(|s| s.type_ == "Unconfined") {
        Some("seccompProfile Unconfined".into())
    } else if armor.is_some_and(|s| s.type_ == "Unconfined") {
        Some("appArmorProfile Unconfined".into())
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::controller::build::merge::patched;

    fn pod() -> Pod {
        serde_json::from_value(json!({"spec": {
            "automountServiceAccountToken": false,
            "volumes": [{"name": "sandbox-bin", "emptyDir": {}}, {"name": "workspace", "emptyDir": {}}],
            "containers": [{
                "name": "sandbox",
                "command": ["supervise"],
                "env": [{"name": "SANDBOX_CONTROL_KEY", "value": "k"}],
            }],
        }}))
        .unwrap()
    }

    fn fault(spec: &Value, privileged: bool) -> String {
        let patched = patched(&pod(), &json!({"spec": spec})).unwrap();
        let result = check(&pod(), &patched, privileged);
        result.err().map(|e| e.to_string()).unwrap_or_default()
    }

    fn with(container: &Value) -> Value {
        let mut container = container.clone();
        container["name"] = json!("sandbox");
        json!({"containers": [container]})
    }

    #[test]
    fn ordinary_templates_pass() {
        for spec in [
            json!({}),
            json!({"nodeSelector": {"a": "b"}, "volumes": [{"name": "v", "emptyDir": {}}]}),
            json!({"containers": [{"name": "side", "image": "s", "command": ["x"]}]}),
            with(&json!({"securityContext": {"capabilities": {"add": ["CHOWN"]}}})),
            with(&json!({"env": [{"name": "A", "value": "1"}], "image": "other"})),
            json!({"volumes": [{"name": "workspace", "emptyDir": {"medium": "Memory"}}]}),
        ] {
            assert_eq!(fault(&spec, false), "", "{spec}");
        }
    }

    #[test]
    fn what_reaches_beyond_the_sandbox_takes_trust() {
        for (spec, what) in [
            (json!({"hostNetwork": true}), "hostNetwork"),
            (json!({"hostPID": true}), "hostPID"),
            (json!({"hostIPC": true}), "hostIPC"),
            (json!({"serviceAccountName": "admin"}), "serviceAccountName"),
            (
                json!({"automountServiceAccountToken": null}),
                "automountServiceAccountToken",
            ),
            (
                json!({"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}),
                "hostPath of volume v",
            ),
            (
                json!({"volumes": [{"name": "v", "projected": {"sources": [
                    {"serviceAccountToken": {"path": "t"}}
                ]}}]}),
                "serviceAccountToken of volume v",
            ),
            (
                json!({"initContainers": [{"name": "i", "securityContext": {"privileged": true}}]}),
                "privileged of container i",
            ),
            (
                with(&json!({"securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}})),
                "the capability SYS_ADMIN of container sandbox",
            ),
            (
                with(&json!({"ports": [{"containerPort": 1, "hostPort": 1}]})),
                "hostPort of container sandbox",
            ),
            (
                with(&json!({"securityContext": {"seccompProfile": {"type": "Unconfined"}}})),
                "seccompProfile Unconfined of container sandbox",
            ),
            (
                with(&json!({"securityContext": {"procMount": "Unmasked"}})),
                "procMount of container sandbox",
            ),
        ] {
            let expected = format!(
                "spec.podTemplate.spec: {what} is allowed only with --allow-privileged-templates"
            );
            assert_eq!(fault(&spec, false), expected);
            assert_eq!(fault(&spec, true), "");
        }
    }

    #[test]
    fn the_operators_own_parts_stay_whoever_is_trusted() {
        for (spec, place) in [
            (json!({"containers": null}), "containers: "),
            (
                with(&json!({"command": ["sh"]})),
                "containers[sandbox].command: ",
            ),
            (
                with(&json!({"args": ["x"]})),
                "containers[sandbox].command: ",
            ),
            (with(&json!({"env": null})), "containers[sandbox].env: "),
            (
                with(&json!({"env": [{"name": "SANDBOX_CONTROL_KEY", "value": "mine"}]})),
                "containers[sandbox].env: ",
            ),
            (
                json!({"volumes": [{"name": "sandbox-bin", "emptyDir": {"medium": "Memory"}}]}),
                "volumes: ",
            ),
        ] {
            let fault = fault(&spec, true);
            assert!(
                fault.starts_with(&format!("spec.podTemplate.spec.{place}")),
                "{fault}"
            );
        }
    }
}
