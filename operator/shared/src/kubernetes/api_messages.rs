//! Decisions that rest on English sentences of Kubernetes, because its API offers no other sign.
//! All of them are here, each with the sentences of the versions that it was checked against.

/// The scheduler finds no node because this PVC does not exist.
pub fn is_claim_missing(message: &str, claim: &str) -> bool {
    message.contains(&format!("persistentvolumeclaim \"{claim}\" not found"))
}

/// The scheduler finds no node because of the Pod's PVCs.
pub fn is_about_claims(message: &str) -> bool {
    message
        .to_ascii_lowercase()
        .contains("persistentvolumeclaim")
}

/// The kubelet cannot configure a container: a Secret, a `ConfigMap` or a key in one is missing.
pub fn is_reference_missing(message: &str) -> bool {
    let names_object = ["secret \"", "configmap \""];
    let names_object = names_object.iter().any(|kind| message.contains(kind));
    (names_object && message.contains("not found")) || message.contains("couldn't find key")
}

/// The container runtime finds no command, neither in the container nor in its image.
pub fn is_command_missing(message: &str) -> bool {
    message
        .to_ascii_lowercase()
        .contains("no command specified")
}

/// The container runtime cannot mount an image at this path, or run a program from there.
pub fn is_mount_failure(message: &str, mount_path: &str) -> bool {
    message.contains("failed to mkdir \"\"") || message.contains(mount_path)
}

/// The admission plug-in `RuntimeClass` rejects a Pod because the cluster lacks this class.
pub fn is_runtime_class_missing(message: &str, class: &str) -> bool {
    message.contains(&format!("RuntimeClass \"{class}\" not found"))
}

/// A policy rejects a Pod for what it may do: Pod Security, a `ValidatingAdmissionPolicy`, a webhook,
/// or the security context constraints of `OpenShift`. Other rejections (quotas, limits, roles,
/// missing classes) say nothing about privileges. The status code tells less than the text: a
/// `ValidatingAdmissionPolicy` answers 422 unless it sets another, and a webhook any. Webhooks decide on
/// much else: one has to name a privilege.
pub fn is_policy_rejection(message: &str) -> bool {
    let has_both = |of: &str, denial: &str| message.contains(of) && message.contains(denial);
    message.contains("violates PodSecurity \"")
        || has_both("ValidatingAdmissionPolicy '", " denied request: ")
        || (has_both("admission webhook \"", " denied the request") && names_privilege(message))
        || message.contains("unable to validate against any security context constraint")
}

fn names_privilege(message: &str) -> bool {
    let message = message.to_ascii_lowercase();
    let words = [
        "capabilit",
        "seccomp",
        "privilege",
        "hostusers",
        "user namespace",
    ];
    words.iter().any(|word| message.contains(word))
}

/// etcd or the connection to it rejects the size; the API server reports an internal error.
pub fn is_object_too_large(message: &str) -> bool {
    message.contains("request is too large") || message.contains("message larger than max")
}

