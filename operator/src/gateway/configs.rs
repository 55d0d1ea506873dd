//! Warm runtime configs (runtime API spec 1.11): what clients call the templates of sandboxes.
//! They are the `SandboxPool`s of the API's namespace. Those that came through the admin API are
//! marked as such and have names of their own, so they can hide others without changing them.

mod store;

use std::collections::{BTreeMap, BTreeSet};

use crds::pool::{PoolTemplate, SandboxPoolSpec};
use crds::sandbox::{EnvVar, SecurityContext};
use crds::{SandboxPool, names};
use kube::ResourceExt as _;
use ring::digest::{SHA256, digest};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::impossible::{check_command, check_directory, check_variable};
pub use store::{ConfigError, Configs};

/// Annotation of a pool: its name as a config, if that is not the name of the object. Configs may
/// have names like `v1_current`, objects may not.
pub const NAME_ANNOTATION: &str = "openhands.dev/config-name";
/// Label of pools that came through the admin API.
const STORED_LABEL: &str = "openhands.dev/config-source";
/// Its value.
const STORED: &str = "db";
/// Longest name of a config, in bytes.
const LONGEST_NAME: usize = 128;
/// Where a command starts if the pool does not say.
const WORKING_DIR: &str = "/workspace";

/// A config as clients see it.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct WarmConfig {
    pub name: String,
    pub image: String,
    /// Always there, if only as null: clients look for the key.
    pub command: Option<Vec<String>>,
    pub environment: BTreeMap<String, String>,
    pub working_dir: String,
    pub run_as_user: Option<i64>,
    pub run_as_group: Option<i64>,
    pub fs_group: Option<i64>,
    /// How many sandboxes wait ready.
    pub count: u32,
    pub source: Source,
}

/// Where a config comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// An object that somebody applied.
    File,
    /// The admin API.
    Db,
}

/// A config as an administrator sends it.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
pub struct ConfigRequest {
    pub image: String,
    #[serde(default)]
    pub command: Option<Vec<String>>,
    #[serde(default)]
    pub environment: Option<BTreeMap<String, String>>,
    #[serde(default)]
    pub working_dir: Option<String>,
    #[serde(default)]
    pub run_as_user: Option<i64>,
    #[serde(default)]
    pub run_as_group: Option<i64>,
    #[serde(default)]
    pub fs_group: Option<i64>,
    #[serde(default)]
    pub count: Option<u32>,
    /// Not supported: only false and null are taken.
    #[serde(default)]
    pub fuse_s3_mount: Option<bool>,
}

/// What clients are told of these pools: stored configs hide others of their name, or all others
/// if they do not overlay (runtime API spec 1.11).
pub fn effective(pools: &[SandboxPool], overlay: bool) -> Vec<WarmConfig> {
    let (stored, applied): (Vec<_>, Vec<_>) = pools.iter().partition(|pool| is_stored(pool));
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

/// The config that a pool is.
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
    // What comes from a Secret is not for clients.
    let plain = |v: &EnvVar| Some((v.name.clone(), v.value.clone()?));
    WarmConfig {
        name: own_name.unwrap_or_else(|| pool.name_any()),
        image: image.clone(),
        command: command.clone(),
        environment: env.iter().filter_map(plain).collect(),
        working_dir: working_dir.clone().unwrap_or_else(|| WORKING_DIR.into()),
        run_as_user: security.run_as_user,
        run_as_group: security.run_as_group,
        fs_group: security.fs_group,
        count: pool.spec.replicas,
        source,
    }
}

impl ConfigRequest {
    /// The pool that this config becomes.
    fn pool(self, name: &str) -> Result<SandboxPool, ConfigError> {
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
            env: env.into_iter().map(variable).collect(),
            security_context: Some(security).filter(|s| *s != SecurityContext::default()),
            ..PoolTemplate::default()
        };
        let spec = SandboxPoolSpec {
            template,
            replicas: self.count.unwrap_or(0),
            ..SandboxPoolSpec::default()
        };
        let mut pool = SandboxPool::new(&object_name(name), spec);
        let labels = pool.labels_mut();
        labels.insert(STORED_LABEL.into(), STORED.into());
        labels.insert(names::MANAGED_BY_LABEL.into(), names::GATEWAY.into());
        pool.annotations_mut()
            .insert(NAME_ANNOTATION.into(), name.into());
        Ok(pool)
    }
}

