//! Pauses that keep changed files: the node keeps the root of sandboxes.

use serde_json::Value;
use tests::binaries::{criu_or_skip, is_root_or_skips};
use tests::persistence_session::{
    body_with_processes, changed_files_survive_pauses, processes_survive_pauses, start_body,
};
use tests::plugin_session::IMAGE;
use tests::session::Session;
use tests::standalone::Standalone;

use crate::fixture::{fixture, start};
use crate::plugins::image;

#[tokio::test]
async fn changed_files_survive_pauses_and_a_restart_of_the_process() {
    let Some(mut fixture) = fixture() else { return };
    let body = start_body("kept", "host");
    let session = Session::start(fixture.api(), fixture.key(), &body).await;
    changed_files_survive_pauses(&session, 3).await;
    session.change_state("pause").await;
    drop(fixture.standalone);
    fixture.standalone = start(fixture.state.path(), &["--url-form", "nested"]);
    let again = Session::start(fixture.api(), fixture.key(), &body).await;
    assert_eq!(again.id, session.id);
    let kept = again.run("cat /etc/kept-3").await;
    assert!(kept.contains("round 3"), "{kept}");
    again.change_state("stop").await;
}

#[tokio::test]
async fn processes_survive_pauses_on_one_machine() {
    if !is_root_or_skips() {
        return;
    }
    let Some(criu) = criu_or_skip() else { return };
    let state = tempfile::tempdir().unwrap();
    let Some(image) = image(state.path()) else {
        return;
    };
    let criu = criu.to_str().unwrap();
    let flags = ["--memory-persistence", "--criu", criu, &image];
    let standalone = Standalone::start(state.path(), &flags);
    for user in ["root", "openhands"] {
        let body = body_with_processes(user, IMAGE, user);
        let session = Session::start(standalone.api(), standalone.key(), &body).await;
        processes_survive_pauses(&session, 3, "/workspace").await;
        session.change_state("stop").await;
    }
}

#[tokio::test]
async fn unknown_level_is_refused() {
    let Some(fixture) = fixture() else { return };
    let mut body = start_body("level", "host");
    body["persistence"] = Value::from("Everything");
    let refused = fixture.wire().post(&fixture.url("/start"), &body).await;
    assert_eq!(refused.status, 400);
    let detail = refused.body["detail"].as_str().unwrap_or_default();
    assert!(detail.contains("Workspace, Root or Memory"), "{detail}");
}
