//! User of a container: uid, gid, groups and capabilities from the security contexts of Pod and
//! container, combined as container runtimes do.

use k8s_openapi::api::core::v1::{Capabilities, Container, PodSpec, SecurityContext};
use rustix::thread::CapabilitySet;

use super::image::ImageDefaults;
use super::node_user::NodeUser;
use super::seccomp::FilterKind;

/// Docker's default set without raw sockets, device nodes and file capabilities.
const DEFAULT_CAPABILITIES: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::SETPCAP)
    .union(CapabilitySet::NET_BIND_SERVICE)
    .union(CapabilitySet::SYS_CHROOT)
    .union(CapabilitySet::AUDIT_WRITE);

/// Capabilities that are never granted, because each one breaks the isolation.
const FORBIDDEN_CAPABILITIES: CapabilitySet = CapabilitySet::SYS_ADMIN
    .union(CapabilitySet::SYS_MODULE)
    .union(CapabilitySet::SYS_RAWIO)
    .union(CapabilitySet::SYS_BOOT)
    .union(CapabilitySet::SYS_TIME)
    .union(CapabilitySet::SYS_PTRACE)
    .union(CapabilitySet::MKNOD)
    .union(CapabilitySet::BPF)
    .union(CapabilitySet::PERFMON)
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::MAC_ADMIN)
    .union(CapabilitySet::MAC_OVERRIDE);

/// Capabilities that the inner step needs to switch users.
const SWITCH_CAPABILITIES: CapabilitySet = CapabilitySet::SETGID
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::SETPCAP);

/// User of a container, by mechanism.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ContainerUser {
    /// The node is root: the inner step switches the user.
    Switched(RootSwitch),
    /// The node is not root: a user namespace maps its own user to this number.
    Mapped { uid: u32, gid: u32 },
}

/// Privileges that the node grants to a Pod beyond those of every sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Grants {
    /// All capabilities, in a user namespace of image builds.
    pub privileged: bool,
    /// For supervisors that save processes, in the user namespace of sandboxes: the right to trace
    /// them, which shows those of its container only, and no system call filter, which CRIU could
    /// neither save nor work under.
    pub checkpoints: bool,
}

/// User, groups and capabilities under a root node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RootSwitch {
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
    pub capabilities: CapabilitySet,
    pub is_filtered: bool,
}

/// The security context cannot be satisfied.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum ContainerUserError {
    /// Texts of the kubelet.
    #[error("container has runAsNonRoot and image will run as root")]
    Root,
    #[error(
        "container has runAsNonRoot and image has non-numeric user ({0}), cannot verify user is \
         non-root"
    )]
    NamedUser(String),
    #[error("{0} is not a user or group number")]
    Number(i64),
    #[error("unknown capability {0}")]
    Capability(String),
    #[error("capability {0} is never granted by this node")]
    Refused(String),
    #[error(
        "privileged containers are refused by this node, except those of image builds, with \
         hostUsers: false"
    )]
    Privileged,
}

impl RootSwitch {
    /// Capabilities before the inner step: those of the command and those that the step needs.
    pub(crate) fn kept_capabilities(&self) -> CapabilitySet {
        self.capabilities | SWITCH_CAPABILITIES
    }

    /// Names of the capabilities that bubblewrap keeps.
    pub(crate) fn capabilities_outside(&self) -> impl Iterator<Item = String> {
        let kept = self.kept_capabilities();
        kept.iter_names().map(|(name, _)| format!("CAP_{name}"))
    }
}

impl ContainerUser {
    /// Filter of its system calls, if there is one.
    pub(crate) fn filter(&self) -> Option<FilterKind> {
        match self {
            Self::Switched(switch) if switch.capabilities.contains(CapabilitySet::SYS_ADMIN) => {
                Some(FilterKind::ImageBuild)
            }
            Self::Switched(switch) if !switch.is_filtered => None,
            _ => Some(FilterKind::Sandbox),
        }
    }

    pub(crate) fn uid(&self) -> u32 {
        match self {
            Self::Switched(RootSwitch { uid, .. }) | Self::Mapped { uid, .. } => *uid,
        }
    }
}

