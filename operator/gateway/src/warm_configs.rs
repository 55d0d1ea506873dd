//! Warm runtime configs, the API's view of the `SandboxPool`s of its namespace
//! (`docs/specs/runtime-api.md`, section 1.11). Pools from the admin API have a label and names of
//! their own, so that they can hide others without changing them.

mod store;

use std::collections::{BTreeMap, BTreeSet};

use crds::pool::{ClaimPolicy, PoolTemplate, PrestartMode, SandboxPoolSpec};
use crds::sandbox::{EnvVar, SecurityContext, Workspace};
use crds::{SandboxPool, names};
use kube::ResourceExt as _;
use ring::digest::{SHA256, digest};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::exec_limits::{check_command, check_directory, check_variable};
pub(crate) use store::{ConfigError, WarmConfigStore};

/// Annotation of a pool with its config name, if that differs from the object name. Config names
/// may contain underscores, object names may not.
const NAME_ANNOTATION: &str = "openhands.dev/config-name";
/// Annotation of an applied pool: `Public` shows the values of its environment to all tenants.
const ENVIRONMENT_ANNOTATION: &str = "openhands.dev/config-environment";
/// Value of [`ENVIRONMENT_ANNOTATION`].
const PUBLIC: &str = "Public";
/// Label of pools that came through the admin API.
const STORED_LABEL: &str = "openhands.dev/config-source";
/// Value of [`STORED_LABEL`].
const STORED: &str = "db";
const MAX_NAME_BYTES: usize = 128;
/// Working directory of pools that name none.
const WORKING_DIR: &str = "/workspace";

/// Program of the agent-server.
const AGENT_SERVER: &str = "openhands-agent-server";

/// Config as clients see it.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub(crate) struct WarmConfig {
    name: String,
    image: String,
    /// Command. The key is present even if null.
    command: Option<Vec<String>>,
    /// Environment without values from Secrets. Empty for an applied pool without the annotation
    /// openhands.dev/config-environment: Public.
    environment: BTreeMap<String, String>,
    working_dir: String,
    run_as_user: Option<i64>,
    run_as_group: Option<i64>,
    fs_group: Option<i64>,
    /// Number of warm sandboxes.
    count: u32,
    source: Source,
}

/// Origin of a config.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Source {
    /// A `SandboxPool` that was applied to the cluster.
    File,
    /// The admin API.
    Db,
}

/// Config as an administrator sends it.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
pub(crate) struct ConfigRequest {
    image: String,
    #[serde(default)]
    command: Option<Vec<String>>,
    #[serde(default)]
    environment: Option<BTreeMap<String, String>>,
    #[serde(default)]
    working_dir: Option<String>,
    #[serde(default)]
    run_as_user: Option<i64>,
    #[serde(default)]
    run_as_group: Option<i64>,
    #[serde(default)]
    fs_group: Option<i64>,
    #[serde(default)]
    count: Option<u32>,
    /// Not supported: must be false or null.
    #[serde(default)]
    fuse_s3_mount: Option<bool>,
}

