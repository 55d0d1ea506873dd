//! Environment of a container: image defaults, `env`, `envFrom` and `$(NAME)` references, as the
//! kubelet resolves them.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ConfigMap, Container, EnvVarSource, Pod, Secret};
use kube::{Api, Client};
use operator::kubernetes::error_text;

use super::NODE_NAME;

#[derive(Debug, thiserror::Error)]
pub(crate) enum EnvironmentError {
    #[error("reading {0}: {1}")]
    Read(String, String),
    /// Text of the kubelet.
    #[error("{kind} \"{name}\" not found")]
    Missing { kind: &'static str, name: String },
    #[error("couldn't find key {key} in {object}")]
    Key { key: String, object: String },
    #[error("field {0} is not supported")]
    Field(String),
    #[error("{0} is not valid UTF-8")]
    Text(String),
}

#[derive(Debug, Clone)]
pub(crate) struct DownwardApi<'a> {
    pub pod: &'a Pod,
    pub pod_ip: String,
    pub host_ip: String,
}

/// Variables in the order of their first occurrence; later values win.
#[derive(Debug, Default)]
pub(crate) struct Variables(Vec<(String, String)>);

impl Variables {
    pub(crate) fn set(&mut self, name: &str, value: String) {
        match self.0.iter_mut().find(|(known, _)| known == name) {
            Some((_, old)) => *old = value,
            None => self.0.push((name.to_owned(), value)),
        }
    }

    fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    pub(crate) fn into_pairs(self) -> Vec<(String, String)> {
        self.0
    }

    /// Expands `$(NAME)` of known variables and `$$`.
    pub(crate) fn expand(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.find('$') {
            out.push_str(&rest[..at]);
            rest = &rest[at + 1..];
            if let Some(after) = rest.strip_prefix('$') {
                out.push('$');
                rest = after;
            } else if let Some((value, after)) = self.reference(rest) {
                out.push_str(value);
                rest = after;
            } else {
                out.push('$');
            }
        }
        out + rest
    }

    fn reference<'t>(&self, rest: &'t str) -> Option<(&str, &'t str)> {
        let (name, after) = rest.strip_prefix('(')?.split_once(')')?;
        Some((self.get(name)?, after))
    }
}

/// Resolves the variables of `container` on top of `base`.
pub(crate) async fn resolve(
    client: &Client,
    downward: &DownwardApi<'_>,
    container: &Container,
    mut base: Variables,
) -> Result<Variables, EnvironmentError> {
    let namespace = downward.pod.metadata.namespace.as_deref();
    let namespace = namespace.unwrap_or_default();
    for source in container.env_from.iter().flatten() {
        let prefix = source.prefix.as_deref().unwrap_or_default();
        let map = source.config_map_ref.as_ref();
        let secret = source.secret_ref.as_ref();
        let reference = map
            .map(|map| DataRef::config_map(&map.name, map.optional))
            .or_else(|| secret.map(|secret| DataRef::secret(&secret.name, secret.optional)));
        let Some(reference) = reference else {
            continue;
        };
        for (key, value) in reference.read(client, namespace).await?.unwrap_or_default() {
            base.set(&format!("{prefix}{key}"), text(&key, value)?);
        }
    }
    for variable in container.env.iter().flatten() {
        let value = match &variable.value_from {
            None => Some(base.expand(variable.value.as_deref().unwrap_or_default())),
            Some(EnvVarSource {
                field_ref: Some(field),
                ..
            }) => Some(downward.field(&field.field_path)?),
            Some(source) => key_value(client, namespace, &variable.name, source).await?,
        };
        if let Some(value) = value {
            base.set(&variable.name, value);
        }
    }
    Ok(base)
}

/// Value of a key of a `ConfigMap` or `Secret`; `None` if it is optional and missing.
async fn key_value(
    client: &Client,
    namespace: &str,
    variable: &str,
    source: &EnvVarSource,
) -> Result<Option<String>, EnvironmentError> {
    let (reference, key) = if let Some(secret) = &source.secret_key_ref {
        (DataRef::secret(&secret.name, secret.optional), &secret.key)
    } else if let Some(map) = &source.config_map_key_ref {
        (DataRef::config_map(&map.name, map.optional), &map.key)
    } else {
        return Err(EnvironmentError::Field(format!("valueFrom of {variable}")));
    };
    let data = reference.read(client, namespace).await?;
    match data.and_then(|mut data| data.remove(key)) {
        Some(value) => text(key, value).map(Some),
        None if reference.is_optional => Ok(None),
        None => Err(EnvironmentError::Key {
            key: key.to_owned(),
            object: format!("{:?} {}", reference.kind, reference.name),
        }),
    }
}

fn text(key: &str, value: Vec<u8>) -> Result<String, EnvironmentError> {
    String::from_utf8(value).map_err(|_| EnvironmentError::Text(key.to_owned()))
}

