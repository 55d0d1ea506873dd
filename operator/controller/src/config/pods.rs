//! Settings of the installation for all Pods: placement, mounts, and limits of templates.

use std::collections::BTreeMap;
use std::str::FromStr;

use k8s_openapi::api::core::v1::{Affinity, Toleration};

/// Settings of all Pods.
#[derive(Debug, Clone)]
pub struct PodSettings {
    pub injection: Injection,
    /// Image pull Secrets in the namespace of the sandbox.
    pub pull_secrets: Vec<String>,
    pub node_selector: BTreeMap<String, String>,
    pub tolerations: Vec<Toleration>,
    pub affinity: Option<Affinity>,
    pub config_maps: Vec<ConfigMapMount>,
    pub priority_class: Option<String>,
    /// Map root to an unprivileged user of the node (`hostUsers: false`).
    pub user_namespaces: bool,
    /// Termination grace period in seconds.
    pub grace_seconds: i64,
    /// Allow privileged fields in `spec.podTemplate`.
    pub privileged_templates: bool,
}

/// Injection of the executor binary into the sandbox container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Injection {
    /// An init container copies it into a volume of the Pod. Works everywhere.
    #[default]
    InitContainer,
    /// Its image is mounted as a volume. Requires Kubernetes 1.33 and a container runtime that does
    /// not mount such volumes noexec.
    ImageVolume,
}

/// A `ConfigMap` in the namespace of the sandbox and its mount path.
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
            _ => Err(format!("{text:?} must have the form NAME:/DIRECTORY")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn config_map_mount_requires_name_and_directory() {
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
