//! Environment of a container: image defaults, `env`, `envFrom` and `$(NAME)` references, as the
//! kubelet resolves them.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ConfigMap, Container, EnvVar, EnvVarSource, Pod, Secret};
use kube::{Api, Client};
use operator::kubernetes::error_text;

/// The environment cannot be resolved.
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

/// Data of the downward API.
#[derive(Debug, Clone)]
pub(crate) struct DownwardApi<'a> {
    pub pod: &'a Pod,
    pub pod_ip: String,
    pub host_ip: String,
    pub node_name: &'a str,
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
    let mut objects = ObjectCache {
        client,
        namespace: downward.namespace(),
        known: BTreeMap::new(),
    };
    for source in container.env_from.iter().flatten() {
        let prefix = source.prefix.as_deref().unwrap_or_default();
        let reference = if let Some(map) = &source.config_map_ref {
            Some((DataSource::ConfigMap, &map.name, map.optional))
        } else {
            source
                .secret_ref
                .as_ref()
                .map(|secret| (DataSource::Secret, &secret.name, secret.optional))
        };
        let Some((kind, name, optional)) = reference else {
            continue;
        };
        for (key, value) in objects.get(kind, name, optional).await?.unwrap_or_default() {
            base.set(&format!("{prefix}{key}"), text(&key, value)?);
        }
    }
    for variable in container.env.iter().flatten() {
        if let Some(value) = value_of(variable, downward, &mut objects, &base).await? {
            base.set(&variable.name, value);
        }
    }
    Ok(base)
}

async fn value_of(
    variable: &EnvVar,
    downward: &DownwardApi<'_>,
    objects: &mut ObjectCache<'_>,
    known: &Variables,
) -> Result<Option<String>, EnvironmentError> {
    let Some(source) = &variable.value_from else {
        return Ok(Some(
            known.expand(variable.value.as_deref().unwrap_or_default()),
        ));
    };
    if let Some(field) = &source.field_ref {
        return downward.field(&field.field_path).map(Some);
    }
    let Some((kind, name, key, optional)) = key_of(source) else {
        return Err(EnvironmentError::Field(format!(
            "valueFrom of {}",
            variable.name
        )));
    };
    let object = objects.get(kind, name, optional).await?;
    match object.and_then(|mut object| object.remove(key)) {
        Some(value) => text(key, value).map(Some),
        None if optional == Some(true) => Ok(None),
        None => Err(EnvironmentError::Key {
            key: key.to_owned(),
            object: format!("{kind:?} {name}"),
        }),
    }
}

fn key_of(source: &EnvVarSource) -> Option<(DataSource, &str, &str, Option<bool>)> {
    if let Some(secret) = &source.secret_key_ref {
        return Some((
            DataSource::Secret,
            &secret.name,
            &secret.key,
            secret.optional,
        ));
    }
    let map = source.config_map_key_ref.as_ref()?;
    Some((DataSource::ConfigMap, &map.name, &map.key, map.optional))
}

fn text(key: &str, value: Vec<u8>) -> Result<String, EnvironmentError> {
    String::from_utf8(value).map_err(|_| EnvironmentError::Text(key.to_owned()))
}

impl DownwardApi<'_> {
    fn namespace(&self) -> &str {
        self.pod.metadata.namespace.as_deref().unwrap_or_default()
    }

    fn field(&self, path: &str) -> Result<String, EnvironmentError> {
        let metadata = &self.pod.metadata;
        let spec = self.pod.spec.as_ref();
        let value = match path {
            "metadata.name" => metadata.name.clone(),
            "metadata.namespace" => metadata.namespace.clone(),
            "metadata.uid" => metadata.uid.clone(),
            "spec.nodeName" => Some(self.node_name.to_owned()),
            "spec.serviceAccountName" => spec.and_then(|spec| spec.service_account_name.clone()),
            "status.podIP" | "status.podIPs" => Some(self.pod_ip.clone()),
            "status.hostIP" | "status.hostIPs" => Some(self.host_ip.clone()),
            _ => return self.metadata_entry(path),
        };
        Ok(value.unwrap_or_default())
    }

    /// `metadata.labels['KEY']` and `metadata.annotations['KEY']`.
    fn metadata_entry(&self, path: &str) -> Result<String, EnvironmentError> {
        let unknown = || EnvironmentError::Field(path.to_owned());
        let (map, rest) = if let Some(rest) = path.strip_prefix("metadata.labels['") {
            (self.pod.metadata.labels.as_ref(), rest)
        } else if let Some(rest) = path.strip_prefix("metadata.annotations['") {
            (self.pod.metadata.annotations.as_ref(), rest)
        } else {
            return Err(unknown());
        };
        let key = rest.strip_suffix("']").ok_or_else(unknown)?;
        Ok(map
            .and_then(|map| map.get(key))
            .cloned()
            .unwrap_or_default())
    }
}

