//! Secrets that no sandbox may reference: the keys of the installation and the environments of
//! other sandboxes. They may be in the namespace of the sandboxes.

use crds::names;
use k8s_openapi::api::core::v1::PodSpec;
use serde_json::Value;

use crate::reconcile::build::BuildError;
use shared::tenants;

/// Name prefix of every Secret of the installation but that of the API keys.
const RESERVED_PREFIX: &str = "sandbox-operator-";

/// Checks a Pod with the environment Secret `own`, also with `--allow-privileged-templates`.
pub(in crate::reconcile::build) fn check(spec: &PodSpec, own: &str) -> Result<(), BuildError> {
    let spec = serde_json::to_value(spec).map_err(|e| BuildError::at("spec", e))?;
    match first_reserved(&spec, own) {
        Some(name) => Err(BuildError::at(
            "spec",
            format!("the Secret {name} is reserved and must not be referenced"),
        )),
        None => Ok(()),
    }
}

/// The first reserved name in a reference to a Secret: `secretKeyRef`, `secretRef`, `secret` and
/// `secretName` of volumes, `imagePullSecrets`, and any field of a volume driver named like it.
fn first_reserved<'a>(value: &'a Value, own: &str) -> Option<&'a str> {
    match value {
        Value::Array(items) => items.iter().find_map(|item| first_reserved(item, own)),
        Value::Object(fields) => fields.iter().find_map(|(field, value)| {
            let refers = field.to_ascii_lowercase().contains("secret");
            let listed = value.as_array().into_iter().flatten();
            let named = listed.chain([value]).filter(|_| refers);
            named
                .flat_map(|it| [it.as_str(), name_in(it, "name"), name_in(it, "secretName")])
                .flatten()
                .find(|name| is_reserved(name, own))
                .or_else(|| first_reserved(value, own))
        }),
        _ => None,
    }
}

fn name_in<'a>(value: &'a Value, field: &str) -> Option<&'a str> {
    value.get(field)?.as_str()
}

fn is_reserved(name: &str, own: &str) -> bool {
    let of_another = names::is_environment_secret(name) && name != own;
    of_another || name == tenants::SECRET_NAME || name.starts_with(RESERVED_PREFIX)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn is_refused(spec: Value) -> bool {
        check(&serde_json::from_value(spec).unwrap(), "a-1-sbx-env").is_err()
    }

    #[test]
    fn pod_cannot_reference_reserved_secrets() {
        for name in [
            shared::kubernetes::root_key::SECRET_NAME,
            "sandbox-operator-default-key",
            "sandbox-api-keys",
            "a-2-sbx-env",
            "other-1-sbx-env",
        ] {
            let key = json!({"secretKeyRef": {"name": name, "key": "k"}});
            let projected = json!({"sources": [{"secret": {"name": name}}]});
            let azure = json!({"shareName": "s", "secretName": name});
            let driver = json!({"driver": "d", "nodePublishSecretRef": {"name": name}});
            let every = json!({"name": "c", "envFrom": [{"secretRef": {"name": name}}]});
            for (field, value) in [
                (
                    "containers",
                    json!({"name": "c", "env": [{"name": "A", "valueFrom": key}]}),
                ),
                ("containers", every.clone()),
                ("initContainers", every),
                (
                    "volumes",
                    json!({"name": "v", "secret": {"secretName": name}}),
                ),
                ("volumes", json!({"name": "v", "projected": projected})),
                ("volumes", json!({"name": "v", "csi": driver})),
                ("volumes", json!({"name": "v", "azureFile": azure})),
                ("imagePullSecrets", json!({"name": name})),
            ] {
                let mut spec = json!({"containers": []});
                spec[field] = json!([value]);
                assert!(is_refused(spec), "{name} in {field}: {value}");
            }
        }
    }

    #[test]
    fn pod_can_reference_own_secrets() {
        for name in ["a-1-sbx-env", "mine", "my-env"] {
            let spec =
                json!({"containers": [{"name": "c", "envFrom": [{"secretRef": {"name": name}}]}]});
            assert!(!is_refused(spec), "{name}");
        }
    }
}
