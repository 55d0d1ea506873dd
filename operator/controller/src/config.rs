//! Configuration of the controller: defaults, limits and settings of one installation, with the
//! flags and environment variables that set them.

mod build_args;
mod deadlines;
mod persistence_args;
mod pod_args;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Affinity, Toleration};
use k8s_openapi::api::networking::v1::NetworkPolicySpec;

use shared::diagnostics::Diagnostics;
use shared::image_builds::ImageBuilds;
use shared::index::Entry;
use shared::kubernetes::leader::LeaseConfig;
use shared::resources::ResourceDefaults;
use shared::tenants::Tenants;
use shared::urls::Urls;

pub use build_args::{
    BUILDER_IMAGE, BuildArgs, BuildLimits, BuildSteps, BuilderConfig, BuilderIsolation,
};
pub use deadlines::Deadlines;
pub use persistence_args::{DefaultLevel, PersistenceArgs, PersistenceSettings, RootPersistence};
pub use pod_args::PodArgs;

/// Configuration of the controller.
#[derive(Debug, Clone)]
pub struct ControllerConfig {
    /// Namespace to serve; `None` for all.
    pub namespace: Option<String>,
    /// Image from which the executor binary is copied into supervised Pods.
    pub executor_image: String,
    pub urls: Urls,
    pub defaults: Defaults,
    pub pods: PodSettings,
    pub classes: ClassPolicy,
    pub persistence: PersistenceSettings,
    /// Replace commands that start the Python action execution server by the native executor.
    pub native_executor: bool,
    /// Patterns of images that start as root with the capabilities of `sudo`; `*` is any text.
    pub sudo_images: Vec<String>,
    /// Image builds, of which the controller runs those of a Dockerfile, and deletes unused ones.
    pub image_builds: ImageBuilds,
    pub builder: BuilderConfig,
    /// Lease of the leader election; `None` for the only controller of a cluster.
    pub leader: Option<LeaseConfig>,
    /// Tenants and their quotas.
    pub tenants: Tenants,
    /// Health of the process, served at `/livez` and `/readyz`.
    pub vitals: Arc<Diagnostics>,
}

/// Defaults of fields that neither a Sandbox nor its pool sets, and upper bounds.
#[derive(Debug, Clone, Default)]
pub struct Defaults {
    pub resources: ResourceDefaults,
    pub runtime_class_name: Option<String>,
    pub lifecycle: Deadlines,
}

/// Resolution of runtime classes (`docs/specs/runtime-api.md`, section 7, rule 21).
#[derive(Debug, Clone, Default)]
pub struct ClassPolicy {
    /// Real name of the class `gvisor`.
    pub gvisor: Option<String>,
    /// Classes that probes run for, besides the default one.
    pub installed: Vec<String>,
    /// Reject a class that the cluster lacks; otherwise the default class is used.
    pub strict: bool,
}

impl ControllerConfig {
    /// Default configuration with these URLs.
    pub fn new(urls: Urls) -> Self {
        Self {
            namespace: None,
            executor_image: "localhost/sandbox-executor:dev".into(),
            urls,
            defaults: Defaults::default(),
            pods: PodSettings {
                grace_seconds: 10,
                ..PodSettings::default()
            },
            classes: ClassPolicy::default(),
            persistence: PersistenceSettings::default(),
            native_executor: true,
            sudo_images: Vec::new(),
            image_builds: ImageBuilds::Off,
            builder: BuilderConfig::default(),
            leader: None,
            tenants: Tenants::fixed([]),
            vitals: Arc::default(),
        }
    }

    /// The URLs of a sandbox, in the form of its tenant.
    pub fn urls(&self, entry: &Entry) -> Cow<'_, Urls> {
        let tenant = entry.session().map_or("", |s| s.tenant.as_str());
        self.tenants.urls(&self.urls, tenant)
    }
}

/// Settings of all Pods.
#[derive(Debug, Clone, Default)]
pub struct PodSettings {
    pub injection: Injection,
    /// Image pull Secrets in the namespace of the sandbox.
    pub pull_secrets: Vec<String>,
    pub node_selector: BTreeMap<String, String>,
    pub tolerations: Vec<Toleration>,
    pub affinity: Option<Affinity>,
    pub config_maps: Vec<ConfigMapMount>,
    pub priority_class: Option<String>,
    /// Map users of sandboxes to unprivileged users of the node (`hostUsers: false`).
    pub user_namespaces: UserNamespaces,
    /// Termination grace period in seconds.
    pub grace_seconds: i64,
    /// Allow privileged fields in `spec.podTemplate`.
    pub privileged_templates: bool,
    /// `NetworkPolicy` that isolates the sandboxes of each namespace; `None` leaves it to others.
    pub network_policy: Option<NetworkPolicySpec>,
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
    /// Its image is mounted once a probe has shown that this works, except under runtime classes
    /// that may not share the kernel of the node.
    Auto,
}

/// User namespaces of sandboxes (`hostUsers: false`). `true` and `false` are older names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum UserNamespaces {
    /// All Pods have one once a probe has shown that this works for their runtime class, except in host
    /// namespaces.
    Auto,
    /// All Pods have one. Where it does not work, they do not start.
    #[value(alias = "true")]
    Always,
    #[default]
    #[value(alias = "false")]
    Never,
}

/// A `ConfigMap` in the namespace of the sandbox and its mount path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigMapMount {
    pub name: String,
    pub path: String,
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
