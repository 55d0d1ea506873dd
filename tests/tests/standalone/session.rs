//! A client of the runtime API with one sandbox.

use std::time::Duration;

use serde_json::{Value, json};
use tests::http::Json;
use tests::standalone::Standalone;

/// One sandbox as its client sees it.
pub(crate) struct Session {
    pub(crate) api: Json,
    pub(crate) base: String,
    pub(crate) id: String,
    pub(crate) url: String,
    pub(crate) key: String,
    sandbox: Json,
}

/// Body of a `/start` as the V0 client sends it.
pub(crate) fn start_body(session: &str) -> Value {
    json!({
        "session_id": session,
        "image": "debian:12",
        "working_dir": "/workspace",
        "environment": {"GREETING": "hello"},
        "command": ["python", "-u", "-m", "openhands.runtime.action_execution_server", "60000",
            "--working-dir", "/workspace", "--username", "openhands", "--user-id", "1000",
            "--no-enable-browser"],
    })
}

impl Session {
    /// Starts a sandbox and waits until it is ready.
    pub(crate) async fn start(standalone: &Standalone, session: &str) -> Self {
        let api = Json::with_api_key(standalone.key());
        let base = standalone.api().to_owned();
        let answer = api
            .post(&format!("{base}/start"), &start_body(session))
            .await;
        assert_eq!(answer.status, 201, "{}", answer.body);
        let text = |field: &str| answer.body[field].as_str().unwrap().to_owned();
        let (id, url, key) = (text("runtime_id"), text("url"), text("session_api_key"));
        let sandbox = Json::with_header("X-Session-API-Key", &key);
        let session = Self {
            api,
            base,
            id,
            url,
            key,
            sandbox,
        };
        session.ready().await;
        session
    }

    /// What the API says of the sandbox.
    pub(crate) async fn info(&self) -> Value {
        let answer = self
            .api
            .get(&format!("{}/runtime/{}", self.base, self.id))
            .await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer.body
    }

    /// Polls as a client does, until the sandbox is ready.
    pub(crate) async fn ready(&self) {
        for _ in 0..600 {
            let info = self.info().await;
            match info["pod_status"].as_str() {
                Some("Ready") => return,
                Some("Failed" | "CrashLoopBackOff" | "Unknown") | None => panic!("failed: {info}"),
                Some(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
        panic!("never ready: {}", self.info().await);
    }

    /// Runs a command; what it printed.
    pub(crate) async fn run(&self, command: &str) -> String {
        let action =
            json!({"action": {"action": "run", "args": {"command": command}, "timeout": 30}});
        let answer = self
            .sandbox
            .post(&format!("{}/execute_action", self.url), &action)
            .await;
        assert_eq!(answer.status, 200, "{command}: {}", answer.body);
        answer.body["content"].as_str().unwrap().to_owned()
    }
}
