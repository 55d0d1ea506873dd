//! `sandbox-operator check`: checks an installation from the view of a client. `helm test` runs it.

use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

const POLL_INTERVAL: Duration = Duration::from_millis(500);

const REQUEST_TIMEOUT: Duration = Duration::from_secs(15);
const MAX_RESPONSE_BYTES: usize = 1 << 20;

#[derive(Debug, Clone, clap::Args)]
pub(super) struct CheckArgs {
    /// URL of the gateway, plain HTTP.
    #[arg(long, env = "GATEWAY_URL")]
    gateway_url: String,
    /// API key. Absent: only the health of the gateway is checked.
    #[arg(long, env = "SANDBOX_API_KEY", hide_env_values = true)]
    api_key: Option<SecretString>,
    /// Image of a sandbox to start, call and stop; it needs a shell. Absent: no sandbox is started.
    #[arg(long, env = "CHECK_IMAGE")]
    image: Option<String>,
    /// Timeout in seconds.
    #[arg(long, default_value_t = 120)]
    timeout: u64,
}

impl CheckArgs {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let key = self.api_key.as_ref().map(|k| k.expose_secret().to_owned());
        let key = key.filter(|key| !key.is_empty());
        let gateway = GatewayClient::new(&self.gateway_url, key.clone());
        let limit = Duration::from_secs(self.timeout);
        let checks = async {
            healthy(&gateway).await;
            println!("the gateway is healthy");
            if key.is_none() {
                return Ok(());
            }
            let list = gateway.get("/list").await?.ok()?;
            println!("the API key works; {} sandboxes", list["total"]);
            match self.image.as_deref().filter(|image| !image.is_empty()) {
                Some(image) => check_sandbox_lifecycle(&gateway, image).await,
                None => Ok(()),
            }
        };
        match timeout(limit, checks).await {
            Ok(result) => result,
            Err(_) => anyhow::bail!("timed out after {} s", self.timeout),
        }
    }
}

async fn healthy(gateway: &GatewayClient) {
    loop {
        match gateway.get("/health").await {
            Ok(answer) if answer.status == StatusCode::OK => return,
            Ok(answer) => eprintln!("not healthy: {}", answer.body),
            Err(error) => eprintln!("no answer: {error:#}"),
        }
        sleep(POLL_INTERVAL).await;
    }
}

/// Starts, calls and stops one sandbox.
async fn check_sandbox_lifecycle(gateway: &GatewayClient, image: &str) -> anyhow::Result<()> {
    let name = format!("check-{}", jiff::Timestamp::now().as_millisecond());
    let start = json!({
        "session_id": name, "image": image, "working_dir": "/workspace",
        "command": ["python", "-m", "openhands.runtime.action_execution_server", "60000",
            "--working-dir", "/workspace", "--no-enable-browser"],
    });
    let started = gateway.post("/start", &start).await?.ok()?;
    let id = started["runtime_id"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    anyhow::ensure!(!id.is_empty(), "the answer has no runtime_id: {started}");
    let used = check_action(gateway, &id).await;
    // Stop it also after a failure.
    let stopped = gateway.post("/stop", &json!({"runtime_id": id})).await;
    used?;
    stopped?.ok()?;
    println!("a sandbox of {image} was started, called and stopped");
    Ok(())
}

async fn check_action(gateway: &GatewayClient, id: &str) -> anyhow::Result<()> {
    loop {
        let info = gateway.get(&format!("/runtime/{id}")).await?.ok()?;
        match info["pod_status"].as_str() {
            Some("Ready") => break,
            Some("Failed" | "CrashLoopBackOff" | "Unknown") => {
                anyhow::bail!("the sandbox failed: {}", redacted(&info))
            }
            _ => sleep(POLL_INTERVAL).await,
        }
    }
    let alive = gateway.get(&format!("/{id}/runtime/alive")).await?;
    alive.ok().map(|_| ())
}

/// Reduces a response to printable fields: the session key stays out of logs.
fn redacted(info: &Value) -> Value {
    json!({"pod_status": info["pod_status"], "detail": info["status_detail"]})
}

/// Minimal client of the runtime API.
struct GatewayClient {
    client: Client<HttpConnector, Full<Bytes>>,
    url: String,
    key: Option<String>,
}

/// Response. A body that is not JSON becomes null.
#[derive(Debug)]
struct ApiResponse {
    path: String,
    status: StatusCode,
    body: Value,
}

impl GatewayClient {
    fn new(url: &str, key: Option<String>) -> Self {
        Self {
            client: Client::builder(TokioExecutor::new()).build_http(),
            url: url.trim_end_matches('/').to_owned(),
            key,
        }
    }

    async fn get(&self, path: &str) -> anyhow::Result<ApiResponse> {
        self.send(Method::GET, path, Bytes::new()).await
    }

    async fn post(&self, path: &str, body: &Value) -> anyhow::Result<ApiResponse> {
        self.send(Method::POST, path, Bytes::from(body.to_string()))
            .await
    }

    async fn send(&self, method: Method, path: &str, body: Bytes) -> anyhow::Result<ApiResponse> {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.url))
            .header("Content-Type", "application/json");
        if let Some(key) = &self.key {
            request = request.header("X-API-Key", key);
        }
        let response = self.client.request(request.body(Full::new(body))?);
        let response = timeout(REQUEST_TIMEOUT, response)
            .await
            .context(self.url.clone())??;
        let status = response.status();
        let body = Limited::new(response.into_body(), MAX_RESPONSE_BYTES).collect();
        let body = timeout(REQUEST_TIMEOUT, body).await?;
        let body = body.map_err(|error| anyhow::anyhow!("{path}: {error}"))?;
        Ok(ApiResponse {
            path: path.to_owned(),
            status,
            body: serde_json::from_slice(&body.to_bytes()).unwrap_or_default(),
        })
    }
}

impl ApiResponse {
    /// Returns the body of a successful response.
    fn ok(self) -> anyhow::Result<Value> {
        anyhow::ensure!(
            self.status.is_success(),
            "{} answers {}: {}",
            self.path,
            self.status,
            self.body["detail"]
        );
        Ok(self.body)
    }
}
