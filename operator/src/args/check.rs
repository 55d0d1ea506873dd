//! `sandbox-operator check`: whether an installation does its work, from where a client is. It is what
//! `helm test` runs.

mod http;

use std::time::Duration;

use ::http::StatusCode;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use self::http::{Answer, Gateway};

/// Pause between two looks.
const PAUSE: Duration = Duration::from_millis(500);

#[derive(Debug, Clone, clap::Args)]
pub(super) struct CheckArgs {
    /// Where the gateway is, with plain HTTP.
    #[arg(long, env = "GATEWAY_URL")]
    gateway_url: String,
    /// API key to check with. Absent: nothing that needs one is checked.
    #[arg(long, env = "SANDBOX_API_KEY", hide_env_values = true)]
    api_key: Option<SecretString>,
    /// Image of a sandbox that is started, asked and stopped; it needs bash. Absent: none is.
    #[arg(long, env = "CHECK_IMAGE")]
    image: Option<String>,
    /// Seconds until it is given up.
    #[arg(long, default_value_t = 120)]
    timeout: u64,
}

impl CheckArgs {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let key = self.api_key.as_ref().map(|k| k.expose_secret().to_owned());
        let key = key.filter(|key| !key.is_empty());
        let gateway = Gateway::new(&self.gateway_url, key.clone());
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
                Some(image) => session(&gateway, image).await,
                None => Ok(()),
            }
        };
        match timeout(limit, checks).await {
            Ok(done) => done,
            Err(_) => anyhow::bail!("not done within {} s", self.timeout),
        }
    }
}

async fn healthy(gateway: &Gateway) {
    loop {
        match gateway.get("/health").await {
            Ok(answer) if answer.status == StatusCode::OK => return,
            Ok(answer) => eprintln!("not healthy: {}", answer.body),
            Err(error) => eprintln!("no answer: {error:#}"),
        }
        sleep(PAUSE).await;
    }
}

/// The life of one sandbox.
async fn session(gateway: &Gateway, image: &str) -> anyhow::Result<()> {
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
    let used = used(gateway, &id).await;
    // Whatever came of it, nothing is left.
    let stopped = gateway.post("/stop", &json!({"runtime_id": id})).await;
    used?;
    stopped?.ok()?;
    println!("a sandbox of {image} was started, asked and stopped");
    Ok(())
}

async fn used(gateway: &Gateway, id: &str) -> anyhow::Result<()> {
    loop {
        let info = gateway.get(&format!("/runtime/{id}")).await?.ok()?;
        match info["pod_status"].as_str() {
            Some("Ready") => break,
            Some("Failed" | "CrashLoopBackOff" | "Unknown") => {
                anyhow::bail!("the sandbox failed: {}", public(&info))
            }
            _ => sleep(PAUSE).await,
        }
    }
    let alive = gateway.get(&format!("/{id}/runtime/alive")).await?;
    alive.ok().map(|_| ())
}

/// What may be printed of a sandbox: its session key stays out of logs.
fn public(info: &Value) -> Value {
    json!({"pod_status": info["pod_status"], "detail": info["status_detail"]})
}

impl Answer {
    /// The body of a success.
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
