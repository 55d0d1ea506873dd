//! Times and resources of the server in a sandbox (`docs/specs/executor.md`, section 2.2).

use std::collections::BTreeMap;
use std::time::Duration;

use http::Method;
use serde::{Deserialize, Serialize};

use crate::http_client;
use crate::{Error, Sandbox};

const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of the answer, which is not trusted. The longest part is the list of plugins.
const MAX_ANSWER_BYTES: usize = 64 << 10;

/// Answer of `/server_info`.
#[derive(Debug, Clone, Deserialize, Serialize)]
pub struct ServerInfo {
    /// Seconds since the start of the server.
    pub uptime: f64,
    /// Seconds since the last activity; 0 while there is one.
    pub idle_time: f64,
    pub resources: Resources,
    /// Of all programs in the sandbox. Absent in older servers.
    #[serde(default)]
    pub sandbox: Option<SandboxUsage>,
    /// State of each plugin.
    #[serde(default)]
    pub plugins: BTreeMap<String, String>,
    /// Name of the shell if it is not bash.
    #[serde(default)]
    pub shell: Option<String>,
}

/// Resources of all programs in a sandbox.
#[derive(Debug, Clone, Deserialize, Serialize)]
pub struct SandboxUsage {
    /// CPU time since the start.
    pub cpu_seconds: f64,
    pub memory: SandboxMemory,
    pub disk: SandboxDisk,
}

/// Memory in bytes.
#[derive(Debug, Clone, Deserialize, Serialize)]
pub struct SandboxMemory {
    pub used: u64,
    pub limit: Option<u64>,
}

/// File system of the working directory, in bytes.
#[derive(Debug, Clone, Deserialize, Serialize)]
pub struct SandboxDisk {
    pub used: u64,
    pub total: u64,
}

impl ServerInfo {
    /// Number of cores that the sandbox used since an earlier reading.
    pub fn cores_since(&self, earlier: &Self) -> Option<f64> {
        let (now, before) = (self.sandbox.as_ref()?, earlier.sandbox.as_ref()?);
        let cores = (now.cpu_seconds - before.cpu_seconds) / (self.uptime - earlier.uptime);
        // The time of a program may be lost when it ends, and the server may have been started anew.
        cores.is_finite().then_some(cores.max(0.0))
    }
}

/// Resources of the server process and of its file system.
#[derive(Debug, Clone, Deserialize, Serialize)]
pub struct Resources {
    pub cpu_percent: f64,
    pub memory: Memory,
    pub disk: Disk,
    pub io: Io,
}

/// Memory in bytes.
#[derive(Debug, Clone, Deserialize, Serialize)]
pub struct Memory {
    pub rss: u64,
    pub vms: u64,
    pub percent: f64,
}

/// File system of `/`, in bytes.
#[derive(Debug, Clone, Deserialize, Serialize)]
pub struct Disk {
    pub total: u64,
    pub used: u64,
    pub free: u64,
    pub percent: f64,
}

/// Bytes that the server read and wrote.
#[derive(Debug, Clone, Deserialize, Serialize)]
pub struct Io {
    pub read_bytes: u64,
    pub write_bytes: u64,
}

impl Sandbox {
    /// `GET /server_info`. It does not wake a sandbox.
    pub async fn server_info(&self) -> Result<ServerInfo, Error> {
        let request = self
            .request(Method::GET, &["server_info"], &[])?
            .timeout(CALL_TIMEOUT);
        let response = http_client::attempt(request).await?;
        http_client::json_within(response, MAX_ANSWER_BYTES).await
    }
}

#[cfg(test)]
mod tests {
    use super::ServerInfo;

    #[test]
    fn server_info_is_read_with_and_without_plugins() {
        let resources = r#"{"cpu_percent":1.5,"memory":{"rss":1,"vms":2,"percent":0.1},
            "disk":{"total":9,"used":4,"free":5,"percent":44.4},"io":{"read_bytes":7,"write_bytes":8}}"#;
        let plain = format!(r#"{{"uptime":3.5,"idle_time":0,"resources":{resources}}}"#);
        let full = format!(
            r#"{{"uptime":3,"idle_time":1.5,"resources":{resources},"plugins":{{"jupyter":"ready"}},"shell":"ash"}}"#
        );
        assert!(
            serde_json::from_str::<ServerInfo>(&plain)
                .unwrap()
                .plugins
                .is_empty()
        );
        assert_eq!(
            serde_json::from_str::<ServerInfo>(&full)
                .unwrap()
                .shell
                .as_deref(),
            Some("ash")
        );
    }

    #[test]
    fn cores_are_the_difference_of_two_readings() {
        let reading = |uptime: f64, cpu_seconds: f64| -> ServerInfo {
            serde_json::from_value(serde_json::json!({
                "uptime": uptime, "idle_time": 0,
                "resources": {"cpu_percent": 0, "memory": {"rss": 1, "vms": 2, "percent": 0.1},
                    "disk": {"total": 9, "used": 4, "free": 5, "percent": 44.4},
                    "io": {"read_bytes": 7, "write_bytes": 8}},
                "sandbox": {"cpu_seconds": cpu_seconds, "memory": {"used": 1, "limit": null},
                    "disk": {"used": 1, "total": 2}},
            }))
            .unwrap()
        };
        let first = reading(10.0, 4.0);
        assert_eq!(reading(12.0, 7.0).cores_since(&first), Some(1.5));
        assert_eq!(reading(12.0, 3.0).cores_since(&first), Some(0.0));
        assert_eq!(first.cores_since(&first), None);
    }
}
