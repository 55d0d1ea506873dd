//! Flags of the Pods of sandboxes. Each is also an environment variable, for charts, which set
//! absent values to an empty string.

use std::collections::BTreeMap;

use clap::builder::{BoolishValueParser, FalseyValueParser};
use k8s_openapi::api::core::v1::{Affinity, Toleration};
use k8s_openapi::api::networking::v1::NetworkPolicySpec;

use super::{
    ClassPolicy, ConfigMapMount, ControllerConfig, Injection, PodSettings, UserNamespaces,
};
use shared::resources::ResourceArgs;

/// A value in JSON; `None` if it is empty. As an alias, the field is a plain value for clap.
pub(super) type Json<T> = Option<T>;

/// Flags of the Pods of sandboxes.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Pods of sandboxes")]
pub struct PodArgs {
    /// Image from which the executor binary is copied into sandboxes.
    #[arg(
        long,
        env = "EXECUTOR_IMAGE",
        default_value = "localhost/sandbox-executor:dev"
    )]
    executor_image: String,
    /// Injection of the executor binary. `image-volume` requires Kubernetes 1.33 and a container
    /// runtime that does not mount such volumes noexec. `auto` finds out whether that works.
    #[arg(
        long,
        env = "EXECUTOR_INJECTION",
        value_enum,
        default_value = "init-container"
    )]
    executor_injection: Injection,
    /// Replace commands that start the Python action execution server by the native executor with
    /// the same flags. A single sandbox keeps its command with `spec.executor: Command`.
    #[arg(long, env = "NATIVE_EXECUTOR", default_value_t = true, action = clap::ArgAction::Set, value_parser = BoolishValueParser::new())]
    native_executor: bool,
    /// Patterns of images that start as root and use sudo, with `*`, separated by commas.
    #[arg(long, env = "SUDO_IMAGES", value_delimiter = ',')]
    sudo_image: Vec<String>,

    #[command(flatten)]
    resources: ResourceArgs,
    /// Upper bound of `spec.resourceFactor`.
    #[arg(long, env = "SANDBOX_MAX_RESOURCE_FACTOR", default_value_t = 8.0, value_parser = parse_factor)]
    max_resource_factor: f64,

    /// Default runtime class.
    #[arg(long, env = "RUNTIME_CLASS")]
    runtime_class: Option<String>,
    /// Further runtime classes of the cluster, separated by commas: probes find out what their Pods can
    /// do, of at most eight. Only runc, crun and Pods without a class are known to do the same.
    #[arg(long, env = "RUNTIME_CLASSES", value_delimiter = ',')]
    runtime_classes: Vec<String>,
    /// Real name of the runtime class `gvisor`.
    #[arg(long, env = "GVISOR_CLASS")]
    gvisor_class: Option<String>,
    /// Reject sandboxes whose runtime class the cluster lacks. Otherwise they get the default class
    /// and a note in their status.
    #[arg(long, env = "STRICT_RUNTIME_CLASSES", value_parser = FalseyValueParser::new())]
    strict_runtime_classes: bool,

    /// Image pull Secrets in the namespace of the sandboxes, separated by commas.
    #[arg(long, env = "SANDBOX_IMAGE_PULL_SECRETS", value_delimiter = ',')]
    image_pull_secret: Vec<String>,
    /// Node selector of all sandboxes, as LABEL=VALUE, separated by commas.
    #[arg(long, env = "SANDBOX_NODE_SELECTOR", value_delimiter = ',', value_parser = parse_label)]
    node_selector: Vec<(String, String)>,
    /// Tolerations of all sandboxes, as a JSON array like in a Pod.
    #[arg(long, env = "SANDBOX_TOLERATIONS", value_name = "JSON", value_parser = parse_json::<Vec<Toleration>>)]
    tolerations: Option<Json<Vec<Toleration>>>,
    /// Affinity of all sandboxes, as a JSON object like in a Pod.
    #[arg(long, env = "SANDBOX_AFFINITY", value_name = "JSON", value_parser = parse_json::<Affinity>)]
    affinity: Option<Json<Affinity>>,
    /// ConfigMaps in the namespace of the sandboxes that are mounted in all sandboxes, separated by
    /// commas.
    #[arg(
        long,
        env = "SANDBOX_EXTRA_CONFIG_MAPS",
        value_name = "NAME:/DIRECTORY",
        value_delimiter = ',',
        value_parser = parse_mount
    )]
    extra_config_map: Vec<Option<ConfigMapMount>>,
    /// Priority class of all sandboxes.
    #[arg(long, env = "SANDBOX_PRIORITY_CLASS")]
    priority_class: Option<String>,
    /// Run sandboxes in user namespaces, which map root to an unprivileged user of the node. `auto`
    /// finds out whether that works. `always` requires containerd 2, or CRI-O 1.25, on every node.
    #[arg(
        long,
        env = "SANDBOX_USER_NAMESPACES",
        value_enum,
        default_value = "auto"
    )]
    user_namespaces: UserNamespaces,
    /// Termination grace period in seconds.
    #[arg(long, env = "SANDBOX_TERMINATION_GRACE_SECONDS", default_value_t = 10, value_parser = clap::value_parser!(i64).range(0..=3600))]
    termination_grace_seconds: i64,
    /// Allow `spec.podTemplate` to use host namespaces and paths, privileged containers, further
    /// capabilities and service accounts. Every user who may create a Sandbox can then take over
    /// its node.
    #[arg(long, env = "SANDBOX_ALLOW_PRIVILEGED_TEMPLATES", value_parser = FalseyValueParser::new())]
    allow_privileged_templates: bool,
    /// Spec of the `NetworkPolicy` that isolates sandboxes, as a JSON object. The controller ensures
    /// it in every namespace before it creates Pods there.
    #[arg(long, env = "SANDBOX_NETWORK_POLICY", value_name = "JSON", value_parser = parse_json::<NetworkPolicySpec>)]
    network_policy: Option<Json<NetworkPolicySpec>>,
}

