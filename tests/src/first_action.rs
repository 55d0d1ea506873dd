//! A start as benchmarks time it: until the first action of the new sandbox is answered.

use std::time::Duration;

use client::{Client, Sandbox, ServerCommand, StartRequest};

/// Shorter than what is measured.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Starts a sandbox, polls until it is ready, and runs a command in it.
pub async fn start_and_act(client: &Client, image: &str, session: &str) -> Sandbox {
    let request = StartRequest::new(image, session).server(&ServerCommand::default());
    let mut info = client.start(&request).await.expect("a sandbox");
    while !info.is_ready() {
        tokio::time::sleep(POLL_INTERVAL).await;
        info = client.runtime(&info.runtime_id).await.expect("the sandbox");
    }
    let sandbox = client.sandbox(info);
    let said = sandbox.run("echo hi").await.expect("an action");
    assert_eq!(said.content, "hi");
    sandbox
}
