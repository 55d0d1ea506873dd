//! The standalone process ends, or is killed, and comes back, or cannot start.

use std::path::Path;
use std::process::{Command, Stdio};

use rusqlite::Connection;
use tests::binaries::binary;

use crate::fixture::{Fixture, standalone, start};

#[tokio::test]
async fn urls_keys_and_files_survive_a_crash_of_standalone() {
    let Some(fixture) = standalone() else { return };
    let session = fixture.run("s").await;
    session.run("echo kept > /workspace/file").await;
    let Fixture { standalone, state } = fixture;
    standalone.kill();
    // Several times in a row: a restart of the node is no crash of the command.
    for _ in 0..3 {
        let standalone = start(state.path(), &[]);
        session.ready().await;
        assert!(standalone.stop().success());
    }
    let standalone = start(state.path(), &[]);
    let fixture = Fixture { standalone, state };
    session.assert_same(&fixture.run("s").await);
    let kept = session.run("cat /workspace/file; echo $GREETING").await;
    assert_eq!(kept, "kept\nhello");
}

#[tokio::test]
async fn unreadable_sandbox_does_not_disturb_others() {
    let Some(fixture) = standalone() else { return };
    let (good, bad) = (fixture.run("good").await, fixture.run("bad").await);
    let Fixture { standalone, state } = fixture;
    assert!(standalone.stop().success());
    damage(state.path(), &bad.id);

    let standalone = start(state.path(), &[]);
    let fixture = Fixture { standalone, state };
    good.ready().await;
    for session in [good, fixture.run("another").await] {
        assert_eq!(session.run("echo fine").await, "fine");
    }
    assert!(fixture.kubectl("get sbx").contains(&bad.id));
}

/// Makes the spec of one Sandbox something that no Sandbox can be read from.
fn damage(state: &Path, name: &str) {
    let database = Connection::open(state.join("objects.db")).unwrap();
    let spoil = "UPDATE objects SET body = json_set(body, '$.spec', 'nonsense') \
        WHERE name = ?1 AND resource LIKE '%sandboxes%'";
    assert_eq!(database.execute(spoil, [name]).unwrap(), 1);
}

#[test]
fn a_taken_address_names_the_flag() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for (flag, other) in [("--listen", "--api-listen"), ("--api-listen", "--listen")] {
        let state = tempfile::tempdir().unwrap();
        let output = Command::new(binary("sandbox-standalone"))
            .arg("--state-dir")
            .arg(state.path())
            .args([flag, &address, other, "127.0.0.1:0"])
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success());
        let words = format!("cannot listen on {address}, {flag} sets another address: ");
        assert!(said.contains(&words), "{said}");
    }
}