impl PodArgs {
    /// Sets these flags in the configuration.
    pub fn apply(self, config: &mut ControllerConfig) {
        config.pods = PodSettings {
            injection: self.executor_injection,
            pull_secrets: present_all(self.image_pull_secret),
            node_selector: pairs(self.node_selector),
            tolerations: self.tolerations.flatten().unwrap_or_default(),
            affinity: self.affinity.flatten(),
            config_maps: self.extra_config_map.into_iter().flatten().collect(),
            priority_class: present(self.priority_class),
            user_namespaces: self.user_namespaces,
            grace_seconds: self.termination_grace_seconds,
            privileged_templates: self.allow_privileged_templates,
            network_policy: self.network_policy.flatten(),
        };
        config.classes = ClassPolicy {
            gvisor: present(self.gvisor_class),
            installed: present_all(self.runtime_classes),
            strict: self.strict_runtime_classes,
        };
        config.executor_image = self.executor_image;
        config.native_executor = self.native_executor;
        config.sudo_images = present_all(self.sudo_image);
        let defaults = &mut config.defaults;
        defaults.runtime_class_name = present(self.runtime_class);
        defaults.resources = self.resources.defaults(self.max_resource_factor);
    }
}

fn present(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.is_empty())
}

pub(super) fn present_all(texts: Vec<String>) -> Vec<String> {
    texts.into_iter().filter(|text| !text.is_empty()).collect()
}

/// Drops the empty pair of an empty variable.
fn pairs(pairs: Vec<(String, String)>) -> BTreeMap<String, String> {
    let named = pairs.into_iter().filter(|(name, _)| !name.is_empty());
    named.collect()
}

/// Parses a mount; `None` for the empty value of a chart.
fn parse_mount(text: &str) -> Result<Option<ConfigMapMount>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(Some)
}

/// Parses JSON; `None` for the empty value of a chart.
pub(super) fn parse_json<T: serde::de::DeserializeOwned>(text: &str) -> Result<Json<T>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let read = serde_path_to_error::deserialize(&mut serde_json::Deserializer::from_str(text));
    read.map(Some)
        .map_err(|error| format!("{}: {}", error.path(), error.inner()))
}

