//! Sandboxes of the runtime API in standalone.

use serde_json::{Value, json};
use tests::session::Session;
use tests::standalone::Standalone;

/// Body of a `/start` as the V0 client sends it.
pub(crate) fn start_body(session: &str) -> Value {
    json!({
        "session_id": session,
        "image": "debian:12",
        "working_dir": "/workspace",
        "environment": {"GREETING": "hello"},
        "command": ["python", "-u", "-m", "openhands.runtime.action_execution_server", "60000",
            "--working-dir", "/workspace", "--username", "openhands", "--user-id", "1000",
            "--no-enable-browser"],
    })
}

/// Starts the sandbox of a session and waits until it is ready.
pub(crate) async fn start(standalone: &Standalone, session: &str) -> Session {
    Session::start(standalone.api(), standalone.key(), &start_body(session)).await
}
