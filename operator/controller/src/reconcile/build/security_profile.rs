//! Security profiles. `restricted` has no capabilities. `sudo` keeps those that switching users
//! needs: the V0 images of OpenHands start as root and create their own user.

use crds::sandbox::SandboxSpec;
use k8s_openapi::api::core::v1::{
    Capabilities, PodSecurityContext, SeccompProfile, SecurityContext,
};

use crate::config::ControllerConfig;

/// Capabilities of `sudo`: those that user switching and package installation need.
pub(super) const SUDO: &str = "AUDIT_WRITE CHOWN DAC_OVERRIDE FOWNER FSETID KILL NET_BIND_SERVICE \
    SETGID SETPCAP SETUID SYS_CHROOT";

/// Privileges of a sandbox container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Profile {
    Restricted,
    Sudo,
}

impl Profile {
    /// Chooses the profile (`docs/decisions/011-security-profiles.md`): users other than root are
    /// restricted. Explicit root, sandboxes of the runtime API and listed images get `sudo`.
    pub(super) fn of(spec: &SandboxSpec, config: &ControllerConfig) -> Self {
        let image = spec.image.as_deref().unwrap_or_default();
        match spec
            .security_context
            .as_ref()
            .and_then(|context| context.run_as_user)
        {
            Some(0) => Self::Sudo,
            None if spec.session.is_some() => Self::Sudo,
            None if config.sudo_images.iter().any(|p| matches(p, image)) => Self::Sudo,
            _ => Self::Restricted,
        }
    }

    /// Capabilities of the command.
    pub(super) fn capabilities(self) -> impl Iterator<Item = &'static str> {
        let names = match self {
            Self::Restricted => "",
            Self::Sudo => SUDO,
        };
        names.split_whitespace()
    }

    /// Security context of the sandbox container. The supervisor has more capabilities than the
    /// command: those that it withholds. Processes under a seccomp filter cannot be saved.
    pub(super) fn container(self, withheld: &[String], is_filtered: bool) -> SecurityContext {
        let escalation = self == Self::Sudo;
        let own = self.capabilities().map(str::to_owned);
        let added: Vec<_> = own.chain(withheld.iter().cloned()).collect();
        let added = Some(added).filter(|added| !added.is_empty());
        SecurityContext {
            allow_privilege_escalation: Some(escalation),
            capabilities: Some(Capabilities {
                drop: Some(vec!["ALL".into()]),
                add: added,
            }),
            // Overrides that of the Pod.
            seccomp_profile: (!is_filtered).then(|| SeccompProfile {
                type_: "Unconfined".into(),
                localhost_profile: None,
            }),
            ..SecurityContext::default()
        }
    }
}

/// Security context of the Pod. Without a user in the spec, the image decides.
pub(super) fn pod(spec: &SandboxSpec) -> PodSecurityContext {
    let requested = spec.security_context.clone().unwrap_or_default();
    let unprivileged = requested.run_as_user.filter(|user| *user != 0);
    // A volume belongs to root. Another user can write to it only through its group.
    let group = requested
        .fs_group
        .or(unprivileged.and(requested.run_as_group))
        .or(unprivileged);
    PodSecurityContext {
        run_as_user: requested.run_as_user,
        run_as_group: requested.run_as_group,
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

/// Returns whether the text matches a pattern in which `*` stands for any text.
fn matches(pattern: &str, text: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else {
        return pattern == text;
    };
    let (middle, end) = rest.rsplit_once('*').unwrap_or(("", rest));
    let mut rest = text.strip_prefix(start);
    for part in middle.split('*') {
        rest = rest.and_then(|rest| Some(rest.split_once(part)?.1));
    }
    rest.is_some_and(|rest| rest.ends_with(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_whole_names() {
        let runtimes = "ghcr.io/openhands/runtime:*";
        for (pattern, image, fits) in [
            (runtimes, "ghcr.io/openhands/runtime:0.62", true),
            (runtimes, "evil.io/ghcr.io/openhands/runtime:1", false),
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
