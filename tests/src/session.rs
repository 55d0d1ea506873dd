//! A client of the runtime API with one sandbox, as groups of tests share it.

use std::time::Duration;

use http::StatusCode;
use serde_json::{Value, json};

use crate::json_client::{JsonClient, JsonResponse};

/// Looks at a sandbox that is not ready yet.
const MAX_POLLS: u32 = 600;
/// Pause between two of them.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// One sandbox as its client sees it.
#[derive(Debug)]
pub struct Session {
    pub api: JsonClient,
    pub base: String,
    pub id: String,
    pub url: String,
    pub key: String,
    sandbox: JsonClient,
}

impl Session {
    /// Starts a sandbox by this body of a `/start`, or finds that of the session, and waits until it is
    /// ready.
    pub async fn start(base: &str, api_key: &str, body: &Value) -> Self {
        let api = JsonClient::with_api_key(api_key);
        let answer = api.post(&format!("{base}/start"), body).await;
        assert_eq!(answer.status, 201, "{}", answer.body);
        let text = |field: &str| answer.body[field].as_str().expect("a text").to_owned();
        let (id, url, key) = (text("runtime_id"), text("url"), text("session_api_key"));
        let session = Self {
            sandbox: JsonClient::with_header("X-Session-API-Key", &key),
            base: base.to_owned(),
            api,
            id,
            url,
            key,
        };
        session.ready().await;
        session
    }

    /// Returns the runtime info of the sandbox.
    pub async fn info(&self) -> Value {
        let url = format!("{}/runtime/{}", self.base, self.id);
        let answer = self.api.get(&url).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer.body
    }

    /// Polls as a client does, until the sandbox is ready.
    pub async fn ready(&self) {
        for _ in 0..MAX_POLLS {
            let info = self.info().await;
            match info["pod_status"].as_str() {
                Some("Ready") => return,
                Some("Failed" | "CrashLoopBackOff" | "Unknown") | None => panic!("failed: {info}"),
                Some(_) => tokio::time::sleep(POLL_INTERVAL).await,
            }
        }
        panic!("never ready: {}", self.info().await);
    }

    /// Asks for `pause`, `resume` or `stop`.
    pub async fn change_state(&self, verb: &str) -> Value {
        let url = format!("{}/{verb}", self.base);
        let body = json!({"runtime_id": self.id});
        let answer = self.api.post(&url, &body).await;
        assert_eq!(answer.status, 200, "{verb}: {}", answer.body);
        answer.body
    }

    /// Runs a command; the whole answer.
    pub async fn act(&self, command: &str) -> JsonResponse {
        let args = json!({"command": command, "blocking": true});
        let action = json!({"action": {"action": "run", "args": args, "timeout": 60}});
        let url = format!("{}/execute_action", self.url);
        self.sandbox.post(&url, &action).await
    }

    /// Runs a command; what it printed.
    pub async fn run(&self, command: &str) -> String {
        let answer = self.act(command).await;
        assert_eq!(answer.status, 200, "{command}: {}", answer.body);
        let content = answer.body["content"].as_str();
        content.expect("a text").to_owned()
    }

    /// The status of a request to the sandbox's own server with this key.
    pub async fn status_with_key(&self, key: &str) -> StatusCode {
        let client = JsonClient::with_header("X-Session-API-Key", key);
        let action = json!({"action": {"action": "run", "args": {"command": "id"}}});
        let url = format!("{}/execute_action", self.url);
        client.post(&url, &action).await.status
    }
}
