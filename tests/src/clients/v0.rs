//! `RemoteRuntime` of V0: connect, act, recover, close (`docs/specs/runtime-api.md`, sections 3.1 to 3.5).

mod actions;
mod build;
mod nested;
mod wait;

use std::time::Duration;

use http::Method;
use hyper::body::Bytes;
use serde_json::{Map, Value, json};
use tokio::time::sleep;

use super::exception::{index, text};
use super::{ClientException, HttpClient, POLL, Reply};

pub use build::BuildConfig;
pub use nested::{NestedManager, Routing};

/// The settings that matter, with the client's defaults.
#[derive(Debug, Clone)]
pub struct V0Config {
    pub api_url: String,
    pub api_key: String,
    pub sid: String,
    /// `runtime_container_image`; without one an image is built.
    pub image: Option<String>,
    pub build: BuildConfig,
    pub command: Vec<String>,
    pub environment: Map<String, Value>,
    pub resource_factor: f64,
    pub runtime_class: Option<String>,
    pub attach_to_existing: bool,
    pub keep_runtime_alive: bool,
    pub init_timeout: Duration,
    pub api_timeout: Duration,
    /// Timeout of an action; the call gets five seconds more.
    pub action_timeout: Duration,
    /// The nested manager sets nothing up in the sandbox.
    pub sets_environment_up: bool,
}

impl V0Config {
    pub fn new(api_url: &str, api_key: &str, sid: &str) -> Self {
        Self {
            api_url: api_url.into(),
            api_key: api_key.into(),
            sid: sid.into(),
            image: Some("debian:12".into()),
            build: BuildConfig::default(),
            command: v0_command("", "openhands"),
            environment: Map::new(),
            resource_factor: 1.0,
            runtime_class: None,
            attach_to_existing: false,
            keep_runtime_alive: false,
            init_timeout: Duration::from_mins(3),
            api_timeout: Duration::from_mins(1),
            action_timeout: Duration::from_mins(2),
            sets_environment_up: true,
        }
    }
}

/// The command that the V0 client sends, with these plugins, for this user.
pub fn v0_command(plugins: &str, username: &str) -> Vec<String> {
    let uid = if username == "root" { 0 } else { 1000 };
    let command = format!(
        "/openhands/micromamba/bin/micromamba run -n openhands poetry run python -u -m \
         openhands.runtime.action_execution_server 60000 --working-dir /workspace {plugins} \
         --username {username} --user-id {uid} --no-enable-browser"
    );
    command.split_whitespace().map(Into::into).collect()
}

/// One client object.
#[derive(Debug)]
pub struct V0 {
    pub config: V0Config,
    pub wire: HttpClient,
    pub runtime_id: Option<String>,
    pub url: String,
    pub work_hosts: Map<String, Value>,
    pub session_key: Option<String>,
    closed: bool,
    /// An action is under way and holds the semaphore.
    action_in_progress: bool,
}

impl V0 {
    pub fn new(config: V0Config) -> Self {
        Self {
            wire: HttpClient::new(&config.api_key),
            runtime_id: None,
            url: String::new(),
            work_hosts: Map::new(),
            session_key: None,
            closed: false,
            action_in_progress: false,
            config,
        }
    }

    /// `connect()`. What fails leads to `close()`, whose error wins.
    pub async fn connect(&mut self) -> Result<(), ClientException> {
        let connected = self.start_or_attach().await;
        if connected.is_err() {
            self.close().await?;
        }
        connected
    }

    async fn start_or_attach(&mut self) -> Result<(), ClientException> {
        if !self.find_existing().await? {
            if self.config.attach_to_existing {
                return Err(ClientException::NotFound);
            }
            self.start().await?;
        }
        self.wait_until_alive().await?;
        self.set_environment_up().await
    }

    /// Step 1 and 2: whether there is a runtime of this session that can be used.
    async fn find_existing(&mut self) -> Result<bool, ClientException> {
        let path = format!("sessions/{}", self.config.sid);
        let reply = match self.api(Method::GET, &path, None, 200).await {
            Err(ClientException::Http { status: 404, .. }) => return Ok(false),
            other => other?,
        };
        let runtime = reply.json()?;
        match runtime.get("status").and_then(Value::as_str) {
            Some("running") => self.remember(&runtime).map(|()| true),
            Some("paused") => {
                self.remember(&runtime)?;
                Ok(self.resume().await.is_ok())
            }
            _ => Ok(false),
        }
    }

