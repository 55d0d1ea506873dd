//! A client of the runtime API with one sandbox.

use std::time::Duration;

use http::StatusCode;
use serde_json::{Value, json};
use tests::http::{Answer, Json};

use crate::installation::{API_KEY, IMAGE, installed};

/// One sandbox as its client sees it.
pub(crate) struct Session {
    api: Json,
    base: String,
    pub(crate) id: String,
    pub(crate) url: String,
    pub(crate) key: String,
    sandbox: Json,
}

/// Body of a `/start` with the whole command that the V0 client sends.
pub(crate) fn start_body(session: &str) -> Value {
    let command = "/openhands/micromamba/bin/micromamba run -n openhands poetry run python -u -m \
        openhands.runtime.action_execution_server 60000 --working-dir /workspace \
        --plugins agent_skills jupyter vscode --username openhands --user-id 1000 --no-enable-browser";
    json!({
        "session_id": session,
        "image": IMAGE,
        "working_dir": "/openhands/code/",
        "environment": {"GREETING": "hello"},
        "command": command.split_whitespace().collect::<Vec<_>>(),
    })
}

impl Session {
    /// Starts a sandbox, or finds that of the session, and waits until it is ready.
    pub(crate) async fn start(session: &str) -> Self {
        let api = Json::with_api_key(API_KEY);
        let base = installed().await.api.clone();
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
        let url = format!("{}/runtime/{}", self.base, self.id);
        let answer = self.api.get(&url).await;
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
                Some(_) => tokio::time::sleep(Duration::from_millis(200)).await,
            }
        }
        panic!("never ready: {}", self.info().await);
    }

    /// Asks for `pause`, `resume` or `stop`.
    pub(crate) async fn ask(&self, verb: &str) -> Value {
        let url = format!("{}/{verb}", self.base);
        let body = json!({"runtime_id": self.id});
        let answer = self.api.post(&url, &body).await;
        assert_eq!(answer.status, 200, "{verb}: {}", answer.body);
        answer.body
    }

    /// Runs a command; the whole answer.
    pub(crate) async fn act(&self, command: &str) -> Answer {
        let args = json!({"command": command, "blocking": true});
        let action = json!({"action": {"action": "run", "args": args, "timeout": 60}});
        let url = format!("{}/execute_action", self.url);
        self.sandbox.post(&url, &action).await
    }

    /// Runs a command; what it printed.
    pub(crate) async fn run(&self, command: &str) -> String {
        let answer = self.act(command).await;
        assert_eq!(answer.status, 200, "{command}: {}", answer.body);
        answer.body["content"].as_str().unwrap().to_owned()
    }

    /// The status of a request to the sandbox's own server with this key.
    pub(crate) async fn status_with_key(&self, key: &str) -> StatusCode {
        let client = Json::with_header("X-Session-API-Key", key);
        let action = json!({"action": {"action": "run", "args": {"command": "id"}}});
        let url = format!("{}/execute_action", self.url);
        client.post(&url, &action).await.status
    }
}
