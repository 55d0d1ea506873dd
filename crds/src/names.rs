//! Names, labels and annotations of Sandboxes and their owned objects. They are pure functions of
//! the Sandbox, so that controller and gateway find an owned object without a lookup.

use std::collections::BTreeMap;

use ring::digest::{SHA256, digest};

/// Field manager of every write of the controller.
pub const CONTROLLER_FIELD_MANAGER: &str = "sandbox-operator";
/// Field manager of every write of the gateway.
pub const GATEWAY_FIELD_MANAGER: &str = "sandbox-gateway";

/// Label of every owned object: name of the Sandbox.
pub const SANDBOX_LABEL: &str = "openhands.dev/sandbox";
/// Label of a Sandbox of the runtime API: [`session_label`].
pub const SESSION_LABEL: &str = "openhands.dev/session";
/// Label of a snapshot of the runtime API: [`tenant_label`].
pub const TENANT_LABEL: &str = "openhands.dev/tenant";
/// Label of a Pod of a pool, warm or claimed, and of a Pod whose Sandbox names a pool: the name of
/// the pool.
pub const POOL_LABEL: &str = "openhands.dev/pool";
/// Label of every owned object: runtime id.
pub const RUNTIME_ID_LABEL: &str = "openhands.dev/runtime-id";
/// Label of the Pods that pull the images of a pool: the name of the pool.
pub const IMAGES_LABEL: &str = "openhands.dev/images-of";
/// Label of image builds that the controller makes, and its value.
pub const BUILD_MODE_LABEL: &str = "openhands.dev/build-mode";
pub const FULL_BUILD: &str = "full";
/// Labels of what belongs to an image build in the namespace of builds: its name, uid and namespace.
pub const BUILD_LABEL: &str = "openhands.dev/image-build";
pub const BUILD_UID_LABEL: &str = "openhands.dev/image-build-uid";
pub const BUILD_NAMESPACE_LABEL: &str = "openhands.dev/image-build-namespace";
/// Label of every object of this operator.
pub const MANAGED_BY_LABEL: &str = "app.kubernetes.io/managed-by";

/// Annotation of a Sandbox with an RFC 3339 time. An automatic pause that began at or before that
/// time ends, and none begins before it.
pub const WAKE_ANNOTATION: &str = "openhands.dev/wake-at";

/// Annotation of a Sandbox with the `traceparent` of the request that created it, if that trace is
/// sampled: the span of its start belongs to that trace.
pub const TRACE_ANNOTATION: &str = "openhands.dev/traceparent";

/// Name of the container that the user's image runs in.
pub const CONTAINER: &str = "sandbox";

pub const RUNTIME_ID_LEN: usize = 16;

/// Name of the Pod. It is fixed, so that the API server rejects a second live Pod.
pub fn pod(sandbox: &str) -> String {
    sandbox.to_owned()
}

pub fn workspace_claim(sandbox: &str) -> String {
    format!("{sandbox}-workspace")
}

/// Name of the PVC of a sandbox whose usual one is kept by snapshots of an earlier sandbox. It differs
/// between sandboxes of one name.
pub fn second_workspace_claim(sandbox: &str, uid: &str) -> String {
    let (first, _) = uid.split_once('-').unwrap_or((uid, ""));
    workspace_claim(&format!("{sandbox}-{first}"))
}

/// Suffix of the names of environment Secrets.
const ENVIRONMENT: &str = "-sbx-env";

/// Name of the Secret with the environment of one Pod that runs its image's entrypoint. `start`
/// differs between the Pods of a sandbox.
pub fn environment_secret(sandbox: &str, start: &str) -> String {
    format!("{sandbox}-{start}{ENVIRONMENT}")
}

pub fn is_environment_secret(secret: &str) -> bool {
    secret.ends_with(ENVIRONMENT)
}

pub fn is_workspace_claim(name: &str) -> bool {
    name.ends_with("-workspace")
}