/// Quota rejection without usage, which changes with every other Pod: each change would be a write.
pub fn without_quota_usage(message: &str) -> String {
    let used = message.find(", used: ");
    let limited = message.rfind(", limited: ");
    match (used, limited) {
        (Some(used), Some(limited)) if used < limited => {
            format!("{}{}", &message[..used], &message[limited..])
        }
        _ => message.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_recognized(is_known: impl Fn(&str) -> bool, known: &[&str], others: &[&str]) {
        for text in known.iter().chain(others) {
            assert_eq!(is_known(text), known.contains(text), "{text}");
        }
    }

    #[test]
    fn scheduler_messages_about_claims_are_recognized() {
        let missing = [
            // Up to 1.18, from 1.19 on, and from 1.24 on.
            r#"persistentvolumeclaim "a-ws" not found"#,
            r#"0/1 nodes are available: 1 persistentvolumeclaim "a-ws" not found."#,
            r#"0/1 nodes are available: persistentvolumeclaim "a-ws" not found. preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."#,
        ];
        let about = [
            r#"0/1 nodes are available: persistentvolumeclaim "b" not found."#,
            "0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims. not found",
        ];
        let other = ["0/3 nodes are available: 3 Insufficient cpu."];
        assert_recognized(is_about_claims, &[&missing[..], &about].concat(), &other);
        let is_missing = |text: &str| is_claim_missing(text, "a-ws");
        assert_recognized(is_missing, &missing, &[&about[..], &other].concat());
    }

    #[test]
    fn kubelet_messages_are_recognized() {
        assert_recognized(
            is_reference_missing,
            &[
                r#"secret "a" not found"#,
                r#"configmap "a" not found"#,
                "couldn't find key b in Secret ns/a",
                "couldn't find key b in ConfigMap ns/a",
            ],
            &[
                "container has runAsNonRoot and image will run as root",
                r#"failed to sync secret cache: secret "a" timed out"#,
            ],
        );
        assert_recognized(
            is_command_missing,
            &[
                // containerd, and Docker.
                "failed to generate container \"1\" spec: no command specified",
                "Error response from daemon: No command specified",
            ],
            &["exec: \"x\": executable file not found in $PATH"],
        );
        assert_recognized(
            |text| is_mount_failure(text, "/opt/bin"),
            &[
                // containerd 1.6, and runc with a mount that is noexec.
                r#"failed to generate spec: failed to mkdir "": mkdir : no such file or directory"#,
                r#"exec: "/opt/bin/executor": permission denied"#,
            ],
            &["context deadline exceeded"],
        );
    }

    #[test]
    fn rejections_of_the_api_server_are_recognized() {
        let class = r#"pods "a" is forbidden: pod rejected: RuntimeClass "runsc" not found"#;
        assert!(is_runtime_class_missing(class, "runsc"));
        assert!(!is_runtime_class_missing(class, "run"));
        assert_recognized(
            is_policy_rejection,
            &[
                // Pod Security, 1.34.
                r#"pods "a" is forbidden: violates PodSecurity "baseline:latest": non-default capabilities (container "sandbox" must not include "CHECKPOINT_RESTORE", "SYS_PTRACE" in securityContext.capabilities.add), seccompProfile (container "sandbox" must not set securityContext.seccompProfile.type to "Unconfined")"#,
                // A ValidatingAdmissionPolicy, 1.34: the code is 422 if the policy sets no reason.
                r#"pods "a" is forbidden: ValidatingAdmissionPolicy 'seccomp' with binding 'all' denied request: failed expression: false"#,
                // A webhook, 1.34.
                r#"admission webhook "validate.example.com" denied the request: no capabilities"#,
                // OpenShift 4.
                r#"pods "a" is forbidden: unable to validate against any security context constraint: [provider "restricted-v2": .containers[0].capabilities.add: Invalid value: "SYS_ADMIN": capability may not be added]"#,
            ],
            &[
                class,
                r#"admission webhook "validate.example.com" denied the request without explanation"#,
                r#"admission webhook "validate.example.com" denied the request: image not scanned"#,
                r#"pods "a" is forbidden: exceeded quota: team, requested: pods=1, used: pods=9, limited: pods=9"#,
                r#"pods "a" is forbidden: maximum cpu usage per Container is 1, but limit is 2"#,
                r#"pods "a" is forbidden: error looking up service account ns/b: serviceaccount "b" not found"#,
                r#"pods is forbidden: User "u" cannot create resource "pods" in API group "" in the namespace "ns""#,
                r#"Pod "a" is invalid: spec.containers[0].image: Required value"#,
            ],
        );
        assert_recognized(
            is_object_too_large,
            &[
                "etcdserver: request is too large",
                "rpc error: code = ResourceExhausted desc = trying to send message larger than max \
                 (2100000 vs. 2097152)",
            ],
            &["etcdserver: leader changed"],
        );
    }

    #[test]
    fn quota_rejection_loses_only_the_current_usage() {
        let rejection = |used: u32| {
            format!(
                "pods \"a\" is forbidden: exceeded quota: team, requested: limits.cpu=2,pods=1, \
                 used: limits.cpu={used},pods={used}, limited: limits.cpu=9,pods=9"
            )
        };
        assert_eq!(
            without_quota_usage(&rejection(8)),
            "pods \"a\" is forbidden: exceeded quota: team, requested: limits.cpu=2,pods=1, \
             limited: limits.cpu=9,pods=9"
        );
        assert_eq!(
            without_quota_usage(&rejection(8)),
            without_quota_usage(&rejection(9))
        );
        let other = "a, limited: b, used: c";
        assert_eq!(without_quota_usage(other), other);
    }
}
