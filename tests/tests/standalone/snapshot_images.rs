//! An image of a snapshot: a session starts it as any image, with the changed files of the first one.

use std::fs;

use client::Level;
use serde_json::json;
use tests::fork_session::snapshot;
use tests::persistence_session::start_body;
use tests::registry::{LocalRegistry, image_of, small_root};
use tests::session::Session;

use crate::fixture::fixture_with;

/// Changes of all kinds that a layer has its own form for.
const CHANGE: &str = "echo changed >/etc/changed; rm /etc/removed; rm -r /srv/whole; mkdir /srv/whole; \
    echo new >/srv/whole/new; echo tool >/bin/tool; busybox chmod 4755 /bin/tool; busybox ln /bin/tool /bin/second; \
    echo mine >/srv/outer/inner/mine; echo kept >/workspace/file";
const LOOK: &str = "cat /etc/changed; cat /srv/whole/* /srv/outer/inner/*; ls /srv/whole /workspace; \
    stat -c '%a %h' /bin/tool; [ -e /etc/removed ] || echo removed";

#[tokio::test]
async fn snapshot_is_an_image_that_another_session_starts() {
    let registry = LocalRegistry::start();
    let host = registry.host();
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("config.json");
    fs::write(&config, json!({"auths": {&host: {}}}).to_string()).unwrap();
    let (prefix, config) = (format!("{host}/team"), config.display().to_string());
    let flags = [
        ["--url-form", "nested"],
        ["--image-builds", "append"],
        ["--registry-prefix", &prefix],
        ["--insecure-registries", &host],
        ["--registry-config", &config],
    ];
    let Some(fixture) = fixture_with(&flags.concat()) else {
        return;
    };
    let root = small_root();
    for name in ["etc/removed", "srv/whole/old", "srv/outer/inner/of-image"] {
        let path = root.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "image\n").unwrap();
    }
    // Another repository than that of the new image.
    let base = registry.push(image_of(root.path(), &json!({})).path(), "team/tools:1");
    let first = Session::start(fixture.api(), fixture.key(), &start_body("first", &base)).await;
    first.run(CHANGE).await;
    let taken = snapshot(&first, Level::Root).await;
    assert_eq!(taken.level, Some(Level::Root), "{taken:?}");
    first.run("echo later >/etc/changed").await;

    let target = format!("{prefix}/runtime:with-changes");
    let id = &taken.snapshot_id;
    let build = first.client.snapshot_image(id, &target).await.unwrap();
    let status = fixture.url(&format!("/build_status?build_id={build}"));
    let expected = json!({"status": "SUCCESS", "image": target, "error": null});
    assert_eq!(fixture.wire().get(&status).await.success(), expected);
    assert_eq!(registry.tags("team/runtime"), ["with-changes"]);

    let second = Session::start(fixture.api(), fixture.key(), &start_body("second", &target)).await;
    let found = second.run(LOOK).await;
    let lines: Vec<_> = found.lines().map(str::trim_end).collect();
    let expected = [
        "changed",
        "new",
        "mine",
        "image",
        "/srv/whole:",
        "new",
        "",
        "/workspace:",
        "4755 2",
        "removed",
    ];
    assert_eq!(lines, expected, "{found}");

    // Without its sandbox there is no layer.
    first.stop().await;
    let other = format!("{prefix}/runtime:other");
    let refused = first.client.snapshot_image(id, &other).await.unwrap_err();
    assert!(refused.to_string().contains("409"), "{refused}");
    second.stop().await;
}