/// Combines the security contexts of Pod and container with the image's user.
pub(crate) fn resolve(
    pod: &PodSpec,
    container: &Container,
    image: &ImageDefaults,
    node: NodeUser,
    grants: Grants,
) -> Result<ContainerUser, ContainerUserError> {
    let own = container.security_context.clone().unwrap_or_default();
    let shared = pod.security_context.clone().unwrap_or_default();
    let is_privileged = own.privileged == Some(true);
    if is_privileged && !grants.privileged {
        return Err(ContainerUserError::Privileged);
    }
    let requested = number(own.run_as_user.or(shared.run_as_user))?;
    let group = number(own.run_as_group.or(shared.run_as_group))?;
    if !node.is_root() {
        return Ok(ContainerUser::Mapped {
            uid: requested.unwrap_or(node.uid),
            gid: group.or(requested).unwrap_or(node.gid),
        });
    }
    let uid = requested.unwrap_or(image.uid);
    if own.run_as_non_root.or(shared.run_as_non_root) == Some(true) {
        match &image.user_name {
            _ if uid == 0 => return Err(ContainerUserError::Root),
            Some(name) if requested.is_none() => {
                return Err(ContainerUserError::NamedUser(name.clone()));
            }
            _ => {}
        }
    }
    let mut groups = image.groups_of(uid).to_vec();
    let supplemental = shared.supplemental_groups.iter().flatten();
    for gid in supplemental.chain(&shared.fs_group) {
        groups.extend(number(Some(*gid))?);
    }
    Ok(ContainerUser::Switched(RootSwitch {
        uid,
        gid: group.unwrap_or_else(|| image.group_of(uid)),
        groups,
        capabilities: match own.capabilities.as_ref() {
            _ if is_privileged => CapabilitySet::all(),
            requested => capabilities(requested, grants)?,
        },
        is_filtered: !(grants.checkpoints && is_unconfined(&own)),
    }))
}

fn number(value: Option<i64>) -> Result<Option<u32>, ContainerUserError> {
    let number = |value| u32::try_from(value).map_err(|_| ContainerUserError::Number(value));
    value.map(number).transpose()
}

fn is_unconfined(context: &SecurityContext) -> bool {
    let seccomp = context.seccomp_profile.as_ref();
    seccomp.is_some_and(|seccomp| seccomp.type_ == "Unconfined")
}

fn capabilities(
    requested: Option<&Capabilities>,
    grants: Grants,
) -> Result<CapabilitySet, ContainerUserError> {
    let requested = requested.cloned().unwrap_or_default();
    let mut held = DEFAULT_CAPABILITIES;
    for name in requested.drop.iter().flatten() {
        held -= match plain_name(name).as_str() {
            "ALL" => CapabilitySet::all(),
            name => CapabilitySet::from_name(name).unwrap_or(CapabilitySet::empty()),
        };
    }
    for name in requested.add.iter().flatten() {
        held |= grantable(plain_name(name), grants)?;
    }
    Ok(held)
}

/// The name in upper case and without `CAP_`.
fn plain_name(name: &str) -> String {
    name.to_uppercase().trim_start_matches("CAP_").to_owned()
}

