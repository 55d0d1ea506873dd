//! Image configuration (OCI image specification, "Image Configuration"): process defaults and the
//! digests of the unpacked layers.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};

use crate::Digest;

/// Bytes of a configuration.
pub(crate) const MAX_CONFIG: u64 = 4 << 20;

/// Configuration of an image. Fields that are missing or null are empty.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct ImageConfig {
    #[serde(default, deserialize_with = "or_default")]
    pub architecture: String,
    #[serde(default, deserialize_with = "or_default")]
    pub os: String,
    #[serde(default, deserialize_with = "or_default")]
    pub created: String,
    #[serde(default, deserialize_with = "or_default")]
    pub config: Process,
    pub rootfs: RootFs,
}

/// Process defaults of containers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Process {
    /// `USER[:GROUP]`, each a name or a number; empty is root.
    #[serde(deserialize_with = "or_default")]
    pub user: String,
    /// `NAME=VALUE`.
    #[serde(deserialize_with = "or_default")]
    pub env: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    pub entrypoint: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    pub cmd: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    pub working_dir: String,
    /// Paths that Docker would mount volumes at; here they are ordinary directories.
    #[serde(deserialize_with = "or_default")]
    pub volumes: BTreeMap<String, serde_json::Value>,
    /// Name, with or without `SIG`, or number; empty is SIGTERM.
    #[serde(deserialize_with = "or_default")]
    pub stop_signal: String,
    #[serde(deserialize_with = "or_default")]
    pub labels: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct RootFs {
    /// Digests of the uncompressed layers, bottom first.
    pub diff_ids: Vec<Digest>,
}

fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Option::<T>::deserialize(deserializer).map(Option::unwrap_or_default)
}

impl ImageConfig {
    pub fn parse(bytes: &[u8]) -> serde_json::Result<Self> {
        serde_json::from_slice(bytes)
    }

    /// Chain ids of the layers, bottom first.
    pub fn chain_ids(&self) -> Vec<Digest> {
        let mut chain: Vec<Digest> = Vec::new();
        for diff_id in &self.rootfs.diff_ids {
            let id = diff_id.chain(chain.last());
            chain.push(id);
        }
        chain
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn config_reads_nulls_and_missing_fields_as_empty() {
        let diff = Digest::of(b"");
        let text = format!(
            r#"{{"architecture": "amd64", "config": {{"Env": null, "Cmd": ["sh"], "User": "a:b",
            "Volumes": {{"/data": {{}}}}, "StopSignal": "SIGINT", "Odd": 1}},
            "rootfs": {{"type": "layers", "diff_ids": ["{diff}", "{diff}"]}}, "history": null}}"#
        );
        let config = ImageConfig::parse(text.as_bytes()).unwrap();
        assert_eq!(config.config.cmd, ["sh"]);
        assert_eq!(config.config.user, "a:b");
        assert!(config.config.env.is_empty() && config.os.is_empty());
        assert!(config.config.volumes.contains_key("/data"));
        assert_eq!(config.chain_ids(), [diff, diff.chain(Some(&diff))]);
        let null = format!(r#"{{"config": null, "rootfs": {{"diff_ids": ["{diff}"]}}}}"#);
        assert!(ImageConfig::parse(null.as_bytes()).is_ok());
        assert!(ImageConfig::parse(b"{}").is_err());
    }
}
