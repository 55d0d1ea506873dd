//! Item 11: silence, large files and long streams through the gateway to real processes. `make test-long`
//! takes as long as the specification says, `make test` seconds.

mod content;
mod streams;

use std::time::Duration;

use serde_json::json;
use tests::size::full_or;

use crate::fixture::fixture_with;

/// Durations of the tests.
struct Scale {
    /// An action that says nothing.
    silence: Duration,
    /// Streams and tunnels.
    open: Duration,
    /// Idle sandboxes are paused after this.
    idle: Duration,
}

const SUITE: Scale = Scale {
    silence: Duration::from_secs(12),
    open: Duration::from_secs(6),
    idle: Duration::from_secs(2),
};

/// `docs/specs/runtime-api.md`, section 8.1.
const SOAK: Scale = Scale {
    silence: Duration::from_mins(10),
    open: Duration::from_mins(61),
    idle: Duration::from_secs(30),
};

impl Scale {
    fn of_this_run() -> &'static Self {
        full_or(&SOAK, &SUITE)
    }
}

#[tokio::test]
async fn item_11_a_silent_action_survives() {
    let silence = Scale::of_this_run().silence;
    // The open request alone keeps the sandbox awake.
    let Some(fixture) = fixture_with(&["--idle-timeout", "2s"]) else {
        return;
    };
    let mut client = fixture.connected("s").await;
    client.config.action_timeout = silence * 2;
    // Unless it is told to block, the server itself ends an action that is silent for 10 s.
    let command = format!("sleep {}; echo done", silence.as_secs());
    let args = json!({"command": command, "blocking": true});
    let timeout = client.config.action_timeout.as_secs();
    let action = json!({"action": "run", "args": args, "timeout": timeout});
    let observation = client.act(&action).await.unwrap();
    assert_eq!(observation["content"], "done", "{observation}");
}
