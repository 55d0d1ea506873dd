//! Deferred initialization of the agent-server (`docs/specs/supervisor.md`, section 10): it waits
//! until `POST /api/init` brings what its environment would have said.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use crds::contract::control::Init;
use crds::contract::port;
use crds::contract::prestart::Prestart;
use http::{Request, StatusCode, header};
use http_body_util::Full;
use ring::rand::{SecureRandom as _, SystemRandom};
use serde_json::{Map, Value, json};
use tokio::net::TcpStream;

use super::Variables;
use crate::supervise::loopback::{self, ExchangeError};

const PATH: &str = "/api/init";
const SECRET_HEADER: &str = "x-init-api-key";
const TIMEOUT: Duration = Duration::from_secs(30);
/// Variables of the agent-server by the field that replaces them.
const FIELDS: [(&str, &str); 5] = [
    ("OH_SECRET_KEY", "secret_key"),
    ("OH_CONVERSATIONS_PATH", "conversations_path"),
    ("OH_BASH_EVENTS_DIR", "bash_events_dir"),
    (
        "OH_CONVERSATION_WORKTREE_ROOT",
        "conversation_worktree_root",
    ),
    ("OH_WEB_URL", "web_url"),
];
/// Lists of variables, whose names end with an index and a suffix, by the field that replaces them.
const LISTS: [(&str, &str, &str); 3] = [
    ("OH_SESSION_API_KEYS_", "", "session_api_keys"),
    ("OH_ALLOW_CORS_ORIGINS_", "", "allow_cors_origins"),
    ("OH_WEBHOOKS_", "_BASE_URL", "webhooks"),
];

/// Variables that clients send with the value that the agent-server has without them.
const DEFAULTS: [(&str, &str); 1] = [("OH_ENABLE_VNC", "0")];
/// Variables with the prefix of the agent-server that it does not read.
const UNREAD: [&str; 1] = ["OH_RUNTIME_IDLE_TIMEOUT_SECONDS"];

