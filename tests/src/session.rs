//! A client of the runtime API with one sandbox, as groups of tests share it.

use std::time::Duration;

use serde_json::{Value, json};

use crate::clients::http_client::{HttpClient, JsonReply, text};

/// Looks at a sandbox that is not ready yet.
const MAX_POLLS: u32 = 600;
/// Pause between two of them.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// One sandbox as its client sees it.
#[derive(Debug, Clone)]
pub struct Session {
    pub api: HttpClient,
    pub sandbox: HttpClient,
    pub base: String,
    pub id: String,
    pub url: String,
    pub key: String,
}

impl Session {
    /// Starts a sandbox by this body of a `/start`, or finds that of the session, and waits until it is
    /// ready.
    pub async fn start(base: &str, api_key: &str, body: &Value) -> Self {
        let api = HttpClient::unpooled(&[("X-API-Key", api_key)]);
        let started = api.post(&format!("{base}/start"), body).await.success();
        let key = text(&started, "session_api_key");
        let session = Self {
            sandbox: HttpClient::unpooled(&[("X-Session-API-Key", &key)]),
            base: base.to_owned(),
            api,
            id: text(&started, "runtime_id"),
            url: text(&started, "url"),
            key,
        };
        session.ready().await;
        session
    }

    /// Returns the runtime info of the sandbox.
    pub async fn info(&self) -> Value {
        let url = format!("{}/runtime/{}", self.base, self.id);
        self.api.get(&url).await.success()
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
        self.api.post(&url, &body).await.success()
    }

    /// Carries out an action; the whole answer.
    pub async fn act(&self, action: &str, args: Value) -> JsonReply {
        let action = json!({"action": {"action": action, "args": args, "timeout": 300}});
        let url = format!("{}/execute_action", self.url);
        self.sandbox.post(&url, &action).await
    }

    /// Runs a command; the whole answer.
    pub async fn try_run(&self, command: &str) -> JsonReply {
        let args = json!({"command": command, "blocking": true});
        self.act("run", args).await
    }

    /// Runs a command; what it printed.
    pub async fn run(&self, command: &str) -> String {
        text(&self.try_run(command).await.success(), "content")
    }

    /// The status of a request to the sandbox's own server with this key.
    pub async fn status_with_key(&self, key: &str) -> u16 {
        let client = HttpClient::of_session(key);
        let action = json!({"action": {"action": "run", "args": {"command": "id"}}});
        let url = format!("{}/execute_action", self.url);
        client.post(&url, &action).await.status
    }

    /// Fails unless the session's sandbox is this one, with the same URL and key.
    pub fn assert_same(&self, other: &Self) {
        let identity = |of: &Self| (of.id.clone(), of.url.clone(), of.key.clone());
        assert_eq!(identity(self), identity(other));
    }
}
