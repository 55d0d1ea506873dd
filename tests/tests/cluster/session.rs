//! Sandboxes of the runtime API in the cluster.

use serde_json::{Value, json};
use tests::session::Session;

use crate::installation::{API_KEY, IMAGE, api};

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

/// Starts the sandbox of a session, or finds it, and waits until it is ready.
pub(crate) async fn start(session: &str) -> Session {
    let base = &api();
    Session::start(base, API_KEY, &start_body(session)).await
}
