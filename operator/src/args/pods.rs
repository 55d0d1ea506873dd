//! Flags that shape the Pods of sandboxes. Every one is also an environment variable, for charts; an
//! empty text there means the same as none.

use std::collections::BTreeMap;

use clap::builder::{BoolishValueParser, FalseyValueParser};
use k8s_openapi::api::core::v1::{Affinity, Toleration};

use crate::controller::build::resources;
use crate::controller::{ClassPolicy, ConfigMapMount, ControllerConfig, Injection, PodSettings};

#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Pods of sandboxes")]
pub(super) struct PodArgs {
    /// Image that brings the executor binary into sandboxes.
    #[arg(
        long,
        env = "EXECUTOR_IMAGE",
        default_value = "localhost/sandbox-executor:dev"
    )]
    executor_image: String,
    /// How the executor binary gets there. `image-volume` copies nothing, and needs Kubernetes 1.33
    /// and a container runtime that does not mount such volumes noexec.
    #[arg(
        long,
        env = "EXECUTOR_INJECTION",
        value_enum,
        default_value = "init-container"
    )]
    executor_injection: Injection,
    /// Whether commands that are the Python action execution server are replaced by the native
    /// executor with the same flags. `false` turns it off for all sandboxes; one alone keeps its
    /// command by `spec.executor: Command`.
    #[arg(long, env = "NATIVE_EXECUTOR", default_value_t = true, action = clap::ArgAction::Set, value_parser = BoolishValueParser::new())]
    native_executor: bool,
    /// Images that start as root and use sudo, as patterns with `*`, separated by commas.
    #[arg(long, env = "SUDO_IMAGES", value_delimiter = ',')]
    sudo_image: Vec<String>,

    /// Requests of sandboxes that name none, as RESOURCE=QUANTITY, separated by commas. What is
    /// absent stays as it is: 250m CPU, 512Mi of memory, no ephemeral storage.
    #[arg(long, env = "SANDBOX_DEFAULT_REQUESTS", value_name = "RESOURCES", value_delimiter = ',', value_parser = amount)]
    default_requests: Vec<(String, String)>,
    /// Limits of sandboxes that name none, in the same form. What is absent stays as it is: 2 CPUs,
    /// 2Gi of memory, 10Gi of ephemeral storage.
    #[arg(long, env = "SANDBOX_DEFAULT_LIMITS", value_name = "RESOURCES", value_delimiter = ',', value_parser = amount)]
    default_limits: Vec<(String, String)>,
    /// The most that one sandbox gets, whatever it asks for, in the same form.
    #[arg(long, env = "SANDBOX_MAX_RESOURCES", value_name = "RESOURCES", value_delimiter = ',', value_parser = amount)]
    max_resources: Vec<(String, String)>,
    /// Highest resource factor that takes effect.
    #[arg(long, env = "SANDBOX_MAX_RESOURCE_FACTOR", default_value_t = 8.0, value_parser = factor)]
    max_resource_factor: f64,

    /// Runtime class of sandboxes that name none.
    #[arg(long, env = "RUNTIME_CLASS")]
    runtime_class: Option<String>,
    /// The runtime class that sandboxes mean by `gvisor`.
    #[arg(long, env = "GVISOR_CLASS")]
    gvisor_class: Option<String>,
    /// Refuse sandboxes whose runtime class the cluster lacks. Otherwise they get the default one,
    /// and their status says so.
    #[arg(long, env = "STRICT_RUNTIME_CLASSES", value_parser = FalseyValueParser::new())]
    strict_runtime_classes: bool,

    /// Secrets that images are pulled with, separated by commas. They must be in the namespace of
    /// the sandboxes.
    #[arg(long, env = "SANDBOX_IMAGE_PULL_SECRETS", value_delimiter = ',')]
    image_pull_secret: Vec<String>,
    /// Labels of the nodes that sandboxes may run on, as LABEL=VALUE, separated by commas.
    #[arg(long, env = "SANDBOX_NODE_SELECTOR", value_delimiter = ',', value_parser = label)]
    node_selector: Vec<(String, String)>,
    /// Tolerations of all sandboxes: a JSON array as in a Pod.
    #[arg(long, env = "SANDBOX_TOLERATIONS", value_name = "JSON")]
    tolerations: Option<String>,
    /// Affinity of all sandboxes: a JSON object as in a Pod.
    #[arg(long, env = "SANDBOX_AFFINITY", value_name = "JSON")]
    affinity: Option<String>,
    /// Config maps, of the sandboxes' namespace, that are mounted in all of them, separated by
    /// commas.
    #[arg(
        long,
        env = "SANDBOX_EXTRA_CONFIG_MAPS",
        value_name = "NAME:/DIRECTORY",
        value_delimiter = ','
    )]
    extra_config_map: Vec<String>,
    /// Priority class of all sandboxes.
    #[arg(long, env = "SANDBOX_PRIORITY_CLASS")]
    priority_class: Option<String>,
    /// Run sandboxes in user namespaces: root in a sandbox is nobody on its node. Needs nodes that
    /// support it.
    #[arg(long, env = "SANDBOX_USER_NAMESPACES", value_parser = FalseyValueParser::new())]
    user_namespaces: bool,
    /// Seconds that a sandbox has to end.
    #[arg(long, env = "SANDBOX_TERMINATION_GRACE_SECONDS", default_value_t = 10, value_parser = clap::value_parser!(i64).range(0..=3600))]
    termination_grace_seconds: i64,
    /// Let `spec.podTemplate` ask for what reaches beyond a sandbox: host namespaces and paths,
    /// privileged containers, further capabilities, service accounts. Whoever may create a Sandbox
    /// could then take over its node.
    #[arg(long, env = "SANDBOX_ALLOW_PRIVILEGED_TEMPLATES", value_parser = FalseyValueParser::new())]
    allow_privileged_templates: bool,
}

