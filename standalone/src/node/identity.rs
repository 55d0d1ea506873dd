//! Who a container runs as: user, groups and capabilities from the security contexts of Pod and
//! container, the way container runtimes combine them.

use k8s_openapi::api::core::v1::{Capabilities, Container, PodSpec};

use super::image::Defaults;

/// What root in a container may do unless the Pod says otherwise. Docker's set without raw
/// sockets, device nodes and file capabilities, which nothing in a sandbox needs.
const DEFAULT: [&str; 11] = [
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

/// Capabilities by number, from 0; see `linux/capability.h`.
const NAMES: [&str; 41] = [
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

/// Never granted: each is a way out of the container, which has no user namespace.
const NEVER: [&str; 12] = [
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

/// What the inner step itself needs to switch users.
const SWITCHING: [&str; 3] = ["SETGID", "SETUID", "SETPCAP"];

/// How a container gets its user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Identity {
    /// The node is root: the inner step switches.
    Switched(Switch),
    /// The node is not root: a user namespace shows its own user under this number.
    Mapped { uid: u32, gid: u32 },
}

/// User, groups and capabilities of a container under a root node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Switch {
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
    pub capabilities: Vec<String>,
    pub no_new_privs: bool,
}

/// Why a Pod's wishes cannot be met.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum IdentityError {
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

impl Switch {
    /// Bit mask of what the command keeps.
    pub(crate) fn mask(&self) -> u64 {
        let bits = NAMES.iter().enumerate();
        let held = bits.filter(|(_, name)| self.capabilities.iter().any(|held| held == *name));
        held.fold(0, |mask, (number, _)| mask | 1 << number)
    }

    /// What bubblewrap leaves: that of the command and that of the inner step.
    pub(crate) fn capabilities_outside(&self) -> Vec<String> {
        let missing = SWITCHING
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

/// Whether and as whom the node itself runs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NodeUser {
    pub uid: u32,
    pub gid: u32,
}

impl NodeUser {
    pub(crate) fn current() -> Self {
        Self {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
        }
    }

    pub(crate) fn is_root(self) -> bool {
        self.uid == 0
    }
}

/// Combines the security contexts of Pod and container with the image's user.
pub(crate) fn resolve(
    pod: &PodSpec,
    container: &Container,
    image: &Defaults,
    node: NodeUser,
) -> Result<Identity, IdentityError> {
    let own = container.security_context.clone().unwrap_or_default();
    let shared = pod.security_context.clone().unwrap_or_default();
    if own.privileged == Some(true) {
        return Err(IdentityError::Privileged);
    }
    let wished = number(own.run_as_user.or(shared.run_as_user))?;
    let group = number(own.run_as_group.or(shared.run_as_group))?;
    if !node.is_root() {
        let gid = group.or(wished).unwrap_or(node.gid);
        return Ok(Identity::Mapped {
            uid: wished.unwrap_or(node.uid),
            gid,
        });
    }
    let uid = wished.unwrap_or(image.uid);
    if uid == 0 && own.run_as_non_root.or(shared.run_as_non_root) == Some(true) {
        return Err(IdentityError::Root);
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
    Ok(Identity::Switched(Switch {
        uid,
        gid: group.unwrap_or_else(|| image.group_of(uid)),
        groups,
        capabilities: capabilities(own.capabilities.as_ref())?,
        no_new_privs: own.allow_privilege_escalation == Some(false),
    }))
}

fn number(value: Option<i64>) -> Result<Option<u32>, IdentityError> {
    value
        .map(|value| u32::try_from(value).map_err(|_| IdentityError::Number(value)))
        .transpose()
}

fn capabilities(wish: Option<&Capabilities>) -> Result<Vec<String>, IdentityError> {
    let list = |list: &Option<Vec<String>>| -> Vec<String> {
        let names = list.iter().flatten().map(|name| name.to_uppercase());
        names
            .map(|name| name.trim_start_matches("CAP_").to_owned())
            .collect()
    };
    let (add, drop) = wish
        .map(|wish| (list(&wish.add), list(&wish.drop)))
        .unwrap_or_default();
    let mut held: Vec<String> = if drop.iter().any(|name| name == "ALL") {
        Vec::new()
    } else {
        DEFAULT
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

fn check(name: &str) -> Result<(), IdentityError> {
    if NEVER.contains(&name) || name == "ALL" {
        Err(IdentityError::Refused(name.to_owned()))
    } else if NAMES.contains(&name) {
        Ok(())
    } else {
        Err(IdentityError::Capability(name.to_owned()))
    }
}

/// The group that volumes are handed to, if the Pod names one.
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

    fn identity(
        pod: &serde_json::Value,
        container: &serde_json::Value,
        node: NodeUser,
    ) -> Result<Identity, IdentityError> {
        let pod: PodSpec = read(json!({"containers": [], "securityContext": pod}));
        let container: Container = read(json!({"name": "c", "securityContext": container}));
        resolve(&pod, &container, &Defaults::host(), node)
    }

    #[test]
    fn root_gets_the_small_default_set() {
        let Ok(Identity::Switched(switch)) = identity(&json!({}), &json!({}), ROOT) else {
            panic!("switched");
        };
        assert_eq!((switch.uid, switch.gid), (0, 0));
        assert_eq!(switch.mask(), 0x2004_05fb);
    }

    #[test]
    fn the_container_overrules_the_pod() {
        let pod = json!({"runAsUser": 5, "runAsGroup": 6, "fsGroup": 7, "supplementalGroups": [8]});
        let container = json!({
            "runAsUser": 1000, "allowPrivilegeEscalation": false,
            "capabilities": {"drop": ["ALL"], "add": ["CAP_KILL"]},
        });
        let expected = Switch {
            uid: 1000,
            gid: 6,
            groups: vec![8, 7],
            capabilities: vec!["KILL".into()],
            no_new_privs: true,
        };
        assert_eq!(
            identity(&pod, &container, ROOT),
            Ok(Identity::Switched(expected))
        );
    }

    #[test]
    fn the_group_of_a_known_user_is_known() {
        let Ok(Identity::Switched(switch)) =
            identity(&json!({"runAsUser": 1000}), &json!({}), ROOT)
        else {
            panic!("switched");
        };
        assert_eq!(switch.gid, 1000);
    }

    #[test]
    fn dangerous_wishes_are_refused() {
        let add = |name| json!({"capabilities": {"add": [name]}});
        for (container, error) in [
            (json!({"runAsNonRoot": true}), IdentityError::Root),
            (json!({"privileged": true}), IdentityError::Privileged),
            (add("SYS_ADMIN"), IdentityError::Refused("SYS_ADMIN".into())),
            (add("all"), IdentityError::Refused("ALL".into())),
            (
                add("NONSENSE"),
                IdentityError::Capability("NONSENSE".into()),
            ),
            (json!({"runAsUser": -1}), IdentityError::Number(-1)),
        ] {
            assert_eq!(identity(&json!({}), &container, ROOT), Err(error));
        }
    }

    #[test]
    fn without_root_the_wished_user_is_shown() {
        let node = NodeUser {
            uid: 65534,
            gid: 65534,
        };
        let user = identity(&json!({"runAsUser": 1000}), &json!({}), node);
        assert_eq!(
            user,
            Ok(Identity::Mapped {
                uid: 1000,
                gid: 1000
            })
        );
        let user = identity(&json!({}), &json!({}), node);
        assert_eq!(
            user,
            Ok(Identity::Mapped {
                uid: 65534,
                gid: 65534
            })
        );
    }
}
