//! What an installation adds to every Pod of a sandbox: where it may run, what it is given, and how
//! much a template may change.

use std::collections::BTreeMap;
use std::str::FromStr;

use k8s_openapi::api::core::v1::{Affinity, Toleration};

/// Settings of all Pods.
#[derive(Debug, Clone)]
pub struct PodSettings {
    pub injection: Injection,
    /// Secrets, in the sandbox's namespace, that images are pulled with.
    pub pull_secrets: Vec<String>,
    pub node_selector: BTreeMap<String, String>,
    pub tolerations: Vec<Toleration>,
    pub affinity: Option<Affinity>,
    pub config_maps: Vec<ConfigMapMount>,
    pub priority_class: Option<String>,
    /// Root in the sandbox is nobody on the node.
    pub user_namespaces: bool,
    /// Time that a command has to end, in seconds.
    pub grace_seconds: i64,
    /// Whether `spec.podTemplate` may ask for what reaches beyond the sandbox.
    pub privileged_templates: bool,
}

/// How the executor binary reaches a sandbox's container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Injection {
    /// An init container copies it into a volume of the Pod: works everywhere.
    #[default]
    InitContainer,
    /// Its image is mounted as a volume: no copy. Needs Kubernetes 1.33 and a container runtime
    /// that lets programs on such volumes be executed.
    ImageVolume,
}

/// A `ConfigMap` of the sandbox's namespace and where it is mounted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigMapMount {
    pub name: String,
    pub path: String,
}

impl Default for PodSettings {
    fn default() -> Self {
        Self {
            injection: Injection::default(),
            pull_secrets: Vec::new(),
            node_selector: BTreeMap::new(),
            tolerations: Vec::new(),
            affinity: None,
            config_maps: Vec::new(),
            priority_class: None,
            user_namespaces: false,
            grace_seconds: 10,
            privileged_templates: false,
        }
    }
}

impl FromStr for ConfigMapMount {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            Some((name, path)) if !name.is_empty() && path.len() > 1 && path.starts_with('/') => {
                Ok(Self {
                    name: name.to_owned(),
                    path: path.to_owned(),
                })
            }
            _ => Err(format!("{text:?} is not NAME:/DIRECTORY")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_a_name_and_a_directory() {
        let mount: ConfigMapMount = "ca:/etc/ca".parse().unwrap();
        assert_eq!(
            (mount.name.as_str(), mount.path.as_str()),
            ("ca", "/etc/ca")
        );
        for wrong in ["", "ca", ":/etc", "ca:", "ca:etc", "ca:/"] {
            assert!(wrong.parse::<ConfigMapMount>().is_err(), "{wrong}");
        }
    }
}