/// Labels of owned objects.
pub fn labels(sandbox: &str, runtime_id: &str) -> BTreeMap<String, String> {
    BTreeMap::from([
        (SANDBOX_LABEL.into(), sandbox.into()),
        (RUNTIME_ID_LABEL.into(), runtime_id.into()),
        (MANAGED_BY_LABEL.into(), CONTROLLER_FIELD_MANAGER.into()),
    ])
}

/// Labels of the warm Pods of a pool.
pub fn warm_labels(pool: &str) -> BTreeMap<String, String> {
    BTreeMap::from([
        (POOL_LABEL.into(), pool.into()),
        (MANAGED_BY_LABEL.into(), CONTROLLER_FIELD_MANAGER.into()),
    ])
}

/// Selector of the warm Pods of a pool. Claimed Pods have the label of their sandbox.
pub fn warm_selector(pool: &str) -> String {
    format!("{POOL_LABEL}={pool},!{SANDBOX_LABEL}")
}

/// Name of a warm Pod. `random` are at least 8 random bytes.
pub fn warm_pod(pool: &str, random: &[u8]) -> String {
    format!("{pool}-{}", encode_letters(random, 10))
}

/// Name of the `DaemonSet` that pulls the images of a pool.
pub fn image_daemon_set(pool: &str) -> String {
    format!("{pool}-images")
}

/// Label value of a session: a hash, because session ids may hold any text.
pub fn session_label(tenant: &str, session: &str) -> String {
    let text = format!("{}:{tenant}{session}", tenant.len());
    encode_letters(digest(&SHA256, text.as_bytes()).as_ref(), 32)
}

/// Label value of a tenant: a hash, because names of tenants may hold more than a label.
pub fn tenant_label(tenant: &str) -> String {
    encode_letters(digest(&SHA256, tenant.as_bytes()).as_ref(), 32)
}

/// Name of the image build of a target, one per tenant.
pub fn image_build(tenant: &str, target: &str) -> String {
    let text = format!("{}:{tenant}{target}", tenant.len());
    encode_letters(digest(&SHA256, text.as_bytes()).as_ref(), 32)
}

/// A runtime id made from at least 16 bytes of hash: a DNS label of 16 letters without hyphens
/// (`docs/specs/runtime-api.md`, section 0.4, rule 14).
pub fn runtime_id(hash: &[u8]) -> String {
    encode_letters(hash, RUNTIME_ID_LEN)
}

pub fn is_runtime_id(text: &str) -> bool {
    text.len() == RUNTIME_ID_LEN && text.bytes().all(|b| b.is_ascii_lowercase())
}

fn encode_letters(hash: &[u8], len: usize) -> String {
    // 11 letters hold 51 of the 64 bits of a chunk, so the bias is below 2^-12.
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
    fn runtime_ids_are_distinct_letters() {
        let ids: HashSet<_> = (0..100_000_u32)
            .map(|n| runtime_id(digest(&SHA256, &n.to_be_bytes()).as_ref()))
            .collect();
        assert_eq!(ids.len(), 100_000);
        assert!(ids.iter().all(|id| is_runtime_id(id)));
    }

    #[test]
    fn session_labels_separate_tenant_and_session() {
        assert_ne!(session_label("a", "bc"), session_label("ab", "c"));
        assert_eq!(session_label("a", "bc").len(), 32);
    }

    #[test]
    fn image_builds_of_tenants_have_distinct_names() {
        assert_ne!(image_build("a", "bc"), image_build("ab", "c"));
        let name = image_build("a", "r.example/runtime:1");
        assert!(name.len() == 32 && name.bytes().all(|b| b.is_ascii_lowercase()));
    }

    #[test]
    fn names_of_owned_objects_fit_kubernetes_limits() {
        let longest = "a".repeat(52);
        assert!(workspace_claim(&longest).len() <= 63);
        assert!(is_environment_secret(&environment_secret("a", "1")));
        assert_eq!(pod(&longest), longest);
    }
}
