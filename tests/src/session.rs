//! A sandbox by the client library, as groups of tests share it. No call is repeated: a test sees every
//! failure.

use std::net::ToSocketAddrs as _;
use std::time::Duration;

use client::{Client, RuntimeInfo, Sandbox, Settings, StartRequest};
use http::Uri;
use serde_json::{Value, json};

use crate::clients::http_client::HttpClient;

/// Time for a start or a resume.
const READY_TIMEOUT: Duration = Duration::from_mins(2);

/// One sandbox as its client sees it.
#[derive(Debug, Clone)]
pub struct Session {
    pub client: Client,
    pub sandbox: Sandbox,
    /// Requests with the session key of which a test looks at the whole answer.
    pub wire: HttpClient,
    pub base: String,
    pub id: String,
    pub url: String,
    pub key: String,
}

impl Session {
    /// Starts a sandbox by this body of a `/start`, or finds that of the session, and waits until it is
    /// ready.
    pub async fn start(base: &str, api_key: &str, body: &Value) -> Self {
        let client = client(base, api_key);
        let request: StartRequest = serde_json::from_value(body.clone()).expect("a body");
        let info = client.start(&request).await.expect("a sandbox");
        let session = Self::new(client, info);
        session.ready().await;
        session
    }

    pub fn new(client: Client, info: RuntimeInfo) -> Self {
        Self {
            wire: HttpClient::unpooled(&[("X-Session-API-Key", &info.session_api_key)]),
            base: client.url().to_owned(),
            id: info.runtime_id.clone(),
            url: info.url.clone(),
            key: info.session_api_key.clone(),
            sandbox: client.sandbox(info),
            client,
        }
    }

    /// Returns the runtime info of the sandbox.
    pub async fn info(&self) -> Value {
        let info = self.client.runtime(&self.id).await.expect("the sandbox");
        serde_json::to_value(info).expect("JSON")
    }

    /// Waits until the sandbox is ready.
    pub async fn ready(&self) {
        let info = self.client.runtime(&self.id).await.expect("the sandbox");
        let ready = self.client.wait_ready(info, &mut |_| ()).await;
        ready.expect("it is ready");
    }

    /// Asks for a pause.
    pub async fn pause(&self) {
        self.client.pause(&self.id).await.expect("a pause");
    }

    /// Asks for a resume.
    pub async fn resume(&self) {
        self.client.resume(&self.id).await.expect("a resume");
    }

    pub async fn stop(&self) {
        self.client.stop(&self.id).await.expect("an end");
    }

    /// Carries out an action that the client library has no call for, as one of the browser, or
    /// whose observation a test reads whole.
    pub async fn act(&self, action: &str, args: Value) -> Value {
        let action = json!({"action": {"action": action, "args": args, "timeout": 300}});
        let url = format!("{}/execute_action", self.url);
        self.wire.post(&url, &action).await.success()
    }

    /// Runs a command; what it printed.
    pub async fn run(&self, command: &str) -> String {
        self.sandbox.run(command).await.expect(command).content
    }

    /// Runs a cell in the Jupyter kernel; what it printed.
    pub async fn run_python(&self, code: &str) -> String {
        self.sandbox
            .run_python(code, None)
            .await
            .expect(code)
            .content
    }

    /// Writes a file.
    pub async fn write(&self, path: &str, content: &str) {
        self.sandbox.write(path, content).await.expect(path);
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

/// A client that repeats nothing, keeps no connection to a server that a test may restart, and reaches
/// sandboxes below the URL of the API: names of tests do not resolve.
pub fn client(base: &str, api_key: &str) -> Client {
    let mut settings = Settings::new(base, api_key).expect("settings");
    let uri: Uri = base.parse().expect("a URL");
    let address = (uri.host().expect("a host"), uri.port_u16().unwrap_or(80));
    settings.connect_to = address.to_socket_addrs().expect("an address").next();
    settings.ready_timeout = READY_TIMEOUT;
    settings.retry_timeout = Duration::ZERO;
    settings.recovery_timeout = Duration::ZERO;
    settings.resume_paused = false;
    settings.keep_connections = false;
    Client::new(settings).expect("a client")
}