/// Returns the configs of these pools that clients see. Stored configs hide all others, or with
/// `overlay` those of their name (`docs/specs/runtime-api.md`, section 1.11).
fn effective_configs(pools: &[SandboxPool], overlay: bool) -> Vec<WarmConfig> {
    // A start from a config begins empty.
    let pools = pools
        .iter()
        .filter(|pool| pool.spec.template.source.is_none());
    let (stored, applied): (Vec<_>, Vec<_>) = pools.partition(|pool| is_stored(pool));
    let stored: Vec<_> = stored.into_iter().map(read).collect();
    let hidden: BTreeSet<_> = stored.iter().map(|config| config.name.clone()).collect();
    let shown = |config: &WarmConfig| {
        stored.is_empty() || (overlay && !hidden.contains(config.name.as_str()))
    };
    let mut all: Vec<_> = applied.into_iter().map(read).filter(shown).collect();
    all.extend(stored.iter().cloned());
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

fn is_stored(pool: &SandboxPool) -> bool {
    pool.labels()
        .get(STORED_LABEL)
        .is_some_and(|value| value == STORED)
}

fn read(pool: &SandboxPool) -> WarmConfig {
    let PoolTemplate {
        image,
        command,
        working_dir,
        env,
        security_context,
        ..
    } = &pool.spec.template;
    let security = security_context.clone().unwrap_or_default();
    let own_name = pool.annotations().get(NAME_ANNOTATION).cloned();
    let source = if is_stored(pool) {
        Source::Db
    } else {
        Source::File
    };
    let annotation = pool.annotations().get(ENVIRONMENT_ANNOTATION);
    // The admin API stores configs for clients; other pools are not written for them.
    let public = source == Source::Db || annotation.is_some_and(|value| value == PUBLIC);
    // Values from Secrets are left out.
    let plain = |v: &EnvVar| Some((v.name.clone(), v.value.clone()?));
    WarmConfig {
        name: own_name.unwrap_or_else(|| pool.name_any()),
        image: image.clone(),
        command: command.clone(),
        environment: env.iter().filter(|_| public).filter_map(plain).collect(),
        working_dir: working_dir.clone().unwrap_or_else(|| WORKING_DIR.into()),
        run_as_user: security.run_as_user,
        run_as_group: security.run_as_group,
        fs_group: security.fs_group,
        count: pool.spec.replicas,
        source,
    }
}

impl ConfigRequest {
    /// Converts the config to a pool of Pods for sessions, which have this workspace.
    fn into_pool(self, name: &str, workspace: Workspace) -> Result<SandboxPool, ConfigError> {
        check_name(name)?;
        if self.fuse_s3_mount == Some(true) {
            return Err(ConfigError::Invalid("fuse_s3_mount is not supported"));
        }
        let security = SecurityContext {
            run_as_user: self.run_as_user,
            run_as_group: self.run_as_group,
            fs_group: self.fs_group,
        };
        let env = self.environment.unwrap_or_default();
        env.iter()
            .try_for_each(|(name, value)| check_variable(name, value))?;
        check_command(self.command.as_deref().unwrap_or_default())?;
        check_directory(self.working_dir.as_deref().unwrap_or_default())?;
        let template = PoolTemplate {
            image: self.image,
            command: self.command.filter(|words| !words.is_empty()),
            working_dir: self.working_dir,
            env: env.into_iter().map(to_env_var).collect(),
            security_context: Some(security).filter(|s| *s != SecurityContext::default()),
            workspace: Some(workspace),
            ..PoolTemplate::default()
        };
        let spec = SandboxPoolSpec {
            replicas: self.count.unwrap_or(0),
            claimed_by: ClaimPolicy::Matching,
            prestart: prestart(template.command.as_deref()),
            template,
            ..SandboxPoolSpec::default()
        };
        let mut pool = SandboxPool::new(&object_name(name), spec);
        let labels = pool.labels_mut();
        labels.insert(STORED_LABEL.into(), STORED.into());
        labels.insert(
            names::MANAGED_BY_LABEL.into(),
            names::GATEWAY_FIELD_MANAGER.into(),
        );
        pool.annotations_mut()
            .insert(NAME_ANNOTATION.into(), name.into());
        Ok(pool)
    }
}

/// Program that Pods of this command run before a claim. Nothing is prestarted for the action
/// execution server: settings of the controller decide whether the native one replaces it.
fn prestart(command: Option<&[String]>) -> Option<PrestartMode> {
    let program = command?.first()?.rsplit('/').next();
    (program == Some(AGENT_SERVER)).then_some(PrestartMode::AgentServer)
}

fn to_env_var((name, value): (String, String)) -> EnvVar {
    EnvVar {
        name,
        value: Some(value),
        value_from: None,
    }
}

fn check_name(name: &str) -> Result<(), ConfigError> {
    if name.is_empty() || name.len() > MAX_NAME_BYTES || name.chars().any(char::is_control) {
        return Err(ConfigError::Invalid(
            "the config name must have 1 to 128 bytes and no control characters",
        ));
    }
    Ok(())
}

/// Derives the object name of a stored config, the same on every replica.
fn object_name(config: &str) -> String {
    let letters = names::runtime_id(digest(&SHA256, config.as_bytes()).as_ref());
    format!("config-{letters}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::config::GatewayConfig;

    fn request(image: &str) -> ConfigRequest {
        serde_json::from_value(json!({
            "image": image, "environment": {"A": "1"}, "working_dir": "/w", "run_as_user": 7,
            "count": 2, "name": "ignored", "source": "file",
        }))
        .unwrap()
    }

    fn workspace() -> Workspace {
        GatewayConfig::default().workspace()
    }

    fn applied(name: &str) -> SandboxPool {
        let mut pool = request("applied").into_pool("x", workspace()).unwrap();
        pool.metadata.name = Some(name.into());
        pool.metadata.labels = None;
        pool.metadata.annotations = None;
        pool
    }

    #[test]
    fn environment_of_applied_pool_is_hidden_unless_public() {
        let mut pool = applied("a");
        assert!(read(&pool).environment.is_empty());
        let annotations = pool.annotations_mut();
        annotations.insert(ENVIRONMENT_ANNOTATION.into(), PUBLIC.into());
        assert_eq!(read(&pool).environment["A"], "1");
        pool.spec.template.env[0].value = None;
        pool.spec.template.env[0].value_from = Some(json!({"secretKeyRef": {}}));
        assert!(read(&pool).environment.is_empty());
    }

    #[test]
    fn pool_beside_a_snapshot_is_no_config() {
        let mut beside = applied("beside");
        beside.spec.template.source = Some(crds::sandbox::Source::default());
        let shown = effective_configs(&[applied("a"), beside], false);
        let names: Vec<_> = shown.iter().map(|config| &*config.name).collect();
        assert_eq!(names, ["a"]);
    }

    #[test]
    fn pool_prestarts_the_agent_server_only() {
        let spec = |command: serde_json::Value| {
            let mut body = json!({"image": "i", "count": 1});
            body["command"] = command;
            let request: ConfigRequest = serde_json::from_value(body).unwrap();
            request.into_pool("a", workspace()).unwrap().spec
        };
        let command = json!(["/usr/local/bin/openhands-agent-server", "--port", "60000"]);
        insta::assert_yaml_snapshot!(spec(command));
        for other in [
            json!(null),
            json!([
                "python",
                "-m",
                "openhands.runtime.action_execution_server",
                "60000"
            ]),
            json!(["sh", "-c", "openhands-agent-server --port 60000"]),
        ] {
            assert_eq!(spec(other.clone()).prestart, None, "{other}");
        }
    }

    #[test]
    fn invalid_configs_are_rejected() {
        for name in ["", "a\nb", &"x".repeat(129)] {
            assert!(
                request("i").into_pool(name, workspace()).is_err(),
                "{name:?}"
            );
        }
        let long = "x".repeat(128 * 1024);
        for (field, value) in [
            ("environment", json!({"": "x"})),
            ("environment", json!({"A": long})),
            ("command", json!([long])),
            ("working_dir", json!(format!("/{long}"))),
            ("fuse_s3_mount", json!(true)),
        ] {
            let mut body = json!({"image": "i"});
            body[field] = value;
            let odd: ConfigRequest = serde_json::from_value(body).unwrap();
            assert!(odd.into_pool("a", workspace()).is_err(), "{field}");
        }
    }
}
