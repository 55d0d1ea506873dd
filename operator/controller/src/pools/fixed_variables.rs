//! Variables of a spec that are part of the Pod.

use crds::sandbox::EnvVar;

/// Returns whether the variables of a spec are part of the Pod. Only the kubelet resolves
/// references, and other variables may refer to them.
pub(crate) fn is_fixed(env: &[EnvVar]) -> bool {
    let refers = |own: &EnvVar| {
        let value = own.value.as_deref().unwrap_or_default();
        own.value_from.is_some() || value.contains("$(")
    };
    env.iter().any(refers)
}