/// Object kinds with key-value data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum DataSource {
    ConfigMap,
    Secret,
}

impl DataSource {
    fn as_str(self) -> &'static str {
        match self {
            Self::ConfigMap => "configmap",
            Self::Secret => "secret",
        }
    }
}

type Data = BTreeMap<String, Vec<u8>>;

/// Cache of the objects read for one container.
struct ObjectCache<'a> {
    client: &'a Client,
    namespace: &'a str,
    known: BTreeMap<(DataSource, String), Option<Data>>,
}

impl ObjectCache<'_> {
    async fn get(
        &mut self,
        kind: DataSource,
        name: &str,
        optional: Option<bool>,
    ) -> Result<Option<Data>, EnvironmentError> {
        let key = (kind, name.to_owned());
        if let Some(known) = self.known.get(&key) {
            return Ok(known.clone());
        }
        let data = read(
            self.client,
            self.namespace,
            kind,
            name,
            optional == Some(true),
        )
        .await?;
        self.known.insert(key, data.clone());
        Ok(data)
    }
}

/// Reads the data of a `ConfigMap` or `Secret`; `None` if it is optional and missing.
pub(crate) async fn read(
    client: &Client,
    namespace: &str,
    kind: DataSource,
    name: &str,
    optional: bool,
) -> Result<Option<Data>, EnvironmentError> {
    let data = match kind {
        DataSource::ConfigMap => config_map(client, namespace, name).await,
        DataSource::Secret => secret(client, namespace, name).await,
    };
    match data {
        Err(kube::Error::Api(status)) if status.code == 404 && optional => Ok(None),
        Err(kube::Error::Api(status)) if status.code == 404 => Err(EnvironmentError::Missing {
            kind: kind.as_str(),
            name: name.to_owned(),
        }),
        Err(error) => Err(EnvironmentError::Read(
            format!("{} {name}", kind.as_str()),
            error_text::error_text(&error),
        )),
        Ok(data) => Ok(Some(data)),
    }
}

async fn config_map(client: &Client, namespace: &str, name: &str) -> kube::Result<Data> {
    let map = Api::<ConfigMap>::namespaced(client.clone(), namespace)
        .get(name)
        .await?;
    let text = map
        .data
        .into_iter()
        .flatten()
        .map(|(key, value)| (key, value.into_bytes()));
    let binary = map
        .binary_data
        .into_iter()
        .flatten()
        .map(|(key, value)| (key, value.0));
    Ok(text.chain(binary).collect())
}

async fn secret(client: &Client, namespace: &str, name: &str) -> kube::Result<Data> {
    let secret = Api::<Secret>::namespaced(client.clone(), namespace)
        .get(name)
        .await?;
    Ok(secret
        .data
        .into_iter()
        .flatten()
        .map(|(key, value)| (key, value.0))
        .collect())
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
        variables.set("A", "1".into());
        variables.set("B", "2".into());
        variables.set("A", "3".into());
        assert_eq!(
            variables.into_pairs(),
            [("A".into(), "3".into()), ("B".into(), "2".into())]
        );
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
            node_name: "node",
        };
        let field = |path| downward.field(path).ok();
        assert_eq!(field("metadata.uid").as_deref(), Some("u"));
        assert_eq!(field("status.podIP").as_deref(), Some("1.2.3.4"));
        assert_eq!(field("metadata.labels['a/b']").as_deref(), Some("c"));
        assert_eq!(field("spec.nodeName").as_deref(), Some("node"));
        assert_eq!(field("metadata.nonsense"), None);
    }
}
