//! Names, labels and annotations of everything that belongs to a sandbox: pure functions, so that
//! a child can be found, created and recognised without looking anything up.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{Resource as _, ResourceExt as _};
use ring::digest::{SHA256, digest};

use crate::Sandbox;

/// Field manager of every write of the controller.
pub const CONTROLLER: &str = "sandbox-operator";
/// Field manager of every write of the gateway.
pub const GATEWAY: &str = "sandbox-gateway";

/// Label of every object of a sandbox: the sandbox's name.
pub const SANDBOX_LABEL: &str = "openhands.dev/sandbox";
/// Label of a Sandbox of the runtime API: hash of tenant and session id, see [`session_label`].
pub const SESSION_LABEL: &str = "openhands.dev/session";
/// Label of every object: the runtime id.
pub const RUNTIME_ID_LABEL: &str = "openhands.dev/runtime-id";
/// Label by which all objects of this operator are found.
pub const MANAGED_BY_LABEL: &str = "app.kubernetes.io/managed-by";

/// Annotation of a Sandbox that asks for it to be awake: an RFC 3339 time. A pause that the operator
/// made by itself ends if it began at or before that time, and none begins before it.
pub const WAKE_ANNOTATION: &str = "openhands.dev/wake-at";

/// Name of the container that the user's image runs in.
pub const CONTAINER: &str = "sandbox";

/// Length of a runtime id.
pub const RUNTIME_ID_LEN: usize = 16;

/// The Pod of a sandbox. One name per sandbox: the API server itself refuses a second live Pod.
pub fn pod(sandbox: &str) -> String {
    sandbox.to_owned()
}

/// The volume claim of a sandbox's workspace.
pub fn workspace_claim(sandbox: &str) -> String {
    format!("{sandbox}-workspace")
}

/// End of the name of every Secret with a sandbox's environment.
const ENVIRONMENT: &str = "-sbx-env";

/// The Secret with the environment of a sandbox that runs its image's own entrypoint.
pub fn environment_secret(sandbox: &str) -> String {
    format!("{sandbox}{ENVIRONMENT}")
}

/// Whether a Secret of this name is, or could be, the environment of a sandbox.
pub fn is_environment_secret(secret: &str) -> bool {
    secret.ends_with(ENVIRONMENT)
}

/// Whether this may be the workspace of some sandbox.
pub fn is_workspace_claim(name: &str) -> bool {
    name.ends_with("-workspace")
}

/// Labels of a sandbox's children.
pub fn labels(sandbox: &str, runtime_id: &str) -> BTreeMap<String, String> {
    BTreeMap::from([
        (SANDBOX_LABEL.into(), sandbox.into()),
        (RUNTIME_ID_LABEL.into(), runtime_id.into()),
        (MANAGED_BY_LABEL.into(), CONTROLLER.into()),
    ])
}

/// Label value for a session: ids of clients are not label-safe, so it is a hash.
pub fn session_label(tenant: &str, session: &str) -> String {
    let text = format!("{}:{tenant}{session}", tenant.len());
    letters(digest(&SHA256, text.as_bytes()).as_ref(), 32)
}

/// A runtime id made from at least 16 bytes of hash: a DNS label of 16 letters without hyphens
/// (runtime API spec 0.4 rule 14).
pub fn runtime_id(hash: &[u8]) -> String {
    letters(hash, RUNTIME_ID_LEN)
}

/// Whether the text has the form of a runtime id.
pub fn is_runtime_id(text: &str) -> bool {
    text.len() == RUNTIME_ID_LEN && text.bytes().all(|b| b.is_ascii_lowercase())
}

/// The reference by which a child is deleted together with its sandbox. `None` for a sandbox that
/// no API server has seen.
pub fn owner_reference(sandbox: &Sandbox) -> Option<OwnerReference> {
    Some(OwnerReference {
        api_version: Sandbox::api_version(&()).into_owned(),
        kind: Sandbox::kind(&()).into_owned(),
        name: sandbox.name_any(),
        uid: sandbox.uid()?,
        controller: Some(true),
        block_owner_deletion: Some(true),
    })
}

fn letters(hash: &[u8], len: usize) -> String {
    // 11 letters hold 51 bits: three letters short of what 8 bytes offer, so the bias is below 2^-12.
    hash.chunks(8)
        .flat_map(|chunk| {
            let mut rest = chunk
                .iter()
                .fold(0_u64, |n, byte| n << 8 | u64::from(*byte));
            std::iter::repeat_with(move || {
                let letter = char::from(b'a' + u8::try_from(rest % 26).unwrap_or(0));
                rest /= 26;
                letter
            })
            .take(11)
        })
        .take(len)
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn runtime_ids_are_letters_and_differ() {
        let ids: HashSet<_> = (0..100_000_u32)
            .map(|n| runtime_id(digest(&SHA256, &n.to_be_bytes()).as_ref()))
            .collect();
        assert_eq!(ids.len(), 100_000);
        assert!(ids.iter().all(|id| is_runtime_id(id)));
    }

    #[test]
    fn sessions_do_not_run_into_each_other() {
        assert_ne!(session_label("a", "bc"), session_label("ab", "c"));
        assert_eq!(session_label("a", "bc").len(), 32);
    }

    #[test]
    fn names_of_children_fit() {
        let longest = "a".repeat(52);
        assert!(workspace_claim(&longest).len() <= 63);
        assert!(environment_secret(&longest).len() <= 63);
        assert!(is_environment_secret(&environment_secret("a")));
        assert_eq!(pod(&longest), longest);
    }
}
