//! The app server of V1: `RemoteSandboxService` of 2025-11, and its successors (`docs/specs/runtime-api.md`, sections 3.7,
//! 3.8, 3.10).

mod enterprise;

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::exception::text;
use super::{ClientException, POLL, RuntimeApi};

pub use enterprise::Enterprise;

/// The one client for all calls.
const CALL_TIMEOUT: Duration = Duration::from_secs(15);
/// Time that a conversation waits for its sandbox.
const START_TIMEOUT: Duration = Duration::from_mins(2);

/// State of a sandbox as the app shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SandboxStatus {
    Starting,
    Running,
    Paused,
    Error,
    Missing,
    /// Only in the newest client.
    Unknown,
}

/// The service, with the ids of the sandboxes that it has stored.
#[derive(Debug)]
pub struct V1App {
    pub api: RuntimeApi,
    pub image: String,
    pub command: Value,
    pub max_num_sandboxes: usize,
    /// Oldest first.
    pub stored: Vec<String>,
}

impl V1App {
    pub fn new(api_url: &str, api_key: &str, image: &str) -> Self {
        Self {
            api: RuntimeApi::new(api_url, api_key, CALL_TIMEOUT),
            image: image.into(),
            command: json!(["/usr/local/bin/openhands-agent-server", "--port", "60000"]),
            max_num_sandboxes: 10,
            stored: Vec::new(),
        }
    }

    /// `start_sandbox`, which makes room first. Returns the session key.
    pub async fn start(&mut self, id: &str) -> Result<String, ClientException> {
        self.pause_oldest().await?;
        let body = json!({
            "image": self.image, "command": self.command, "working_dir": "/workspace",
            "environment": environment(id), "session_id": id, "resource_factor": 1,
            "run_as_user": 10001, "run_as_group": 10001, "fs_group": 10001,
        });
        let runtime = self.api.post("start", &body).await?.success()?;
        self.stored.push(id.to_owned());
        text(&runtime, "session_api_key")
    }

    async fn pause_oldest(&mut self) -> Result<(), ClientException> {
        let mut running = Vec::new();
        for id in &self.stored {
            if self.status(id).await == SandboxStatus::Running {
                running.push(id.clone());
            }
        }
        let room = self.max_num_sandboxes.saturating_sub(1);
        let surplus = running.len().saturating_sub(room);
        for id in running.iter().take(surplus) {
            self.change("pause", id).await?;
        }
        Ok(())
    }

    /// The status as the app of 2025-11 sees it: every exception is a missing sandbox.
    pub async fn status(&self, id: &str) -> SandboxStatus {
        let read = self.session(id).await;
        read.and_then(|r| of_2025(&r))
            .unwrap_or(SandboxStatus::Missing)
    }

    /// The status as 1.11 sees it, by `status` alone.
    pub async fn status_of_1_11(&self, id: &str) -> SandboxStatus {
        let read = self.session(id).await;
        let status = read.and_then(|r| text(&r, "status"));
        status.map_or(SandboxStatus::Missing, |s| by_status(&s))
    }

    /// `wait_for_sandbox_running`.
    pub async fn wait(&self, id: &str) -> Result<Value, ClientException> {
        let end = Instant::now() + START_TIMEOUT;
        while Instant::now() < end {
            match self.status(id).await {
                SandboxStatus::Running => return self.session(id).await,
                SandboxStatus::Error | SandboxStatus::Missing => {
                    let status = format!("{:?}", self.status(id).await);
                    return Err(ClientException::Value(status));
                }
                _ => sleep(POLL).await,
            }
        }
        Err(ClientException::Timeout)
    }

    /// `resume_sandbox`, `pause_sandbox`, `delete_sandbox`: whether there was something to do it to.
    pub async fn change(&self, verb: &str, id: &str) -> Result<bool, ClientException> {
        let Ok(runtime) = self.session(id).await else {
            return Ok(false);
        };
        let runtime_id = text(&runtime, "runtime_id")?.into();
        let reply = self.api.change(verb, &runtime_id).await?;
        Ok(reply.is_success() || (verb == "stop" && reply.status == 404))
    }

    /// The poller: sandboxes that run, by session, with URL and key.
    pub async fn poll(&self) -> Result<Vec<(String, String, String)>, ClientException> {
        let list = self.api.get("list").await?.success()?;
        let runtimes = super::exception::index(&list, "runtimes")?;
        let runtimes = runtimes.as_array().cloned().unwrap_or_default();
        let mut running = Vec::new();
        for runtime in &runtimes {
            if text(runtime, "status")? == "running" {
                let field = |name| text(runtime, name);
                let (url, key) = (field("url")?, field("session_api_key")?);
                running.push((field("session_id")?, url, key));
            }
        }
        Ok(running)
    }

    pub async fn session(&self, id: &str) -> Result<Value, ClientException> {
        self.api.session(id).await?.success()
    }

    /// `_exposed_urls` of 2025-11: everything after the scheme gets the prefix.
    pub fn exposed(url: &str, service: &str) -> Result<String, ClientException> {
        let parts: Vec<_> = url.split("://").collect();
        let [scheme, rest] = parts.as_slice() else {
            return Err(ClientException::Value(format!("cannot be unpacked: {url}")));
        };
        Ok(format!("{scheme}://{service}-{rest}"))
    }

    /// The same of newer releases, which know the path form.
    pub fn exposed_by_newer(url: &str, runtime_id: &str, service: &str) -> String {
        let (scheme, rest) = url.split_once("://").unwrap_or(("http", url));
        let (netloc, path) = rest.split_once('/').unwrap_or((rest, ""));
        if path.starts_with(runtime_id) {
            format!("{scheme}://{netloc}/{runtime_id}/{service}")
        } else {
            format!("{scheme}://{service}-{netloc}/{path}")
        }
    }
}

/// `pod_status` first, then `status`.
fn of_2025(runtime: &Value) -> Result<SandboxStatus, ClientException> {
    let pod = text(runtime, "pod_status")?.to_lowercase();
    match pod.as_str() {
        "ready" => Ok(SandboxStatus::Running),
        "pending" | "running" => Ok(SandboxStatus::Starting),
        "failed" | "unknown" | "crashloopbackoff" => Ok(SandboxStatus::Error),
        _ => text(runtime, "status").map(|status| by_status(&status)),
    }
}

fn by_status(status: &str) -> SandboxStatus {
    match status {
        "running" => SandboxStatus::Running,
        "starting" => SandboxStatus::Starting,
        "paused" => SandboxStatus::Paused,
        "error" => SandboxStatus::Error,
        _ => SandboxStatus::Missing,
    }
}

fn environment(id: &str) -> Value {
    json!({
        "OPENVSCODE_SERVER_ROOT": "/openhands/.openvscode-server", "LOG_JSON": "true",
        "OH_ENABLE_VNC": "0", "OH_CONVERSATIONS_PATH": "/workspace/conversations",
        "OH_BASH_EVENTS_DIR": "/workspace/bash_events", "OH_VSCODE_PORT": "60001",
        "OH_WEBHOOKS_0_BASE_URL": format!("https://app.example.com/api/v1/webhooks/{id}"),
        "OH_ALLOW_CORS_ORIGINS_0": "https://app.example.com",
    })
}
