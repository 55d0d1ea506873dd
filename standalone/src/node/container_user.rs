//! User of a container: uid, gid, groups and capabilities from the security contexts of Pod and
//! container, combined as container runtimes do.

use k8s_openapi::api::core::v1::{Capabilities, Container, PodSpec};

use super::image::ImageDefaults;
use super::node_user::NodeUser;

/// Default capabilities of root: Docker's set without raw sockets, device nodes and file
/// capabilities.
const DEFAULT_CAPABILITIES: [&str; 11] = [
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "SETGID",
    "SETUID",
    "SETPCAP",
    "NET_BIND_SERVICE",
    "SYS_CHROOT",
    "AUDIT_WRITE",
];

/// Capability names by number; see `linux/capability.h`.
const CAPABILITY_NAMES: [&str; 41] = [
    "CHOWN",
    "DAC_OVERRIDE",
    "DAC_READ_SEARCH",
    "FOWNER",
    "FSETID",
    "KILL",
    "SETGID",
    "SETUID",
    "SETPCAP",
    "LINUX_IMMUTABLE",
    "NET_BIND_SERVICE",
    "NET_BROADCAST",
    "NET_ADMIN",
    "NET_RAW",
    "IPC_LOCK",
    "IPC_OWNER",
    "SYS_MODULE",
    "SYS_RAWIO",
    "SYS_CHROOT",
    "SYS_PTRACE",
    "SYS_PACCT",
    "SYS_ADMIN",
    "SYS_BOOT",
    "SYS_NICE",
    "SYS_RESOURCE",
    "SYS_TIME",
    "SYS_TTY_CONFIG",
    "MKNOD",
    "LEASE",
    "AUDIT_WRITE",
    "AUDIT_CONTROL",
    "SETFCAP",
    "MAC_OVERRIDE",
    "MAC_ADMIN",
    "SYSLOG",
    "WAKE_ALARM",
    "BLOCK_SUSPEND",
    "AUDIT_READ",
    "PERFMON",
    "BPF",
    "CHECKPOINT_RESTORE",
];

/// Capabilities that are never granted, because each one breaks the isolation.
const FORBIDDEN_CAPABILITIES: [&str; 12] = [
    "SYS_ADMIN",
    "SYS_MODULE",
    "SYS_RAWIO",
    "SYS_BOOT",
    "SYS_TIME",
    "SYS_PTRACE",
    "MKNOD",
    "BPF",
    "PERFMON",
    "DAC_READ_SEARCH",
    "MAC_ADMIN",
    "MAC_OVERRIDE",
];

/// Capabilities that the inner step needs to switch users.
const SWITCH_CAPABILITIES: [&str; 3] = ["SETGID", "SETUID", "SETPCAP"];

/// User of a container, by mechanism.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ContainerUser {
    /// The node is root: the inner step switches the user.
    Switched(RootSwitch),
    /// The node is not root: a user namespace maps its own user to this number.
    Mapped { uid: u32, gid: u32 },
}

/// User, groups and capabilities under a root node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RootSwitch {
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
    pub capabilities: Vec<String>,
    pub no_new_privs: bool,
}

/// The security context cannot be satisfied.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum ContainerUserError {
    #[error("container has runAsNonRoot and image will run as root")]
    Root,
    #[error("{0} is not a user or group number")]
    Number(i64),
    #[error("unknown capability {0}")]
    Capability(String),
    #[error("capability {0} is never granted by this node")]
    Refused(String),
    #[error("privileged containers are refused by this node")]
    Privileged,
}

impl RootSwitch {
    /// Bit mask of the command's capabilities.
    pub(crate) fn mask(&self) -> u64 {
        let bits = CAPABILITY_NAMES.iter().enumerate();
        let held = bits.filter(|(_, name)| self.capabilities.iter().any(|held| held == *name));
        held.fold(0, |mask, (number, _)| mask | 1 << number)
    }

    /// Capabilities that bubblewrap keeps: those of the command and of the inner step.
    pub(crate) fn capabilities_outside(&self) -> Vec<String> {
        let missing = SWITCH_CAPABILITIES
            .iter()
            .filter(|name| !self.capabilities.iter().any(|held| held == *name));
        let all = self
            .capabilities
            .iter()
            .map(String::as_str)
            .chain(missing.copied());
        all.map(|name| format!("CAP_{name}")).collect()
    }
}

/// Combines the security contexts of Pod and container with the image's user.
pub(crate) fn resolve(
    pod: &PodSpec,
    container: &Container,
    image: &ImageDefaults,
    node: NodeUser,
) -> Result<ContainerUser, ContainerUserError> {
    let own = container.security_context.clone().unwrap_or_default();
    let shared = pod.security_context.clone().unwrap_or_default();
    if own.privileged == Some(true) {
        return Err(ContainerUserError::Privileged);
    }
    let requested = number(own.run_as_user.or(shared.run_as_user))?;
    let group = number(own.run_as_group.or(shared.run_as_group))?;
    if !node.is_root() {
        let gid = group.or(requested).unwrap_or(node.gid);
        return Ok(ContainerUser::Mapped {
            uid: requested.unwrap_or(node.uid),
            gid,
        });
    }
    let uid = requested.unwrap_or(image.uid);
    if uid == 0 && own.run_as_non_root.or(shared.run_as_non_root) == Some(true) {
        return Err(ContainerUserError::Root);
    }
    let mut groups = Vec::new();
    for gid in shared
        .supplemental_groups
        .iter()
        .flatten()
        .chain(&shared.fs_group)
    {
        groups.extend(number(Some(*gid))?);
    }
    Ok(ContainerUser::Switched(RootSwitch {
        uid,
        gid: group.unwrap_or_else(|| image.group_of(uid)),
        groups,
        capabilities: capabilities(own.capabilities.as_ref())?,
        no_new_privs: own.allow_privilege_escalation == Some(false),
    }))
}