impl PodArgs {
    /// Puts what was said into the configuration.
    ///
    /// # Errors
    /// If one of the JSON texts is not what it should be.
    pub(super) fn apply(self, config: &mut ControllerConfig) -> anyhow::Result<()> {
        config.pods = PodSettings {
            injection: self.executor_injection,
            pull_secrets: present_all(self.image_pull_secret),
            node_selector: pairs(self.node_selector),
            tolerations: json::<Vec<Toleration>>("--tolerations", self.tolerations)?
                .unwrap_or_default(),
            affinity: json::<Affinity>("--affinity", self.affinity)?,
            config_maps: mounts(self.extra_config_map)?,
            priority_class: present(self.priority_class),
            user_namespaces: self.user_namespaces,
            grace_seconds: self.termination_grace_seconds,
            privileged_templates: self.allow_privileged_templates,
        };
        config.classes = ClassPolicy {
            gvisor: present(self.gvisor_class),
            strict: self.strict_runtime_classes,
        };
        config.executor_image = self.executor_image;
        config.native_executor = self.native_executor;
        config.sudo_images = present_all(self.sudo_image);
        let defaults = &mut config.defaults;
        defaults.runtime_class_name = present(self.runtime_class);
        defaults.requests.extend(pairs(self.default_requests));
        defaults.limits.extend(pairs(self.default_limits));
        defaults.most = pairs(self.max_resources);
        defaults.max_factor = self.max_resource_factor;
        Ok(())
    }
}

fn present(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.is_empty())
}

fn present_all(texts: Vec<String>) -> Vec<String> {
    texts.into_iter().filter(|text| !text.is_empty()).collect()
}

/// An empty variable is read as one empty pair.
fn pairs(pairs: Vec<(String, String)>) -> BTreeMap<String, String> {
    let named = pairs.into_iter().filter(|(name, _)| !name.is_empty());
    named.collect()
}

fn mounts(texts: Vec<String>) -> anyhow::Result<Vec<ConfigMapMount>> {
    let all = present_all(texts).into_iter();
    all.map(|text| text.parse().map_err(anyhow::Error::msg))
        .collect()
}

fn json<T: serde::de::DeserializeOwned>(
    flag: &str,
    text: Option<String>,
) -> anyhow::Result<Option<T>> {
    let Some(text) = present(text) else {
        return Ok(None);
    };
    let read = serde_path_to_error::deserialize(&mut serde_json::Deserializer::from_str(&text));
    read.map(Some)
        .map_err(|error| anyhow::anyhow!("{flag}: {}: {}", error.path(), error.inner()))
}

