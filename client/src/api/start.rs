//! Request for a sandbox (`docs/specs/runtime-api.md`, section 1.4).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::snapshots::Level;

/// Module of the action execution server, which the controller replaces by the executor.
const SERVER_MODULE: &str = "openhands.runtime.action_execution_server";
/// Port of the server in a sandbox.
const SERVER_PORT: &str = "60000";

/// Body of `POST /start`. Fields that are not set are not sent.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct StartRequest {
    pub image: String,
    /// Name of the session, 1 to 256 bytes. A session has one sandbox.
    pub session_id: String,
    /// Command of the sandbox; empty: that of the image.
    pub command: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub working_dir: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_factor: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime_class: Option<String>,
    /// `Always`, `IfNotPresent` or `Never`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_pull_policy: Option<String>,
    /// State that a pause keeps; absent: the default of its pool or of the installation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persistence: Option<Level>,
}

/// Command line of the server in the sandbox that this client talks to.
#[derive(Debug, Clone)]
pub struct ServerCommand {
    pub working_dir: String,
    /// Plugins: `jupyter`, `vscode`, `agent_skills`, `browser:view` and others.
    pub plugins: Vec<String>,
    /// User of shells and files, with its id; absent: the default of the server.
    pub user: Option<(String, u32)>,
}

impl StartRequest {
    /// A sandbox with the default server in `/workspace`.
    pub fn new(image: impl Into<String>, session_id: impl Into<String>) -> Self {
        Self {
            image: image.into(),
            session_id: session_id.into(),
            command: ServerCommand::default().words(),
            working_dir: None,
            environment: BTreeMap::new(),
            resource_factor: None,
            runtime_class: None,
            image_pull_policy: None,
            persistence: None,
        }
    }

    /// Replaces the command by that of a server with other options.
    #[must_use]
    pub fn server(mut self, server: &ServerCommand) -> Self {
        self.command = server.words();
        self
    }
}

impl Default for ServerCommand {
    fn default() -> Self {
        Self {
            working_dir: "/workspace".into(),
            plugins: Vec::new(),
            user: None,
        }
    }
}

impl ServerCommand {
    /// The words of the command.
    pub fn words(&self) -> Vec<String> {
        let mut words: Vec<String> = ["python", "-u", "-m", SERVER_MODULE, SERVER_PORT]
            .map(Into::into)
            .into();
        words.extend(["--working-dir".into(), self.working_dir.clone()]);
        if !self.plugins.is_empty() {
            words.push("--plugins".into());
            words.extend(self.plugins.iter().cloned());
        }
        if let Some((name, id)) = &self.user {
            words.extend([
                "--username".into(),
                name.clone(),
                "--user-id".into(),
                id.to_string(),
            ]);
        }
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_request_has_the_documented_fields() {
        let server = ServerCommand {
            plugins: vec!["jupyter".into()],
            user: Some(("root".into(), 0)),
            ..ServerCommand::default()
        };
        let request = StartRequest::new("debian:12", "s").server(&server);
        let body = serde_json::to_value(&request).unwrap();
        assert_eq!(
            body,
            serde_json::json!({
                "image": "debian:12", "session_id": "s",
                "command": ["python", "-u", "-m", "openhands.runtime.action_execution_server", "60000",
                    "--working-dir", "/workspace", "--plugins", "jupyter", "--username", "root", "--user-id", "0"],
            })
        );
    }
}
