//! A standalone for client replays: sandbox URLs below `localhost` without a path, and an image with
//! the fake agent-server.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tests::binaries::is_root_or_skips;
use tests::clients::{HttpClient, POLL, V0, V0Config};
use tests::fake_agent_server;
use tests::session::Session;
use tests::standalone::Standalone;

pub(crate) use tests::clients::text;

/// Longer than any call takes, shorter than any client waits.
pub(crate) const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// A running standalone and its state.
pub(crate) struct Fixture {
    pub(crate) standalone: Standalone,
    pub(crate) state: TempDir,
}

/// `None` where standalone cannot run.
pub(crate) fn fixture() -> Option<Fixture> {
    fixture_with(&["--url-form", "nested"])
}

/// As [`fixture`], with the flags that users have by default.
pub(crate) fn standalone() -> Option<Fixture> {
    fixture_with(&[])
}

pub(crate) fn fixture_with(args: &[&str]) -> Option<Fixture> {
    if !is_root_or_skips() {
        return None;
    }
    let state = tempfile::tempdir().unwrap();
    let standalone = start(state.path(), args);
    Some(Fixture { standalone, state })
}

/// Starts standalone, for the first time or again, with the image of the fake agent-server.
pub(crate) fn start(state: &Path, args: &[&str]) -> Standalone {
    let image = fake_agent_server::image(state);
    Standalone::start(state, &[args, &[image.as_str()]].concat())
}

/// Body of a `/start` as the V0 client sends it.
pub(crate) fn start_body(session: &str) -> Value {
    json!({
        "session_id": session, "image": "debian:12", "working_dir": "/workspace",
        "environment": {"GREETING": "hello"},
        "command": ["python", "-u", "-m", "openhands.runtime.action_execution_server", "60000",
            "--working-dir", "/workspace", "--username", "openhands", "--user-id", "1000",
            "--no-enable-browser"],
    })
}

/// A V0 client that has connected.
pub(crate) async fn connected(config: V0Config) -> V0 {
    let mut client = V0::new(config);
    client.connect().await.unwrap();
    client
}

impl Fixture {
    pub(crate) fn api(&self) -> &str {
        self.standalone.api()
    }

    pub(crate) fn key(&self) -> &str {
        self.standalone.key()
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.api())
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
        connected(self.v0(sid)).await
    }

    /// The sandbox of a session with the native executor, which is ready.
    pub(crate) async fn run(&self, session: &str) -> Session {
        Session::start(self.api(), self.key(), &start_body(session)).await
    }

    /// `GET` of the API within the time that clients wait, which must succeed.
    pub(crate) async fn get(&self, path: &str) -> Value {
        let reply = self.wire().try_get(&self.url(path), CALL_TIMEOUT).await;
        reply.unwrap().success().unwrap()
    }

    /// Returns the runtime info of a session.
    pub(crate) async fn session(&self, sid: &str) -> Value {
        self.get(&format!("/sessions/{sid}")).await
    }

    /// `/start` with the fake agent-server, and any other fields.
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

    /// As [`Fixture::start`], and waits until it is ready: its info, and a client of it.
    pub(crate) async fn started(&self, sid: &str) -> (Value, HttpClient) {
        self.start(sid, &json!({})).await;
        let info = self.ready(sid).await;
        let client = HttpClient::of_session(&text(&info, "session_api_key"));
        (info, client)
    }

    /// `POST` of a verb; status and body.
    pub(crate) async fn post(&self, verb: &str, body: &Value) -> (u16, Value) {
        let url = format!("{}/{verb}", self.api());
        let reply = self.wire().try_post(&url, body, CALL_TIMEOUT).await;
        let reply = reply.unwrap();
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

    /// Runs kubectl with these words; what it prints.
    pub(crate) fn kubectl(&self, words: &str) -> String {
        let words: Vec<_> = words.split(' ').collect();
        self.standalone.run("kubectl", &words)
    }

    /// Changes the spec of a sandbox.
    pub(crate) fn patch(&self, id: &str, spec: &Value) {
        let patch = json!({"spec": spec});
        self.kubectl(&format!("patch sbx {id} --type merge -p {patch}"));
    }

    /// Applies a Sandbox.
    pub(crate) fn apply(&self, name: &str, spec: &Value) {
        let manifest = json!({
            "apiVersion": "openhands.dev/v1alpha1", "kind": "Sandbox",
            "metadata": {"name": name}, "spec": spec,
        });
        let file = self.state.path().join(format!("{name}.json"));
        std::fs::write(&file, manifest.to_string()).unwrap();
        self.kubectl(&format!("apply -f {}", file.display()));
    }
}
