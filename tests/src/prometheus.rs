//! Debian's Prometheus on a port of this machine.

use std::fmt::Write as _;
use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::clients::http_client::HttpClient;
use crate::free_port::free_port;

/// Looks for the port of a starting Prometheus, and the pause between them.
const MAX_POLLS: u32 = 500;
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Running Prometheus; ends with the value.
#[derive(Debug)]
pub struct Prometheus {
    child: Child,
    client: HttpClient,
    url: String,
    _directory: TempDir,
}

impl Prometheus {
    /// Starts it with a rule file. Each second it reads the metrics of one target, `HOST:PORT`, with these labels. Panics if
    /// the program is missing: `hack/install monitoring` installs it.
    pub async fn start(target: &str, labels: &Value, rules: &str) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let (config, rule_file) = (
            directory.path().join("prometheus.yml"),
            directory.path().join("rules.yml"),
        );
        fs::write(&rule_file, rules).expect("a rule file");
        let targets = json!([{"targets": [target], "labels": labels}]);
        let text = json!({
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [rule_file],
            "scrape_configs": [{"job_name": "sandbox-operator", "static_configs": targets}],
        });
        fs::write(&config, text.to_string()).expect("a configuration");
        let address = format!("127.0.0.1:{}", free_port());
        let child = Command::new("prometheus")
            .arg(format!("--config.file={}", config.display()))
            .arg(format!(
                "--storage.tsdb.path={}",
                directory.path().display()
            ))
            .arg(format!("--web.listen-address={address}"))
            .arg("--log.level=warn")
            .stdin(Stdio::null())
            .spawn()
            .expect("prometheus, of hack/install monitoring");
        let prometheus = Self {
            child,
            client: HttpClient::anonymous(),
            url: format!("http://{address}"),
            _directory: directory,
        };
        prometheus.wait_ready().await;
        prometheus
    }

    async fn wait_ready(&self) {
        let url = format!("{}/-/ready", self.url);
        for _ in 0..MAX_POLLS {
            let reply = self.client.try_get(&url, POLL_INTERVAL * 50).await;
            if reply.is_ok_and(|reply| reply.is_success()) {
                return;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        panic!("Prometheus does not become ready");
    }

    /// Result of an instant query. Panics with the message of Prometheus if it is invalid.
    pub async fn query(&self, query: &str) -> Vec<Value> {
        let encoded = query.bytes().fold(String::new(), |mut text, byte| {
            let _ = write!(text, "%{byte:02x}");
            text
        });
        let answer = self.get(&format!("query?query={encoded}")).await;
        let result = answer["data"]["result"].as_array();
        result
            .unwrap_or_else(|| panic!("{query}: {answer}"))
            .clone()
    }

    /// `GET` of a path below `/api/v1/`; the whole answer, also of an error.
    pub async fn get(&self, path: &str) -> Value {
        let url = format!("{}/api/v1/{path}", self.url);
        let reply = self.client.try_get(&url, Duration::from_secs(10)).await;
        reply.expect("an answer").json().expect("JSON")
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
