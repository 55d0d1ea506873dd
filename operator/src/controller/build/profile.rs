//! Privileges of a sandbox. `restricted` has none. `sudo` keeps what switching users takes: the
//! V0 images of OpenHands start as root and make their own user.

use crds::sandbox::SandboxSpec;
use k8s_openapi::api::core::v1::{
    Capabilities, PodSecurityContext, SeccompProfile, SecurityContext,
};

use crate::controller::config::ControllerConfig;

/// Capabilities of `sudo`: those that user switching and package installation need.
pub(super) const SUDO: [&str; 11] = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "NET_BIND_SERVICE",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];

/// What a sandbox may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    Restricted,
    Sudo,
}

impl Profile {
    /// Chooses (decision 011): a user other than root is always restricted; otherwise sandboxes of
    /// the runtime API, explicit root and listed images get `sudo`.
    pub fn of(spec: &SandboxSpec, config: &ControllerConfig) -> Self {
        let image = spec.image.as_deref().unwrap_or_default();
        match user(spec) {
            Some(0) => Self::Sudo,
            None if spec.session.is_some() => Self::Sudo,
            None if config.sudo_images.iter().any(|p| matches(p, image)) => Self::Sudo,
            _ => Self::Restricted,
        }
    }

    /// Of the sandbox's container.
    pub fn container(self) -> SecurityContext {
        let (escalation, added) = match self {
            Self::Restricted => (false, None),
            Self::Sudo => (true, Some(SUDO.map(str::to_owned).to_vec())),
        };
        SecurityContext {
            allow_privilege_escalation: Some(escalation),
            capabilities: Some(Capabilities {
                drop: Some(vec!["ALL".into()]),
                add: added,
            }),
            ..SecurityContext::default()
        }
    }
}

/// Of the Pod: who its processes are. Without a user in the spec it is the image's own.
pub fn pod(spec: &SandboxSpec) -> PodSecurityContext {
    let wanted = spec.security_context.clone().unwrap_or_default();
    let unprivileged = wanted.run_as_user.filter(|user| *user != 0);
    // A volume belongs to root; only through its group can another user write to it.
    let group = wanted
        .fs_group
        .or(unprivileged.and(wanted.run_as_group))
        .or(unprivileged);
    PodSecurityContext {
        run_as_user: wanted.run_as_user,
        run_as_group: wanted.run_as_group,
        run_as_non_root: unprivileged.map(|_| true),
        fs_group: group,
        fs_group_change_policy: group.map(|_| "OnRootMismatch".to_owned()),
        seccomp_profile: Some(SeccompProfile {
            type_: "RuntimeDefault".into(),
            localhost_profile: None,
        }),
        ..PodSecurityContext::default()
    }
}

fn user(spec: &SandboxSpec) -> Option<i64> {
    spec.security_context.as_ref()?.run_as_user
}

/// Whether the text has the form of a pattern in which `*` stands for anything.
fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|start| text.strip_prefix(start)) else {
        return false;
    };
    let mut open = false;
    for part in parts {
        let Some(at) = rest.find(part) else {
            return false;
        };
        // The last part has to end the text; an earlier one may stand anywhere.
        open = true;
        rest = &rest[at + part.len()..];
    }
    rest.is_empty() || (open && (pattern.ends_with('*') || text.ends_with(last(pattern))))
}

fn last(pattern: &str) -> &str {
    pattern.rsplit('*').next().unwrap_or(pattern)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_whole_names() {
        for (pattern, image, fits) in [
            (
                "ghcr.io/openhands/runtime:*",
                "ghcr.io/openhands/runtime:0.62",
                true,
            ),
            (
                "ghcr.io/openhands/runtime:*",
                "evil.io/ghcr.io/openhands/runtime:1",
                false,
            ),
            ("*/runtime:*", "ghcr.io/openhands/runtime:1", true),
            ("*/runtime:1", "a/runtime:1/runtime:1", true),
            ("a", "a", true),
            ("a", "ab", false),
            ("a*c", "abcd", false),
            ("a*c", "abcc", true),
            ("*", "anything", true),
        ] {
            assert_eq!(matches(pattern, image), fits, "{pattern} {image}");
        }
    }
}
