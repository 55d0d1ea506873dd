//! Sandboxes of the runtime API in the cluster.

use serde_json::{Value, json};
use tests::clients::v0::v0_command;
use tests::session::Session;

use crate::installation::{API_KEY, IMAGE, api};

/// Body of a `/start` with the whole command that the V0 client sends.
pub(crate) fn start_body(session: &str) -> Value {
    let command = v0_command("--plugins agent_skills jupyter vscode", "openhands");
    json!({
        "session_id": session, "image": IMAGE, "working_dir": "/openhands/code/",
        "environment": {"GREETING": "hello"}, "command": command,
    })
}

/// Starts the sandbox of a session, or finds it, and waits until it is ready.
pub(crate) async fn start(session: &str) -> Session {
    let base = &api();
    Session::start(base, API_KEY, &start_body(session)).await
}