fn number(value: Option<i64>) -> Result<Option<u32>, ContainerUserError> {
    value
        .map(|value| u32::try_from(value).map_err(|_| ContainerUserError::Number(value)))
        .transpose()
}

fn capabilities(requested: Option<&Capabilities>) -> Result<Vec<String>, ContainerUserError> {
    let list = |list: &Option<Vec<String>>| -> Vec<String> {
        let names = list.iter().flatten().map(|name| name.to_uppercase());
        names
            .map(|name| name.trim_start_matches("CAP_").to_owned())
            .collect()
    };
    let (add, drop) = requested
        .map(|requested| (list(&requested.add), list(&requested.drop)))
        .unwrap_or_default();
    let mut held: Vec<String> = if drop.iter().any(|name| name == "ALL") {
        Vec::new()
    } else {
        DEFAULT_CAPABILITIES
            .iter()
            .filter(|name| !drop.iter().any(|gone| gone == *name))
            .map(ToString::to_string)
            .collect()
    };
    for name in add {
        check(&name)?;
        if !held.contains(&name) {
            held.push(name);
        }
    }
    Ok(held)
}

fn check(name: &str) -> Result<(), ContainerUserError> {
    if FORBIDDEN_CAPABILITIES.contains(&name) || name == "ALL" {
        Err(ContainerUserError::Refused(name.to_owned()))
    } else if CAPABILITY_NAMES.contains(&name) {
        Ok(())
    } else {
        Err(ContainerUserError::Capability(name.to_owned()))
    }
}

/// Group of the volumes (`fsGroup`).
pub(crate) fn volume_group(pod: &PodSpec) -> Option<u32> {
    let group = pod.security_context.as_ref()?.fs_group?;
    u32::try_from(group).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const ROOT: NodeUser = NodeUser { uid: 0, gid: 0 };

    fn read<T: serde::de::DeserializeOwned>(value: serde_json::Value) -> T {
        serde_json::from_value(value).unwrap()
    }

    fn resolved(
        pod: &serde_json::Value,
        container: &serde_json::Value,
        node: NodeUser,
    ) -> Result<ContainerUser, ContainerUserError> {
        let pod: PodSpec = read(json!({"containers": [], "securityContext": pod}));
        let container: Container = read(json!({"name": "c", "securityContext": container}));
        resolve(&pod, &container, &ImageDefaults::host(), node)
    }

    #[test]
    fn root_gets_default_capabilities() {
        let Ok(ContainerUser::Switched(switch)) = resolved(&json!({}), &json!({}), ROOT) else {
            panic!("switched");
        };
        assert_eq!((switch.uid, switch.gid), (0, 0));
        assert_eq!(switch.mask(), 0x2004_05fb);
    }

    #[test]
    fn container_context_overrides_pod_context() {
        let pod = json!({"runAsUser": 5, "runAsGroup": 6, "fsGroup": 7, "supplementalGroups": [8]});
        let container = json!({
            "runAsUser": 1000, "allowPrivilegeEscalation": false,
            "capabilities": {"drop": ["ALL"], "add": ["CAP_KILL"]},
        });
        let expected = RootSwitch {
            uid: 1000,
            gid: 6,
            groups: vec![8, 7],
            capabilities: vec!["KILL".into()],
            no_new_privs: true,
        };
        assert_eq!(
            resolved(&pod, &container, ROOT),
            Ok(ContainerUser::Switched(expected))
        );
    }

    #[test]
    fn known_user_gets_its_group() {
        let Ok(ContainerUser::Switched(switch)) =
            resolved(&json!({"runAsUser": 1000}), &json!({}), ROOT)
        else {
            panic!("switched");
        };
        assert_eq!(switch.gid, 1000);
    }

    #[test]
    fn dangerous_contexts_are_rejected() {
        let add = |name| json!({"capabilities": {"add": [name]}});
        for (container, error) in [
            (json!({"runAsNonRoot": true}), ContainerUserError::Root),
            (json!({"privileged": true}), ContainerUserError::Privileged),
            (
                add("SYS_ADMIN"),
                ContainerUserError::Refused("SYS_ADMIN".into()),
            ),
            (add("all"), ContainerUserError::Refused("ALL".into())),
            (
                add("NONSENSE"),
                ContainerUserError::Capability("NONSENSE".into()),
            ),
            (json!({"runAsUser": -1}), ContainerUserError::Number(-1)),
        ] {
            assert_eq!(resolved(&json!({}), &container, ROOT), Err(error));
        }
    }

    #[test]
    fn unprivileged_node_maps_requested_user() {
        let node = NodeUser {
            uid: 65534,
            gid: 65534,
        };
        let user = resolved(&json!({"runAsUser": 1000}), &json!({}), node);
        assert_eq!(
            user,
            Ok(ContainerUser::Mapped {
                uid: 1000,
                gid: 1000
            })
        );
        let user = resolved(&json!({}), &json!({}), node);
        assert_eq!(
            user,
            Ok(ContainerUser::Mapped {
                uid: 65534,
                gid: 65534
            })
        );
    }
}
