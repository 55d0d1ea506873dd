//! A standalone for client replays: sandbox URLs below `localhost` without a path, and an image with
//! the double of an agent-server.

use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tests::binaries::is_root_or_skips;
use tests::clients::{HttpClient, POLL, V0, V0Config};
use tests::fake_agent_server;
use tests::standalone::Standalone;

/// Longer than any call takes, shorter than any client waits.
pub(crate) const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// A running standalone and its state.
pub(crate) struct Fixture {
    pub(crate) standalone: Standalone,
    pub(crate) state: TempDir,
}

impl Fixture {
    /// `None` where standalone cannot run.
    pub(crate) fn set(what: &str) -> Option<Self> {
        Self::set_with(what, &["--url-form", "nested"])
    }

    pub(crate) fn set_with(what: &str, args: &[&str]) -> Option<Self> {
        if !is_root_or_skips(what) {
            return None;
        }
        let state = tempfile::tempdir().unwrap();
        let image = fake_agent_server::image(state.path());
        let args = [args, &[image.as_str()]].concat();
        let standalone = Standalone::start(state.path(), &args);
        Some(Self { standalone, state })
    }

    pub(crate) fn api(&self) -> &str {
        self.standalone.api()
    }

    pub(crate) fn key(&self) -> &str {
        self.standalone.key()
    }

    /// A client of the runtime API.
    pub(crate) fn wire(&self) -> HttpClient {
        HttpClient::new(self.key())
    }

    /// A V0 client of this session.
    pub(crate) fn v0(&self, sid: &str) -> V0Config {
        V0Config::new(self.api(), self.key(), sid)
    }

    /// A V0 client that has connected.
    pub(crate) async fn connected(&self, sid: &str) -> V0 {
        let mut client = V0::new(self.v0(sid));
        client.connect().await.unwrap();
        client
    }

    /// Returns the runtime info of a session.
    pub(crate) async fn session(&self, sid: &str) -> Value {
        let url = format!("{}/sessions/{sid}", self.api());
        self.wire()
            .get(&url, CALL_TIMEOUT)
            .await
            .unwrap()
            .json()
            .unwrap()
    }

    /// `/start` with the double, and any other fields.
    pub(crate) async fn start(&self, sid: &str, more: &Value) -> (u16, Value) {
        let mut body = json!({
            "session_id": sid, "image": fake_agent_server::IMAGE, "working_dir": "/workspace",
            "command": ["/usr/local/bin/openhands-agent-server", "--port", "60000"],
        });
        for (field, value) in more.as_object().unwrap() {
            body[field] = value.clone();
        }
        self.post("start", &body).await
    }

    /// `POST` of a verb; status and body.
    pub(crate) async fn post(&self, verb: &str, body: &Value) -> (u16, Value) {
        let url = format!("{}/{verb}", self.api());
        let reply = self.wire().post(&url, body, CALL_TIMEOUT).await.unwrap();
        (reply.status, reply.json().unwrap())
    }

    /// Polls a session until it is as wanted.
    pub(crate) async fn until(&self, sid: &str, done: impl Fn(&Value) -> bool) -> Value {
        for _ in 0..1800 {
            let info = self.session(sid).await;
            if done(&info) {
                return info;
            }
            tokio::time::sleep(POLL).await;
        }
        panic!("it does not come to that: {}", self.session(sid).await);
    }

    /// Polls a session until it is ready.
    pub(crate) async fn ready(&self, sid: &str) -> Value {
        self.until(sid, |info| info["pod_status"] == "Ready").await
    }

    /// Changes the spec of a sandbox.
    pub(crate) fn patch(&self, id: &str, spec: &Value) {
        let patch = json!({"spec": spec}).to_string();
        let args = ["patch", "sbx", id, "--type", "merge", "-p", &patch];
        self.standalone.run("kubectl", &args);
    }
}

/// A field of an answer.
pub(crate) fn text(info: &Value, field: &str) -> String {
    info[field].as_str().unwrap().to_owned()
}
