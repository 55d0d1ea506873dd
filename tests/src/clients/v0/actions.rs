//! Calls of the sandbox by V0 and how it recovers from what goes wrong (`docs/specs/runtime-api.md`, sections 3.3 and 3.4).

use std::time::Duration;

use http::Method;
use hyper::body::Bytes;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::V0;
use crate::clients::exception::text;
use crate::clients::{ClientException, POLL, Reply};

impl V0 {
    /// Runs a command; what it printed.
    pub async fn run(&mut self, command: &str) -> Result<String, ClientException> {
        let seconds = self.config.action_timeout.as_secs();
        let args = json!({"command": command});
        let action = json!({"action": "run", "args": args, "timeout": seconds});
        text(&self.act(&action).await?, "content")
    }

    /// `send_action_for_execution`: one at a time, answered when the action is over.
    pub async fn act(&mut self, action: &Value) -> Result<Value, ClientException> {
        if self.action_in_progress {
            return Err(ClientException::Hangs);
        }
        self.action_in_progress = true;
        let body = json!({"action": action});
        let limit = self.config.action_timeout + Duration::from_secs(5);
        let path = "/execute_action";
        let answer = self.sandbox(Method::POST, path, Some(&body), limit).await;
        self.action_in_progress = false;
        answer?.json()
    }

    /// Environment and git identity, by actions.
    pub(super) async fn set_environment_up(&mut self) -> Result<(), ClientException> {
        if self.config.attach_to_existing || !self.config.sets_environment_up {
            return Ok(());
        }
        for command in ["export SET_UP=1", "true"] {
            let args = json!({"command": command});
            let action = json!({"action": "run", "args": args, "timeout": 60});
            let observation = Box::pin(self.act(&action)).await?;
            let code = &observation["extras"]["metadata"]["exit_code"];
            if *code != 0 {
                let failed = format!("set-up failed: {observation}");
                return Err(ClientException::Value(failed));
            }
        }
        Ok(())
    }

    /// A call through the action-server wrapper.
    pub async fn sandbox(
        &mut self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        limit: Duration,
    ) -> Result<Reply, ClientException> {
        let url = format!("{}{path}", self.url);
        let first = self.insist(method.clone(), &url, body, limit).await;
        match first {
            Err(ClientException::Http { status: 503, .. }) if self.config.keep_runtime_alive => {
                Box::pin(self.resume()).await.map_err(|error| match error {
                    ClientException::Hangs => ClientException::Hangs,
                    _ => ClientException::Disconnected,
                })?;
                self.request(method, &url, body, limit).await
            }
            Err(ClientException::Http {
                status: 404 | 502..=504,
                ..
            }) => Err(ClientException::Disconnected),
            other => other,
        }
    }

    /// Network errors are tried three times.
    async fn insist(
        &self,
        method: Method,
        url: &str,
        body: Option<&Value>,
        limit: Duration,
    ) -> Result<Reply, ClientException> {
        for _ in 0..3 {
            match self.request(method.clone(), url, body, limit).await {
                Err(ClientException::Connection) => sleep(POLL).await,
                other => return other,
            }
        }
        Err(ClientException::Retry)
    }

    /// `POST /upload_file`, one file as multipart.
    pub async fn upload(
        &self,
        name: &str,
        content: &[u8],
        directory: &str,
    ) -> Result<(), ClientException> {
        let boundary = "a-boundary-that-is-in-no-file";
        let head = format!(
            "--{boundary}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{name}\"\r\n\
             Content-Type: application/octet-stream\r\n\r\n"
        );
        let tail = format!("\r\n--{boundary}--\r\n");
        let body = [head.as_bytes(), content, tail.as_bytes()].concat();
        let mut wire = self.wire.clone();
        let kind = format!("multipart/form-data; boundary={boundary}");
        wire.headers.push(("Content-Type".into(), kind));
        let query = format!("destination={directory}&recursive=false");
        let url = format!("{}/upload_file?{query}", self.url);
        let limit = Duration::from_mins(5);
        let reply = wire.send(Method::POST, &url, body.into(), limit).await;
        reply?.success().map(drop)
    }

    /// `GET /download_files`: a zip of the path.
    pub async fn download(&self, path: &str) -> Result<Bytes, ClientException> {
        let url = format!("{}/download_files?path={path}", self.url);
        let reply = self.wire.try_get(&url, Duration::from_mins(5)).await?;
        if reply.is_success() {
            return Ok(reply.body);
        }
        Err(reply.error())
    }
}
