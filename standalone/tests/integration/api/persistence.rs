use std::path::{Path, PathBuf};

use kube::{
    ResourceExt,
    api::{ListParams, Patch, PatchParams},
};
use rusqlite::Connection;
use serde_json::json;
use standalone::api::EmbeddedApi;
use tempfile::TempDir;

use super::fixtures::{
    ApiExt as _, clock, create_widget, definitions, owned_by, pod, pods, widgets,
};

/// Waits until the workers of dropped clients, which hold the database, have ended.
async fn wait_closed() {
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
}

async fn open(path: &Path) -> EmbeddedApi {
    wait_closed().await;
    EmbeddedApi::open(path, &definitions(), clock()).unwrap()
}

/// A database that does not exist yet, in a directory of its own.
fn database() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("objects.db");
    (directory, path)
}

#[tokio::test]
async fn acknowledged_writes_survive_restart() {
    let (_directory, path) = database();
    let server = open(&path).await;
    let client = server.client();
    let first = create_widget(&client, "kept").await;
    create_widget(&client, "gone").await;
    widgets(&client).remove("gone").await;
    let more = json!({"spec": {"replicas": 2}});
    widgets(&client).change("kept", more).await;
    let revision = server.revision();
    drop((server, client));

    let server = open(&path).await;
    let client = server.client();
    let names = widgets(&client).names(&ListParams::default()).await;
    assert_eq!(names, ["kept"]);
    let kept = widgets(&client).get("kept").await.unwrap();
    assert_eq!(kept.uid(), first.uid());
    assert_eq!(kept.data["spec"]["replicas"], 2);
    assert!(server.revision() >= revision);
    create_widget(&client, "gone").await;
}

#[tokio::test]
async fn database_is_locked_by_one_server() {
    let (_directory, path) = database();
    let _first = open(&path).await;
    assert!(EmbeddedApi::open(&path, &definitions(), clock()).is_err());
}

#[tokio::test]
async fn malformed_rows_are_skipped() {
    let (_directory, path) = database();
    let server = open(&path).await;
    for name in ["bad-spec", "bad-json", "bad-meta", "good"] {
        create_widget(&server.client(), name).await;
    }
    drop(server);
    wait_closed().await;
    let database = Connection::open(&path).unwrap();
    for edit in [
        "UPDATE objects SET body = json_set(body, '$.spec', 'nonsense') WHERE name = 'bad-spec'",
        "UPDATE objects SET body = '{nonsense' WHERE name = 'bad-json'",
        "UPDATE objects SET body = json_set(body, '$.metadata', 7) WHERE name = 'bad-meta'",
        "INSERT INTO objects VALUES ('unknowns.test.dev', 'default', 'x', 3, '{}')",
    ] {
        assert_eq!(database.execute(edit, []).unwrap(), 1);
    }
    drop(database);

    let api = widgets(&open(&path).await.client());
    let names = api.names(&ListParams::default()).await;
    assert_eq!(names, ["bad-meta", "bad-spec", "good"]);
    let (params, status) = (
        PatchParams::default(),
        json!({"status": {"phase": "Failed"}}),
    );
    let reported = api
        .patch_status("bad-spec", &params, &Patch::Merge(status))
        .await;
    assert_eq!(reported.unwrap().data["status"]["phase"], "Failed");
    api.remove("bad-spec").await;
}

#[tokio::test]
async fn orphans_are_collected_at_start() {
    let (_directory, path) = database();
    let server = open(&path).await;
    let client = server.client();
    let owner = create_widget(&client, "w").await;
    pods(&client).add(&owned_by(pod("p"), &owner)).await;
    drop((server, client));
    wait_closed().await;
    let database = Connection::open(&path).unwrap();
    let deleted = database.execute("DELETE FROM objects WHERE name = 'w'", []);
    assert_eq!(deleted.unwrap(), 1);
    drop(database);
    assert!(!pods(&open(&path).await.client()).exists("p").await);
}
