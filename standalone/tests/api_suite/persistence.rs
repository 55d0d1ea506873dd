use kube::{
    ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use rusqlite::Connection;
use serde_json::json;
use standalone::api::{EmbeddedApi, Options};

use crate::fixtures::{create_widget, definitions, owned_by, pod, pods, refusal, widgets};

fn open(path: &std::path::Path) -> EmbeddedApi {
    EmbeddedApi::open(path, Options::for_tests(definitions())).unwrap()
}

#[tokio::test]
async fn what_was_answered_is_there_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("objects.db");
    let server = open(&path);
    let client = server.client();
    let first = create_widget(&client, "kept").await;
    create_widget(&client, "gone").await;
    widgets(&client)
        .delete("gone", &DeleteParams::default())
        .await
        .unwrap();
    let more = Patch::Merge(json!({"spec": {"replicas": 2}}));
    widgets(&client)
        .patch("kept", &PatchParams::default(), &more)
        .await
        .unwrap();
    let revision = server.revision();
    server.close();

    let server = open(&path);
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
    server.close();
    assert_eq!(
        refusal(
            widgets(&client)
                .delete("kept", &DeleteParams::default())
                .await
        ),
        (500, "InternalError".into())
    );
}

#[tokio::test]
async fn a_file_belongs_to_one_server() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("objects.db");
    let _first = open(&path);
    assert!(EmbeddedApi::open(&path, Options::for_tests(definitions())).is_err());
}

#[tokio::test]
async fn edited_rows_disturb_no_other() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("objects.db");
    let server = open(&path);
    for name in ["bad-spec", "bad-json", "bad-meta", "good"] {
        create_widget(&server.client(), name).await;
    }
    server.close();
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

    let client = open(&path).client();
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
        .delete("bad-spec", &DeleteParams::default())
        .await
        .unwrap();
}

#[tokio::test]
async fn garbage_of_a_crash_is_collected_at_the_next_start() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("objects.db");
    let server = open(&path);
    let owner = create_widget(&server.client(), "w").await;
    pods(&server.client())
        .create(&PostParams::default(), &owned_by(pod("p"), &owner))
        .await
        .unwrap();
    server.close();
    Connection::open(&path)
        .unwrap()
        .execute("DELETE FROM objects WHERE name = 'w'", [])
        .unwrap();
    assert_eq!(refusal(pods(&open(&path).client()).get("p").await).0, 404);
}
