//! Templates that sandboxes may be started from, with their warm Pods.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Client;
use crate::Error;

/// A warm runtime config (`docs/specs/runtime-api.md`, section 1.11).
#[derive(Debug, Clone, Deserialize, Serialize)]
pub struct PoolTemplate {
    pub name: String,
    #[serde(default)]
    pub image: String,
    #[serde(default)]
    pub command: Option<Value>,
    #[serde(default)]
    pub environment: BTreeMap<String, Value>,
    #[serde(default)]
    pub working_dir: Option<String>,
    #[serde(default)]
    pub run_as_user: Option<i64>,
    #[serde(default)]
    pub run_as_group: Option<i64>,
    #[serde(default)]
    pub fs_group: Option<i64>,
    /// Number of warm Pods.
    #[serde(default)]
    pub count: u32,
    /// `file` for an applied pool, `db` for one of the admin API.
    #[serde(default)]
    pub source: String,
}

#[derive(Debug, Deserialize)]
struct Configs {
    configs: Vec<PoolTemplate>,
}

impl Client {
    /// Returns the pools whose templates the gateway shows.
    pub async fn pools(&self) -> Result<Vec<PoolTemplate>, Error> {
        let list: Configs = self.get(&["api", "warm-runtime-configs"], &[]).await?;
        Ok(list.configs)
    }
}