fn grantable(name: String, grants: Grants) -> Result<CapabilitySet, ContainerUserError> {
    match CapabilitySet::from_name(&name) {
        Some(CapabilitySet::SYS_PTRACE) if grants.checkpoints => Ok(CapabilitySet::SYS_PTRACE),
        Some(capability) if !FORBIDDEN_CAPABILITIES.contains(capability) => Ok(capability),
        None if name != "ALL" => Err(ContainerUserError::Capability(name)),
        _ => Err(ContainerUserError::Refused(name)),
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
    use serde_json::{Value, json};

    const ROOT: NodeUser = NodeUser { uid: 0, gid: 0 };

    fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
        serde_json::from_value(value).unwrap()
    }

    /// User by the security contexts of Pod and container.
    fn resolved(
        pod: &Value,
        container: &Value,
        node: NodeUser,
    ) -> Result<ContainerUser, ContainerUserError> {
        resolved_for(pod, container, node, Grants::default())
    }

    fn resolved_for(
        pod: &Value,
        container: &Value,
        node: NodeUser,
        grants: Grants,
    ) -> Result<ContainerUser, ContainerUserError> {
        let pod = read(json!({"containers": [], "securityContext": pod}));
        let container = read(json!({"name": "c", "securityContext": container}));
        let image = ImageDefaults::host();
        resolve(&pod, &container, &image, node, grants)
    }

    #[test]
    fn root_node_switches_to_the_user_of_both_contexts() {
        let default = RootSwitch {
            uid: 0,
            gid: 0,
            groups: vec![],
            capabilities: CapabilitySet::from_bits_retain(0x2004_05fb),
            is_filtered: true,
        };
        let known_user = RootSwitch {
            uid: 1000,
            gid: 1000,
            ..default.clone()
        };
        let overridden = RootSwitch {
            uid: 1000,
            gid: 6,
            groups: vec![8, 7],
            capabilities: CapabilitySet::KILL,
            is_filtered: true,
        };
        let pod = json!({"runAsUser": 5, "runAsGroup": 6, "fsGroup": 7, "supplementalGroups": [8]});
        let container = json!({
            "runAsUser": 1000, "allowPrivilegeEscalation": false,
            "capabilities": {"drop": ["ALL"], "add": ["CAP_KILL"]},
        });
        let run_as = json!({"runAsUser": 1000});
        for (name, pod, container, expected) in [
            ("default", json!({}), json!({}), default),
            ("known user", run_as, json!({}), known_user),
            ("container over Pod", pod, container, overridden),
        ] {
            let expected = Ok(ContainerUser::Switched(expected));
            assert_eq!(resolved(&pod, &container, ROOT), expected, "{name}");
        }
    }

    #[test]
    fn dangerous_contexts_are_rejected() {
        let add = |name| json!({"capabilities": {"add": [name]}});
        let refused = |name: &str| ContainerUserError::Refused(name.into());
        let unknown = ContainerUserError::Capability("NONSENSE".into());
        for (container, error) in [
            (json!({"runAsNonRoot": true}), ContainerUserError::Root),
            (json!({"privileged": true}), ContainerUserError::Privileged),
            (add("SYS_ADMIN"), refused("SYS_ADMIN")),
            (add("all"), refused("ALL")),
            (add("NONSENSE"), unknown),
            (json!({"runAsUser": -1}), ContainerUserError::Number(-1)),
        ] {
            assert_eq!(resolved(&json!({}), &container, ROOT), Err(error));
        }
    }

    #[test]
    fn image_builds_may_have_all_capabilities_of_their_user_namespace() {
        let filter_and_admin = |container: &Value| {
            let grants = Grants {
                privileged: true,
                ..Grants::default()
            };
            let user = resolved_for(&json!({}), container, ROOT, grants).unwrap();
            let ContainerUser::Switched(switch) = &user else {
                panic!("{user:?}");
            };
            let admin = switch.capabilities.contains(CapabilitySet::SYS_ADMIN);
            (user.filter(), admin)
        };
        let privileged = json!({"privileged": true});
        let expected = (Some(FilterKind::ImageBuild), true);
        assert_eq!(filter_and_admin(&privileged), expected);
        let plain = (Some(FilterKind::Sandbox), false);
        assert_eq!(filter_and_admin(&json!({})), plain);
        let error = resolved(&json!({}), &privileged, ROOT);
        assert_eq!(error, Err(ContainerUserError::Privileged));
    }

    #[test]
    fn supervisors_that_save_processes_may_trace_them() {
        let container = json!({
            "capabilities": {"add": ["SYS_PTRACE"]}, "seccompProfile": {"type": "Unconfined"},
        });
        let refused = ContainerUserError::Refused("SYS_PTRACE".into());
        assert_eq!(resolved(&json!({}), &container, ROOT), Err(refused));
        let grants = Grants {
            checkpoints: true,
            ..Grants::default()
        };
        for (container, filter) in [(container, None), (json!({}), Some(FilterKind::Sandbox))] {
            let user = resolved_for(&json!({}), &container, ROOT, grants).unwrap();
            assert_eq!(user.filter(), filter);
        }
        let unconfined = json!({"seccompProfile": {"type": "Unconfined"}});
        let user = resolved(&json!({}), &unconfined, ROOT).unwrap();
        assert_eq!(user.filter(), Some(FilterKind::Sandbox));
    }

    #[test]
    fn unprivileged_node_maps_requested_user() {
        let (uid, gid) = (65534, 65534);
        let node = NodeUser { uid, gid };
        for (pod, id) in [(json!({"runAsUser": 1000}), 1000), (json!({}), 65534)] {
            let mapped = ContainerUser::Mapped { uid: id, gid: id };
            assert_eq!(resolved(&pod, &json!({}), node), Ok(mapped));
        }
    }
}
