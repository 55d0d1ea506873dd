//! Two sandboxes at the same time, on the same ports.

use crate::fixture::standalone;

/// Counts the sleeping processes that can be seen.
const SLEEPERS: &str =
    "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' | grep -o '[s]leep 4242' | wc -l";

#[tokio::test]
async fn two_sandboxes_do_not_see_each_other() {
    let Some(fixture) = standalone() else { return };
    let (a, b) = (fixture.run("a").await, fixture.run("b").await);
    assert_ne!((&a.id, &a.url, &a.key), (&b.id, &b.url, &b.key));
    let write = "echo secret > /workspace/a.txt; echo secret > /tmp/a.txt";
    a.run(write).await;
    a.run("sleep 4242 &").await;
    assert_eq!(a.run(SLEEPERS).await, "1");
    let seen = "ls /workspace/a.txt /tmp/a.txt 2>&1 | grep -c 'No such file'";
    assert_eq!(b.run(seen).await, "2");
    assert_eq!(b.run(SLEEPERS).await, "0");
    assert_eq!(a.run("cat /workspace/a.txt").await, "secret");
    // The key of one sandbox opens no other.
    assert_eq!(b.status_with_key(&a.key).await, 403);
}