pub(super) fn parse_label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ if text.is_empty() => Ok((String::new(), String::new())),
        _ => Err(format!("{text:?} must have the form NAME=VALUE")),
    }
}

fn parse_factor(text: &str) -> Result<f64, String> {
    let factor: f64 = text
        .parse()
        .map_err(|_| format!("{text:?} is not a number"))?;
    if factor.is_finite() && factor > 0.0 {
        return Ok(factor);
    }
    Err("must be greater than 0".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct TestArgs {
        #[command(flatten)]
        pods: PodArgs,
    }

    fn config(arguments: &[&str]) -> Result<ControllerConfig, clap::Error> {
        let line = TestArgs::try_parse_from([&["x"], arguments].concat())?;
        let mut config = crate::tests::config();
        line.pods.apply(&mut config);
        Ok(config)
    }

    #[test]
    fn flags_set_configuration() {
        let config = config(&[
            "--native-executor=false",
            "--executor-injection=image-volume",
            "--user-namespaces=true",
            "--default-limits=memory=4Gi,nvidia.com/gpu=1",
            "--max-resources=cpu=16",
            "--node-selector=a=b,c=d",
            r#"--tolerations=[{"key": "sandboxes", "operator": "Exists"}]"#,
            r#"--affinity={"nodeAffinity": {}}"#,
            r#"--network-policy={"podSelector": {}, "policyTypes": ["Ingress"]}"#,
            "--extra-config-map=ca:/etc/ca,b:/b",
            "--image-pull-secret=registry",
            "--gvisor-class=runsc",
            "--runtime-classes=kata,,runc",
        ])
        .unwrap();
        assert!(!config.native_executor);
        assert_eq!(config.pods.injection, Injection::ImageVolume);
        assert_eq!(config.pods.user_namespaces, UserNamespaces::Always);
        assert_eq!(config.defaults.resources.limits["memory"], "4Gi");
        assert_eq!(config.defaults.resources.limits["cpu"], "2");
        assert_eq!(config.defaults.resources.max_resources["cpu"], "16");
        assert_eq!(config.pods.node_selector["c"], "d");
        assert_eq!(config.pods.tolerations[0].key.as_deref(), Some("sandboxes"));
        assert!(config.pods.affinity.is_some() && config.pods.network_policy.is_some());
        let mount = &config.pods.config_maps[1];
        assert_eq!((&*mount.name, &*mount.path), ("b", "/b"));
        assert_eq!(config.pods.pull_secrets, ["registry"]);
        assert_eq!(config.classes.gvisor.as_deref(), Some("runsc"));
        assert_eq!(config.classes.installed, ["kata", "runc"]);
    }

    #[test]
    fn empty_values_of_charts_are_ignored() {
        let flags = [
            "--default-limits=",
            "--node-selector=",
            "--tolerations=",
            "--affinity=",
            "--network-policy=",
            "--extra-config-map=",
            "--image-pull-secret=",
            "--priority-class=",
            "--runtime-class=",
            "--sudo-image=",
        ];
        let config = config(&flags).unwrap();
        assert!(config.pods.node_selector.is_empty() && config.pods.pull_secrets.is_empty());
        assert_eq!(config.pods.priority_class, None);
        assert_eq!(config.pods.network_policy, None);
        assert!(config.sudo_images.is_empty());
    }

    #[test]
    fn invalid_flags_are_rejected() {
        for (flag, complaint) in [
            ("--default-limits=memory=much", "is not a quantity"),
            ("--node-selector=a", "NAME=VALUE"),
            ("--max-resource-factor=0", "greater than 0"),
            ("--extra-config-map=ca", "NAME:/DIRECTORY"),
            ("--extra-config-map=:/etc", "NAME:/DIRECTORY"),
            ("--extra-config-map=ca:etc", "NAME:/DIRECTORY"),
            ("--extra-config-map=ca:/", "NAME:/DIRECTORY"),
            (r#"--tolerations=[{"key": 3}]"#, "[0].key"),
            ("--affinity=[", "--affinity"),
        ] {
            let error = config(&[flag]).unwrap_err().to_string();
            assert!(error.contains(complaint), "{error}");
        }
    }
}