fn variable((name, value): (String, String)) -> EnvVar {
    EnvVar {
        name,
        value: Some(value),
        value_from: None,
    }
}

fn check_name(name: &str) -> Result<(), ConfigError> {
    if name.is_empty() || name.len() > LONGEST_NAME || name.chars().any(char::is_control) {
        return Err(ConfigError::Invalid(
            "the name of a config has 1 to 128 bytes and no control characters",
        ));
    }
    Ok(())
}

/// Name of the object of a stored config: nobody else's, and the same for every replica.
fn object_name(config: &str) -> String {
    let letters = names::runtime_id(digest(&SHA256, config.as_bytes()).as_ref());
    format!("config-{letters}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(image: &str) -> ConfigRequest {
        serde_json::from_value(serde_json::json!({
            "image": image, "environment": {"A": "1"}, "working_dir": "/w", "run_as_user": 7,
            "count": 2, "name": "ignored", "source": "file",
        }))
        .unwrap()
    }

    fn applied(name: &str) -> SandboxPool {
        let mut pool = request("applied").pool("x").unwrap();
        pool.metadata.name = Some(name.into());
        pool.metadata.labels = None;
        pool.metadata.annotations = None;
        pool
    }

    fn names(configs: &[WarmConfig]) -> Vec<(&str, Source)> {
        configs.iter().map(|c| (&*c.name, c.source)).collect()
    }

    #[test]
    fn a_stored_config_comes_back_as_it_was_sent() {
        let pool = request("i").pool("v1_current").unwrap();
        assert!(names::is_runtime_id(
            pool.name_any().strip_prefix("config-").unwrap()
        ));
        let config = read(&pool);
        let expected = WarmConfig {
            name: "v1_current".into(),
            image: "i".into(),
            command: None,
            environment: [("A".to_owned(), "1".to_owned())].into(),
            working_dir: "/w".into(),
            run_as_user: Some(7),
            run_as_group: None,
            fs_group: None,
            count: 2,
            source: Source::Db,
        };
        assert_eq!(config, expected);
        let json = serde_json::to_value(config).unwrap();
        assert!(json.as_object().unwrap().contains_key("command"));
    }

    #[test]
    fn stored_configs_hide_others() {
        use Source::{Db, File};
        let mut pools = vec![applied("a"), applied("b")];
        let (a, b) = (("a", File), ("b", File));
        assert_eq!(names(&effective(&pools, false)), [a, b]);
        pools.push(request("i").pool("b").unwrap());
        assert_eq!(names(&effective(&pools, false)), [("b", Db)]);
        assert_eq!(names(&effective(&pools, true)), [a, ("b", Db)]);
    }

    #[test]
    fn what_comes_from_a_secret_is_not_told() {
        let mut pool = applied("a");
        pool.spec.template.env[0].value = None;
        pool.spec.template.env[0].value_from = Some(serde_json::json!({"secretKeyRef": {}}));
        assert!(read(&pool).environment.is_empty());
    }

    #[test]
    fn odd_configs_are_refused() {
        for name in ["", "a\nb", &"x".repeat(129)] {
            assert!(request("i").pool(name).is_err(), "{name:?}");
        }
        for (name, value) in [("", "x"), ("A=B", "x"), ("A\0", "x"), ("A", "\0")] {
            let mut odd = request("i");
            odd.environment = Some([(name.to_owned(), value.to_owned())].into());
            assert!(odd.pool("a").is_err(), "{name:?}={value:?}");
        }
        let long = "x".repeat(128 * 1024);
        let mut odd = request("i");
        odd.command = Some(vec![long.clone()]);
        assert!(odd.pool("a").is_err());
        let mut odd = request("i");
        odd.working_dir = Some(format!("/{long}"));
        assert!(odd.pool("a").is_err());
        let mut odd = request("i");
        odd.environment = Some([("A".to_owned(), long)].into());
        assert!(odd.pool("a").is_err());
        let mut fuse = request("i");
        fuse.fuse_s3_mount = Some(true);
        assert!(fuse.pool("a").is_err());
    }
}