impl DownwardApi<'_> {
    fn field(&self, path: &str) -> Result<String, EnvironmentError> {
        let metadata = &self.pod.metadata;
        let spec = self.pod.spec.as_ref();
        let value = match path {
            "metadata.name" => metadata.name.clone(),
            "metadata.namespace" => metadata.namespace.clone(),
            "metadata.uid" => metadata.uid.clone(),
            "spec.nodeName" => Some(NODE_NAME.to_owned()),
            "spec.serviceAccountName" => spec.and_then(|spec| spec.service_account_name.clone()),
            "status.podIP" | "status.podIPs" => Some(self.pod_ip.clone()),
            "status.hostIP" | "status.hostIPs" => Some(self.host_ip.clone()),
            _ => return self.metadata_entry(path),
        };
        Ok(value.unwrap_or_default())
    }

    /// `metadata.labels['KEY']` and `metadata.annotations['KEY']`.
    fn metadata_entry(&self, path: &str) -> Result<String, EnvironmentError> {
        let metadata = &self.pod.metadata;
        let (map, key) = match path.split_once("['") {
            Some(("metadata.labels", key)) => (&metadata.labels, key),
            Some(("metadata.annotations", key)) => (&metadata.annotations, key),
            _ => return Err(EnvironmentError::Field(path.to_owned())),
        };
        let key = key.strip_suffix("']");
        let key = key.ok_or_else(|| EnvironmentError::Field(path.to_owned()))?;
        let value = map.as_ref().and_then(|map| map.get(key));
        Ok(value.cloned().unwrap_or_default())
    }
}

#[derive(Debug, Clone, Copy)]
enum DataKind {
    ConfigMap,
    Secret,
}

#[derive(Debug)]
pub(crate) struct DataRef<'a> {
    kind: DataKind,
    name: &'a str,
    is_optional: bool,
}

type Data = BTreeMap<String, Vec<u8>>;

impl<'a> DataRef<'a> {
    pub(crate) fn config_map(name: &'a str, optional: Option<bool>) -> Self {
        Self {
            kind: DataKind::ConfigMap,
            name,
            is_optional: optional == Some(true),
        }
    }

    pub(crate) fn secret(name: &'a str, optional: Option<bool>) -> Self {
        Self {
            kind: DataKind::Secret,
            ..Self::config_map(name, optional)
        }
    }

    /// Reads the data; `None` if it is optional and missing.
    pub(crate) async fn read(
        &self,
        client: &Client,
        namespace: &str,
    ) -> Result<Option<Data>, EnvironmentError> {
        let (kind, data) = match self.kind {
            DataKind::ConfigMap => ("configmap", config_map(client, namespace, self.name).await),
            DataKind::Secret => ("secret", secret(client, namespace, self.name).await),
        };
        match data {
            Ok(data) => Ok(Some(data)),
            Err(kube::Error::Api(status)) if status.code == 404 && self.is_optional => Ok(None),
            Err(kube::Error::Api(status)) if status.code == 404 => Err(EnvironmentError::Missing {
                kind,
                name: self.name.to_owned(),
            }),
            Err(error) => Err(EnvironmentError::Read(
                format!("{kind} {}", self.name),
                error_text::error_text(&error),
            )),
        }
    }
}

async fn config_map(client: &Client, namespace: &str, name: &str) -> kube::Result<Data> {
    let maps = Api::<ConfigMap>::namespaced(client.clone(), namespace);
    let map = maps.get(name).await?;
    let text = map.data.into_iter().flatten();
    let text = text.map(|(key, value)| (key, value.into_bytes()));
    let binary = map.binary_data.into_iter().flatten();
    Ok(text
        .chain(binary.map(|(key, value)| (key, value.0)))
        .collect())
}

async fn secret(client: &Client, namespace: &str, name: &str) -> kube::Result<Data> {
    let secrets = Api::<Secret>::namespaced(client.clone(), namespace);
    let data = secrets.get(name).await?.data.into_iter().flatten();
    Ok(data.map(|(key, value)| (key, value.0)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expand_replaces_references_once() {
        let mut variables = Variables::default();
        variables.set("A", "1".into());
        variables.set("B", "$(A)".into());
        for (text, expanded) in [
            ("$(A)-$(B)", "1-$(A)"),
            ("$$(A)", "$(A)"),
            ("$(C) $", "$(C) $"),
            ("$(A", "$(A"),
            ("plain", "plain"),
        ] {
            assert_eq!(variables.expand(text), expanded, "{text}");
        }
    }

    #[test]
    fn variables_keep_order_and_last_value() {
        let mut variables = Variables::default();
        for (name, value) in [("A", "1"), ("B", "2"), ("A", "3")] {
            variables.set(name, value.into());
        }
        let expected = [("A", "3"), ("B", "2")].map(|(name, value)| (name.into(), value.into()));
        assert_eq!(variables.into_pairs(), expected);
    }

    #[test]
    fn downward_api_returns_fields_of_pod() {
        let pod: Pod = serde_json::from_value(serde_json::json!({
            "metadata": {"name": "p", "namespace": "n", "uid": "u", "labels": {"a/b": "c"}},
        }))
        .unwrap();
        let downward = DownwardApi {
            pod: &pod,
            pod_ip: "1.2.3.4".into(),
            host_ip: "5.6.7.8".into(),
        };
        for (path, value) in [
            ("metadata.uid", Some("u")),
            ("status.podIP", Some("1.2.3.4")),
            ("metadata.labels['a/b']", Some("c")),
            ("metadata.annotations['a/b']", Some("")),
            ("spec.nodeName", Some("standalone")),
            ("metadata.nonsense", None),
        ] {
            assert_eq!(downward.field(path).ok().as_deref(), value, "{path}");
        }
    }
}
