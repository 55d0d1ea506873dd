use std::path::Path;

use kube::{
    ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use rusqlite::Connection;
use serde_json::json;
use standalone::api::EmbeddedApi;

use super::fixtures::{
    ApiExt as _, api_error, clock, create_widget, definitions, owned_by, pod, pods, widgets,
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

#[tokio::test]
async fn acknowledged_writes_survive_restart() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("objects.db");
    let server = open(&path).await;
    let client = server.client();
    let first = create_widget(&client, "kept").await;
    create_widget(&client, "gone").await;
    widgets(&client)
        .remove("gone", DeleteParams::default())
        .await;
    let more = json!({"spec": {"replicas": 2}});
    widgets(&client).change("kept", more).await;
    let revision = server.revision();
    drop((server, client));

    let server = open(&path).await;
    let client = server.client();
    let items = widgets(&client)
        .list(&ListParams::default())
        .await
        .unwrap()
        .items;
    assert_eq!(
        items.iter().map(ResourceExt::name_any).collect::<Vec<_>>(),
        ["kept"]
    );
    assert_eq!(
        (items[0].uid(), &items[0].data["spec"]["replicas"]),
        (first.uid(), &json!(2))
    );
    assert!(server.revision() >= revision);
    create_widget(&client, "gone").await;
}

#[tokio::test]
async fn database_is_locked_by_one_server() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("objects.db");
    let _first = open(&path).await;
    assert!(EmbeddedApi::open(&path, &definitions(), clock()).is_err());
}

#[tokio::test]
async fn malformed_rows_are_skipped() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("objects.db");
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

    let client = open(&path).await.client();
    let names: Vec<_> = widgets(&client)
        .list(&ListParams::default())
        .await
        .unwrap()
        .items
        .iter()
        .map(ResourceExt::name_any)
        .collect();
    assert_eq!(names, ["bad-meta", "bad-spec", "good"]);
    let status = Patch::Merge(json!({"status": {"phase": "Failed"}}));
    let reported = widgets(&client)
        .patch_status("bad-spec", &PatchParams::default(), &status)
        .await
        .unwrap();
    assert_eq!(reported.data["status"]["phase"], "Failed");
    widgets(&client)
        .remove("bad-spec", DeleteParams::default())
        .await;
}

#[tokio::test]
async fn orphans_are_collected_at_start() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("objects.db");
    let server = open(&path).await;
    let owner = create_widget(&server.client(), "w").await;
    pods(&server.client())
        .add(&owned_by(pod("p"), &owner))
        .await;
    drop(server);
    wait_closed().await;
    Connection::open(&path)
        .unwrap()
        .execute("DELETE FROM objects WHERE name = 'w'", [])
        .unwrap();
    assert_eq!(
        api_error(pods(&open(&path).await.client()).get("p").await).0,
        404
    );
}