fn label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ if text.is_empty() => Ok((String::new(), String::new())),
        _ => Err(format!("{text:?} is not NAME=VALUE")),
    }
}

fn amount(text: &str) -> Result<(String, String), String> {
    let (name, amount) = label(text)?;
    if name.is_empty() || resources::value(&amount).is_some() {
        return Ok((name, amount));
    }
    Err(format!("{amount:?} is no quantity"))
}

fn factor(text: &str) -> Result<f64, String> {
    let factor: f64 = text.parse().map_err(|_| format!("{text:?} is no number"))?;
    if factor.is_finite() && factor > 0.0 {
        return Ok(factor);
    }
    Err("must be greater than 0".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::urls::{Scheme, UrlForm, Urls};

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        pods: PodArgs,
    }

    fn config(arguments: &[&str]) -> anyhow::Result<ControllerConfig> {
        let line = Line::try_parse_from([&["x"], arguments].concat())?;
        let mut config = ControllerConfig::new(Urls {
            scheme: Scheme::Https,
            base: "rt.example.com".into(),
            form: UrlForm::Nested,
        });
        line.pods.apply(&mut config)?;
        Ok(config)
    }

    #[test]
    fn without_flags_the_defaults_hold() {
        let config = config(&[]).unwrap();
        assert!(config.native_executor);
        assert_eq!(config.defaults.limits["memory"], "2Gi");
        assert_eq!(config.pods.grace_seconds, 10);
        assert!(config.pods.tolerations.is_empty() && !config.pods.privileged_templates);
    }

    #[test]
    fn flags_are_read() {
        let config = config(&[
            "--native-executor=false",
            "--executor-injection=image-volume",
            "--default-limits=memory=4Gi,nvidia.com/gpu=1",
            "--max-resources=cpu=16",
            "--node-selector=a=b,c=d",
            r#"--tolerations=[{"key": "sandboxes", "operator": "Exists"}]"#,
            r#"--affinity={"nodeAffinity": {}}"#,
            "--extra-config-map=ca:/etc/ca,b:/b",
            "--image-pull-secret=registry",
            "--gvisor-class=runsc",
        ])
        .unwrap();
        assert!(!config.native_executor);
        assert_eq!(config.pods.injection, Injection::ImageVolume);
        assert_eq!(config.defaults.limits["memory"], "4Gi");
        assert_eq!(config.defaults.limits["cpu"], "2");
        assert_eq!(config.defaults.most["cpu"], "16");
        assert_eq!(config.pods.node_selector["c"], "d");
        assert_eq!(config.pods.tolerations[0].key.as_deref(), Some("sandboxes"));
        assert!(config.pods.affinity.is_some());
        assert_eq!(config.pods.config_maps[1].path, "/b");
        assert_eq!(config.pods.pull_secrets, ["registry"]);
        assert_eq!(config.classes.gvisor.as_deref(), Some("runsc"));
    }

    #[test]
    fn empty_texts_of_charts_mean_nothing() {
        let flags = [
            "--default-limits=",
            "--node-selector=",
            "--tolerations=",
            "--affinity=",
            "--extra-config-map=",
            "--image-pull-secret=",
            "--priority-class=",
            "--runtime-class=",
            "--sudo-image=",
        ];
        let config = config(&flags).unwrap();
        assert!(config.pods.node_selector.is_empty() && config.pods.pull_secrets.is_empty());
        assert_eq!(config.pods.priority_class, None);
        assert!(config.sudo_images.is_empty());
    }

    #[test]
    fn nonsense_is_refused_with_its_place() {
        for (flag, complaint) in [
            ("--default-limits=memory=much", "is no quantity"),
            ("--node-selector=a", "NAME=VALUE"),
            ("--max-resource-factor=0", "greater than 0"),
            ("--extra-config-map=ca", "NAME:/DIRECTORY"),
            (r#"--tolerations=[{"key": 3}]"#, "--tolerations: [0].key"),
            ("--affinity=[", "--affinity"),
        ] {
            let error = config(&[flag]).unwrap_err().to_string();
            assert!(error.contains(complaint), "{error}");
        }
    }
}
