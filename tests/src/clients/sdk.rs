//! `APIRemoteWorkspace` of the SDK (`docs/specs/runtime-api.md`, section 3.9).

use std::time::Duration;

use http::Method;
use hyper::body::Bytes;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::exception::{restarts, text};
use super::{ClientException, HttpClient, POLL, Reply, RuntimeApi};

/// `init_timeout`, `api_timeout`, and that of `/pause` and `/stop`.
const INIT: Duration = Duration::from_mins(5);
const API: Duration = Duration::from_mins(1);
const CLEANUP: Duration = Duration::from_secs(30);

/// One workspace object.
#[derive(Debug)]
pub struct Sdk {
    pub api: RuntimeApi,
    pub session_id: String,
    pub server_image: String,
    pub environment: Value,
    pub runtime_class: Option<String>,
    pub keep_alive: bool,
    pub pause_on_close: bool,
    /// The client of the agent-server.
    pub sandbox: HttpClient,
    pub runtime_id: Option<String>,
    pub host: String,
    pub key: String,
}

impl Sdk {
    pub fn new(api_url: &str, api_key: &str, session_id: &str, image: &str) -> Self {
        Self {
            // Only this client takes a slash at the end away.
            api: RuntimeApi::new(api_url.trim_end_matches('/'), api_key, API),
            session_id: session_id.into(),
            server_image: image.into(),
            environment: json!({}),
            runtime_class: Some("sysbox-runc".into()),
            keep_alive: false,
            pause_on_close: false,
            sandbox: HttpClient::of_session(""),
            runtime_id: None,
            host: String::new(),
            key: String::new(),
        }
    }

    /// The constructor. What fails leads to [`Sdk::cleanup`].
    pub async fn construct(&mut self) -> Result<(), ClientException> {
        let made = self.start_or_attach().await;
        if made.is_err() {
            self.cleanup().await;
        }
        made
    }

    async fn start_or_attach(&mut self) -> Result<(), ClientException> {
        if !self.find_existing().await? {
            self.start().await?;
        }
        self.wait_until_ready().await?;
        // httpx gives a base URL with a path a slash at its end, so this fails for such.
        let rest = self.host.split_once("://").map_or("", |(_, rest)| rest);
        if rest.contains('/') {
            return Err(ClientException::Assertion(format!("host is {}", self.host)));
        }
        self.sandbox = HttpClient::of_session(&self.key);
        Ok(())
    }

    async fn find_existing(&mut self) -> Result<bool, ClientException> {
        let reply = self.api.session(&self.session_id).await?;
        if reply.status == 404 {
            return Ok(false);
        }
        let runtime = reply.success()?;
        match runtime.get("status").and_then(Value::as_str) {
            Some("running") => self.remember(&runtime).map(|()| true),
            Some("paused") => {
                self.remember(&runtime)?;
                let resumed = self.change("resume", INIT).await;
                Ok(resumed.is_ok_and(|reply| reply.is_success()))
            }
            _ => Ok(false),
        }
    }

    async fn start(&mut self) -> Result<(), ClientException> {
        let mut body = json!({
            "image": self.server_image,
            "command": "/usr/local/bin/openhands-agent-server --port 60000",
            "working_dir": "/", "environment": self.environment, "session_id": self.session_id,
            "run_as_user": 10001, "fs_group": 10001, "image_pull_policy": "IfNotPresent",
        });
        if let Some(class) = &self.runtime_class {
            body["runtime_class"] = json!(class);
        }
        let started = self.api.within(INIT).post("start", &body).await;
        self.remember(&started?.success()?)
    }

    fn remember(&mut self, runtime: &Value) -> Result<(), ClientException> {
        let value = |error| ClientException::Value(format!("{error:?}"));
        self.runtime_id = Some(text(runtime, "runtime_id").map_err(value)?);
        self.host = text(runtime, "url").map_err(value)?;
        self.host.truncate(self.host.trim_end_matches('/').len());
        self.key = text(runtime, "session_api_key").unwrap_or_default();
        Ok(())
    }

    /// Polls the session. Any HTTP error is fatal, any trouble with `/health` is not.
    async fn wait_until_ready(&mut self) -> Result<(), ClientException> {
        let end = Instant::now() + INIT;
        while Instant::now() < end {
            let reply = self.api.session(&self.session_id).await?;
            let runtime = reply.success()?;
            restarts(&runtime)?;
            let pod = match runtime.get("pod_status") {
                None => String::new(),
                Some(_) => text(&runtime, "pod_status")?.to_lowercase(),
            };
            match pod.as_str() {
                "ready" if self.is_healthy().await => return Ok(()),
                "failed" | "unknown" | "crashloopbackoff" => {
                    return Err(ClientException::Value(pod));
                }
                _ => sleep(POLL).await,
            }
        }
        Err(ClientException::Timeout)
    }

    /// `GET /health` by urllib, without headers.
    async fn is_healthy(&self) -> bool {
        let limit = Duration::from_secs(5);
        let reply = HttpClient::anonymous();
        let reply = reply.try_get(&format!("{}/health", self.host), limit).await;
        reply.is_ok_and(|reply| reply.is_success())
    }

    /// At exit and after failures: errors are only logged.
    pub async fn cleanup(&self) {
        if self.runtime_id.is_none() || self.keep_alive {
            return;
        }
        let verb = if self.pause_on_close { "pause" } else { "stop" };
        let _ = self.change(verb, CLEANUP).await;
    }

    pub async fn pause(&self) -> Result<(), ClientException> {
        self.change("pause", CLEANUP).await?.success().map(drop)
    }

    /// Neither key nor URL are read again.
    pub async fn resume(&mut self) -> Result<(), ClientException> {
        self.change("resume", INIT).await?.success()?;
        self.wait_until_ready().await
    }

    async fn change(&self, verb: &str, limit: Duration) -> Result<Reply, ClientException> {
        let runtime_id = json!(self.runtime_id);
        self.api.within(limit).change(verb, &runtime_id).await
    }

    /// A call of the agent-server.
    pub async fn call(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<Reply, ClientException> {
        let url = format!("{}{path}", self.host);
        self.sandbox.send(method, &url, body, API).await
    }
}