    /// Step 4.
    async fn start(&mut self) -> Result<(), ClientException> {
        use ClientException::{Connection, Http, Timeout, Unavailable};
        let image = match self.config.image.clone() {
            Some(image) => image,
            None => self.build_image().await?,
        };
        let config = &self.config;
        let mut body = json!({
            "image": image, "command": config.command, "working_dir": "/openhands/code/",
            "environment": config.environment, "session_id": config.sid,
            "resource_factor": config.resource_factor,
        });
        if let Some(class) = &config.runtime_class {
            body["runtime_class"] = json!(class);
        }
        let started = self.api(Method::POST, "start", Some(&body), 201).await;
        let reply = started.map_err(|error| match error {
            Http { detail, .. } => Unavailable(detail.unwrap_or_default()),
            Timeout | Connection => Unavailable(String::new()),
            other => other,
        })?;
        self.remember(&reply.json()?)
    }

    fn remember(&mut self, runtime: &Value) -> Result<(), ClientException> {
        self.runtime_id = Some(text(runtime, "runtime_id")?);
        self.url = text(runtime, "url")?;
        let hosts = runtime.get("work_hosts").cloned().unwrap_or(json!({}));
        let no_items = || ClientException::Type(format!("{hosts} has no items"));
        self.work_hosts = hosts.as_object().cloned().ok_or_else(no_items)?;
        if runtime.get("session_api_key").is_some() {
            let key = text(runtime, "session_api_key")?;
            self.wire.headers.retain(|(n, _)| n != "X-Session-API-Key");
            let header = ("X-Session-API-Key".to_owned(), key.clone());
            self.wire.headers.push(header);
            self.session_key = Some(key);
        }
        Ok(())
    }

    /// `/resume`, the wait loop, and the set-up.
    async fn resume(&mut self) -> Result<(), ClientException> {
        self.change("resume").await?;
        // As the original, which calls itself through the wait loop.
        Box::pin(self.wait_until_alive()).await?;
        self.set_environment_up().await
    }

    /// `close()`, by the table of section 3.5.
    pub async fn close(&mut self) -> Result<(), ClientException> {
        if self.config.attach_to_existing || std::mem::replace(&mut self.closed, true) {
            return Ok(());
        }
        let keeps = self.config.keep_runtime_alive;
        self.change(if keeps { "pause" } else { "stop" }).await
    }

    async fn change(&mut self, verb: &str) -> Result<(), ClientException> {
        let body = json!({"runtime_id": self.runtime_id});
        let reply = self.api(Method::POST, verb, Some(&body), 200).await?;
        // No caller reads it, but it has to be JSON.
        reply.json().map(drop)
    }

    /// One call of the runtime API: `send_request`, with the exact code of old releases.
    async fn api(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        code: u16,
    ) -> Result<Reply, ClientException> {
        let url = format!("{}/{path}", self.config.api_url);
        let limit = self.config.api_timeout;
        let reply = self.request(method, &url, body, limit).await?;
        if reply.status != code {
            let wrong = format!("{} instead of {code}", reply.status);
            return Err(ClientException::Assertion(wrong));
        }
        Ok(reply)
    }

    /// `send_request`: 429 is tried three times, then raised as an exception that no caller catches.
    pub(super) async fn request(
        &self,
        method: Method,
        url: &str,
        body: Option<&Value>,
        limit: Duration,
    ) -> Result<Reply, ClientException> {
        for _ in 0..3 {
            let bytes = body.map_or_else(Bytes::new, |b| Bytes::from(b.to_string()));
            let reply = self.wire.send(method.clone(), url, bytes, limit).await?;
            match reply.status {
                200..300 => return Ok(reply),
                429 => sleep(POLL).await,
                _ => return Err(reply.error()),
            }
        }
        Err(ClientException::Retry)
    }

    /// The `runtime_id` that the API gave.
    pub fn id(&self) -> &str {
        self.runtime_id.as_deref().unwrap_or_default()
    }

    fn checked_id(runtime: &Value, wanted: &str) -> Result<(), ClientException> {
        let same = index(runtime, "runtime_id")? == wanted;
        let wrong = || ClientException::Assertion(format!("another runtime: {runtime}"));
        same.then_some(()).ok_or_else(wrong)
    }
}
