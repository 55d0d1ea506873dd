//! `SaasNestedConversationManager`: a whole server in the sandbox, reached by a URL pattern and not by
//! the `url` of the API (`docs/specs/runtime-api.md`, section 3.6).

use std::time::Duration;

use serde_json::{Value, json};

use super::{V0, V0Config};
use crate::clients::exception::{index, text};
use crate::clients::{ClientException, HttpClient, Reply, RuntimeApi};

/// Its own HTTP client.
const CALL_TIMEOUT: Duration = Duration::from_secs(15);

/// `RUNTIME_ROUTING_MODE`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Routing {
    Subdomain,
    Path,
}

/// The manager, which makes a V0 client per conversation.
#[derive(Debug)]
pub struct NestedManager {
    pub api: RuntimeApi,
    pub api_key: String,
    /// `RUNTIME_URL_PATTERN`.
    pub pattern: String,
    pub routing: Routing,
}

impl NestedManager {
    pub fn new(api_url: &str, api_key: &str, pattern: &str, routing: Routing) -> Self {
        Self {
            api: RuntimeApi::new(api_url, api_key, CALL_TIMEOUT),
            api_key: api_key.into(),
            pattern: pattern.into(),
            routing,
        }
    }

    /// Starts the runtime of a conversation and creates the conversation in it.
    pub async fn start(
        &self,
        sid: &str,
        image: &str,
        command: &[&str],
    ) -> Result<V0, ClientException> {
        let mut config = V0Config::new(&self.api.url, &self.api_key, sid);
        config.image = Some(image.into());
        config.command = command.iter().map(|w| (*w).to_owned()).collect();
        config.sets_environment_up = false;
        config.keep_runtime_alive = true;
        config.environment = environment().as_object().cloned().unwrap_or_default();
        let mut runtime = V0::new(config);
        runtime.connect().await?;
        let key = runtime.session_key.clone().unwrap_or_default();
        let url = self.conversation(runtime.id(), sid);
        for step in ["settings", "secrets", "conversations"] {
            let body = json!({"step": step, "conversation_id": sid});
            let nested = HttpClient::of_session(&key);
            let created = nested.try_post(&url, &body, CALL_TIMEOUT).await;
            created?.success()?;
        }
        Ok(runtime)
    }

    /// The nested server's URL of a conversation.
    pub fn conversation(&self, runtime_id: &str, sid: &str) -> String {
        let base = self.pattern.replace("{runtime_id}", runtime_id);
        match self.routing {
            Routing::Subdomain => format!("{base}/api/conversations/{sid}"),
            Routing::Path => format!("{base}/runtime/api/conversations/{sid}"),
        }
    }

    /// Ids of the conversations that run. The status of the answer is not looked at.
    pub async fn running(&self) -> Result<Vec<String>, ClientException> {
        let list = self.api.get("list").await?.json()?;
        let runtimes = index(&list, "runtimes")?.as_array();
        let runtimes = runtimes.ok_or_else(|| ClientException::Type("runtimes".into()))?;
        let running = runtimes.iter().filter(|r| r["status"] == "running");
        running.map(|r| text(r, "session_id")).collect()
    }

    /// The runtime of a conversation; any other answer than 2xx means that there is none.
    pub async fn runtime(&self, sid: &str) -> Result<Option<Value>, ClientException> {
        let reply = self.api.session(sid).await?;
        reply.is_success().then(|| reply.json()).transpose()
    }

    /// The status of a conversation.
    pub async fn status(&self, sid: &str) -> Result<&'static str, ClientException> {
        let Some(runtime) = self.runtime(sid).await? else {
            return Ok("STOPPED");
        };
        Ok(match text(&runtime, "status")?.as_str() {
            "running" => "RUNNING",
            "starting" => "STARTING",
            "stopped" => "ARCHIVED",
            "error" => "ERROR",
            _ => "STOPPED",
        })
    }

    /// `LegacyConversationManager`: whether the runtime has a nested server.
    pub async fn is_nested(&self, sid: &str) -> Result<bool, ClientException> {
        let runtime = self.runtime(sid).await?.ok_or(ClientException::NotFound)?;
        match index(&runtime, "command")? {
            Value::Array(words) => Ok(words.iter().any(|w| w == "openhands.server")),
            Value::String(line) => Ok(line.contains("openhands.server")),
            other => Err(ClientException::Type(format!("{other} is no container"))),
        }
    }

    /// Pauses the runtime of a conversation. A failure would only be logged.
    pub async fn close(&self, sid: &str) -> Result<Reply, ClientException> {
        let runtime = self.runtime(sid).await?.ok_or(ClientException::NotFound)?;
        let id = text(&runtime, "runtime_id")?.into();
        self.api.change("pause", &id).await
    }
}

fn environment() -> Value {
    json!({
        "CONVERSATION_MANAGER_CLASS": "openhands.server.StandaloneConversationManager",
        "LOG_JSON": "1", "SERVE_FRONTEND": "0", "RUNTIME": "local", "USER": "openhands",
        "PERMITTED_CORS_ORIGINS": "https://app.example.com", "port": "60000",
        "VSCODE_PORT": "60001", "WORK_PORT_1": "12000", "WORK_PORT_2": "12001",
        "ALLOW_SET_CONVERSATION_ID": "1", "FILE_STORE_PATH": "/workspace/.openhands/file_store",
        "WORKSPACE_BASE": "/workspace/project", "SANDBOX_CLOSE_DELAY": "0",
        "SKIP_DEPENDENCY_CHECK": "1", "INITIAL_NUM_WARM_SERVERS": "1", "ENABLE_V1": "0",
    })
}
