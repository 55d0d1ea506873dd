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

/// The kubelet cannot configure a container because a Secret, a `ConfigMap` or a key in one does
/// not exist.
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

/// The admission plug-in `RuntimeClass` rejects a Pod because the cluster lacks this class.
pub fn is_runtime_class_missing(message: &str, class: &str) -> bool {
    message.contains(&format!("RuntimeClass \"{class}\" not found"))
}

/// etcd, or the API server's connection to it, does not accept an object of this size. The API
/// server reports both as internal errors.
pub fn is_object_too_large(message: &str) -> bool {
    message.contains("request is too large") || message.contains("message larger than max")
}

/// A quota rejection without the current usage. It changes with every other Pod, and each change
/// would be a status write.
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

    /// Sentences with the components and versions that produce them.
    const SCHEDULER: [(&str, bool, bool); 6] = [
        // Up to 1.18, and from 1.19 on with the number of nodes.
        (r#"persistentvolumeclaim "a-ws" not found"#, true, true),
        (
            r#"0/1 nodes are available: 1 persistentvolumeclaim "a-ws" not found."#,
            true,
            true,
        ),
        // From 1.24 on.
        (
            r#"0/1 nodes are available: persistentvolumeclaim "a-ws" not found. preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."#,
            true,
            true,
        ),
        (
            r#"0/1 nodes are available: persistentvolumeclaim "b" not found."#,
            false,
            true,
        ),
        (
            "0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims. not found",
            false,
            true,
        ),
        ("0/3 nodes are available: 3 Insufficient cpu.", false, false),
    ];

    #[test]
    fn scheduler_messages_about_claims_are_recognized() {
        for (message, missing, about) in SCHEDULER {
            assert_eq!(is_claim_missing(message, "a-ws"), missing, "{message}");
            assert_eq!(is_about_claims(message), about, "{message}");
        }
    }

    #[test]
    fn kubelet_messages_about_missing_references_are_recognized() {
        for (message, missing) in [
            (r#"secret "a" not found"#, true),
            (r#"configmap "a" not found"#, true),
            ("couldn't find key b in Secret ns/a", true),
            ("couldn't find key b in ConfigMap ns/a", true),
            (
                "container has runAsNonRoot and image will run as root",
                false,
            ),
            (
                r#"failed to sync secret cache: secret "a" timed out"#,
                false,
            ),
        ] {
            assert_eq!(is_reference_missing(message), missing, "{message}");
        }
    }

    #[test]
    fn runtime_messages_about_missing_commands_are_recognized() {
        for (message, missing) in [
            // containerd, and Docker.
            (
                "failed to generate container \"1\" spec: no command specified",
                true,
            ),
            ("Error response from daemon: No command specified", true),
            ("exec: \"x\": executable file not found in $PATH", false),
        ] {
            assert_eq!(is_command_missing(message), missing, "{message}");
        }
    }

    #[test]
    fn rejections_of_the_api_server_are_recognized() {
        let class = r#"pods "a" is forbidden: pod rejected: RuntimeClass "runsc" not found"#;
        assert!(is_runtime_class_missing(class, "runsc"));
        assert!(!is_runtime_class_missing(class, "run"));
        for (message, too_large) in [
            ("etcdserver: request is too large", true),
            (
                "rpc error: code = ResourceExhausted desc = trying to send message larger than max \
                 (2100000 vs. 2097152)",
                true,
            ),
            ("etcdserver: leader changed", false),
        ] {
            assert_eq!(is_object_too_large(message), too_large, "{message}");
        }
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