#[derive(Debug, thiserror::Error)]
pub(super) enum AgentServerError {
    #[error("{0} cannot be changed after the start of the agent-server")]
    Variable(String),
    #[error("cannot reach the agent-server: {0}")]
    Connect(#[from] std::io::Error),
    #[error("{PATH}: {0}")]
    Request(#[from] http::Error),
    #[error("{PATH}: {0}")]
    Exchange(#[from] ExchangeError),
    #[error("{PATH} answers {0}")]
    Status(StatusCode),
    #[error("{PATH} does not answer")]
    Timeout,
}

/// An agent-server that waits for its initialization.
#[derive(Debug)]
pub(super) struct AgentServer {
    address: SocketAddr,
    secret: String,
    environment: Variables,
}

impl AgentServer {
    /// Adds the variables that make it wait.
    pub(super) fn new(address: IpAddr, prestart: &Prestart, variables: &mut Variables) -> Self {
        let mut secret = [0; 32];
        // Without random bytes the secret is empty, and the server refuses to wait for it.
        let random = SystemRandom::new().fill(&mut secret);
        let secret = random.map_or_else(|_| String::new(), |()| URL_SAFE_NO_PAD.encode(secret));
        variables.insert("OH_DEFERRED_INIT".into(), "true".into());
        variables.insert("OH_SECRET_KEY".into(), secret.clone());
        Self {
            address: SocketAddr::new(address, prestart.probe.port.unwrap_or(port::RUNTIME)),
            secret,
            environment: prestart.environment.clone(),
        }
    }

    pub(super) async fn initialize(&self, init: &Init) -> Result<(), AgentServerError> {
        let body = init_body(&self.environment, &init.environment)?;
        let request = Request::post(PATH)
            .header(SECRET_HEADER, &self.secret)
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::from(body.to_string()))?;
        let exchange = async {
            let stream = TcpStream::connect(self.address).await?;
            Ok::<_, AgentServerError>(loopback::exchange(stream, request).await?)
        };
        let answer = tokio::time::timeout(TIMEOUT, exchange).await;
        let (status, _) = answer.map_err(|_| AgentServerError::Timeout)??;
        if status.is_success() {
            Ok(())
        } else {
            Err(AgentServerError::Status(status))
        }
    }
}

/// The body that turns a server with the variables `own` into one with the variables `wanted`.
pub(super) fn init_body(own: &Variables, wanted: &Variables) -> Result<Value, AgentServerError> {
    let mut body = Map::new();
    let mut variables = BTreeMap::new();
    for (name, value) in wanted {
        if own.get(name) == Some(value) {
            continue;
        }
        variables.insert(name, value);
        if let Some((_, field)) = FIELDS.iter().find(|(variable, _)| variable == name) {
            body.insert((*field).to_owned(), json!(value));
        } else if let Some((prefix, suffix, field)) = LISTS.iter().find(|list| is_in(list, name)) {
            body.insert((*field).to_owned(), list(wanted, prefix, suffix));
        } else if name.starts_with("OH_") && !is_without_effect(own, name, value) {
            return Err(AgentServerError::Variable(name.clone()));
        }
    }
    body.insert("env".to_owned(), json!(variables));
    Ok(body.into())
}

/// Returns whether a server with the variables `own` behaves the same with this one.
fn is_without_effect(own: &Variables, name: &str, value: &str) -> bool {
    let is_default = !own.contains_key(name) && DEFAULTS.contains(&(name, value));
    is_default || UNREAD.contains(&name)
}

fn is_in((prefix, suffix, _): &(&str, &str, &str), name: &str) -> bool {
    index(name, prefix, suffix).is_some()
}

fn index(name: &str, prefix: &str, suffix: &str) -> Option<u32> {
    let rest = name.strip_prefix(prefix)?;
    rest.strip_suffix(suffix)?.parse().ok()
}

/// Values of a list in the order of their indexes, without empty ones.
fn list(variables: &Variables, prefix: &str, suffix: &str) -> Value {
    let items = variables.iter().filter(|(_, value)| !value.is_empty());
    let items = items.filter_map(|(name, value)| Some((index(name, prefix, suffix)?, value)));
    let items: BTreeMap<_, _> = items.collect();
    let object = |url| {
        if suffix.is_empty() {
            json!(url)
        } else {
            json!({"base_url": url})
        }
    };
    items.into_values().map(object).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::map;
    use super::*;

    #[test]
    fn differing_variables_become_fields_of_the_init_request() {
        let own = map(&[
            ("OH_ENABLE_VNC", "0"),
            ("OH_CONVERSATIONS_PATH", "/workspace/conversations"),
            ("OH_ALLOW_CORS_ORIGINS_0", ""),
        ]);
        let wanted = map(&[
            ("OH_ENABLE_VNC", "0"),
            ("OH_CONVERSATIONS_PATH", "/workspace/conversations"),
            ("OH_BASH_EVENTS_DIR", "/workspace/bash_events"),
            ("OH_SESSION_API_KEYS_1", "before"),
            ("OH_SESSION_API_KEYS_0", "now"),
            ("OH_ALLOW_CORS_ORIGINS_0", "https://app"),
            ("OH_WEBHOOKS_0_BASE_URL", "https://app/webhooks"),
            ("OH_SECRET_KEY", "secret"),
            ("LLM_MODEL", "m"),
        ]);
        let expected = json!({
            "session_api_keys": ["now", "before"],
            "secret_key": "secret",
            "bash_events_dir": "/workspace/bash_events",
            "allow_cors_origins": ["https://app"],
            "webhooks": [{"base_url": "https://app/webhooks"}],
            "env": {
                "LLM_MODEL": "m",
                "OH_ALLOW_CORS_ORIGINS_0": "https://app",
                "OH_BASH_EVENTS_DIR": "/workspace/bash_events",
                "OH_SECRET_KEY": "secret",
                "OH_SESSION_API_KEYS_0": "now",
                "OH_SESSION_API_KEYS_1": "before",
                "OH_WEBHOOKS_0_BASE_URL": "https://app/webhooks",
            },
        });
        assert_eq!(init_body(&own, &wanted).unwrap(), expected);
        let other = map(&[
            ("OH_ENABLE_VNC", "1"),
            ("OH_RUNTIME_IDLE_TIMEOUT_SECONDS", "9"),
        ]);
        let error = init_body(&own, &other).unwrap_err();
        assert_eq!(
            error.to_string(),
            "OH_ENABLE_VNC cannot be changed after the start of the agent-server"
        );
    }
}
