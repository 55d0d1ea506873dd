//! Two sandboxes at the same time, on the same ports.

use tests::binaries::is_root_or_skips;
use tests::standalone::Standalone;

use crate::session;

/// Counts the sleeping processes that can be seen.
const SLEEPERS: &str =
    "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' | grep -o '[s]leep 4242' | wc -l";

#[tokio::test]
async fn two_sandboxes_do_not_see_each_other() {
    if !is_root_or_skips("two sandboxes in standalone") {
        return;
    }
    let state = tempfile::tempdir().unwrap();
    let standalone = Standalone::start(state.path(), &[]);
    let a = session::start(&standalone, "a").await;
    let b = session::start(&standalone, "b").await;
    assert_ne!((&a.id, &a.url, &a.key), (&b.id, &b.url, &b.key));

    a.run("echo secret > /workspace/a.txt; echo secret > /tmp/a.txt")
        .await;
    a.run("sleep 4242 &").await;
    assert_eq!(a.run(SLEEPERS).await, "1");
    let seen = b
        .run("ls /workspace/a.txt /tmp/a.txt 2>&1 | grep -c 'No such file'")
        .await;
    assert_eq!(seen, "2");
    assert_eq!(b.run(SLEEPERS).await, "0");
    assert_eq!(a.run("cat /workspace/a.txt").await, "secret");

    // The key of one sandbox opens no other.
    let action = serde_json::json!({"action": {"action": "run", "args": {"command": "id"}}});
    let client = tests::json_client::JsonClient::with_header("X-Session-API-Key", &a.key);
    let answer = client
        .post(&format!("{}/execute_action", b.url), &action)
        .await;
    assert_eq!(answer.status, 403);
}
