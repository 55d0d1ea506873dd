//! The standalone process ends, or is killed, and comes back.

use rusqlite::Connection;
use tests::binaries::is_root_or_skips;
use tests::standalone::Standalone;

use crate::session;

#[tokio::test]
async fn sandboxes_urls_keys_and_files_survive_a_crash_of_standalone() {
    if !is_root_or_skips("restart of standalone") {
        return;
    }
    let state = tempfile::tempdir().unwrap();
    let standalone = Standalone::start(state.path(), &[]);
    let session = session::start(&standalone, "s").await;
    session.run("echo kept > /workspace/file").await;
    standalone.kill();
    // Several times in a row: a restart of the node is no crash of the command.
    for _ in 0..3 {
        let standalone = Standalone::start(state.path(), &[]);
        session.ready().await;
        assert!(standalone.stop().success());
    }

    let standalone = Standalone::start(state.path(), &[]);
    let again = session::start(&standalone, "s").await;
    assert_eq!(
        (&again.id, &again.url, &again.key),
        (&session.id, &session.url, &session.key)
    );
    assert_eq!(
        session.run("cat /workspace/file; echo $GREETING").await,
        "kept\nhello"
    );
}

#[tokio::test]
async fn a_sandbox_that_slipped_past_the_schema_disturbs_no_other() {
    if !is_root_or_skips("edited database of standalone") {
        return;
    }
    let state = tempfile::tempdir().unwrap();
    let standalone = Standalone::start(state.path(), &[]);
    let good = session::start(&standalone, "good").await;
    let bad = session::start(&standalone, "bad").await;
    assert!(standalone.stop().success());
    damage(state.path(), &bad.id);

    let standalone = Standalone::start(state.path(), &[]);
    good.ready().await;
    assert_eq!(good.run("echo fine").await, "fine");
    let other = session::start(&standalone, "another").await;
    assert_eq!(other.run("echo fine").await, "fine");
    assert!(standalone.run("kubectl", &["get", "sbx"]).contains(&bad.id));
}

/// Makes the spec of one Sandbox something that no Sandbox can be read from.
fn damage(state: &std::path::Path, name: &str) {
    let database = Connection::open(state.join("objects.db")).unwrap();
    let changed = database
        .execute(
            "UPDATE objects SET body = json_set(body, '$.spec', 'nonsense') WHERE name = ?1 AND resource LIKE '%sandboxes%'",
            [name],
        )
        .unwrap();
    assert_eq!(changed, 1);
}
