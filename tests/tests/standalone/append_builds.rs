//! Image builds in a registry with tokens: the image of the same lock files gets one more layer.

use std::fs;
use std::net::TcpListener;

use http::Method;
use serde_json::{Value, json};
use tempfile::TempDir;
use testing::image_build::{self, FORM_TYPE, Release, Rung};
use tests::clients::{BuildConfig, ClientException, HttpClient, V0, V0Config};
use tests::registry::{LocalRegistry, PASSWORD, USER, image_of, small_root};

use crate::fixture::{CALL_TIMEOUT, Fixture, connected, fixture_with};

/// Program of an older client, which is not in the new image.
const OLD: &str = "openhands/code/openhands/old.py";

struct Scene {
    registry: LocalRegistry,
    fixture: Fixture,
    _config: TempDir,
}

/// Flags of a server whose repository of runtime images is in a registry.
fn flags(host: &str) -> Vec<String> {
    let prefix = format!("{host}/team");
    let flags = [
        ["--url-form", "nested"],
        ["--image-builds", "append"],
        ["--registry-prefix", &prefix],
        ["--insecure-registries", host],
    ];
    flags.concat().into_iter().map(str::to_owned).collect()
}

/// A server whose credentials have `password`.
fn scene(password: &str) -> Option<Scene> {
    let registry = LocalRegistry::with_tokens();
    let config = tempfile::tempdir().unwrap();
    let path = config.path().join("config.json");
    let login = json!({"username": USER, "password": password});
    let auths = json!({"auths": {registry.host(): login}});
    fs::write(&path, auths.to_string()).unwrap();
    let mut flags = flags(&registry.host());
    flags.extend(["--registry-config".to_owned(), path.display().to_string()]);
    let flags: Vec<_> = flags.iter().map(String::as_str).collect();
    let fixture = fixture_with(&flags)?;
    Some(Scene {
        registry,
        fixture,
        _config: config,
    })
}

impl Scene {
    /// Pushes a runtime image under a tag, as the client's own builder does.
    fn push_runtime(&self, tag: &str) -> String {
        let root = small_root();
        let old = root.path().join(OLD);
        fs::create_dir_all(old.parent().unwrap()).unwrap();
        fs::write(&old, "old").unwrap();
        fs::write(root.path().join("openhands/kept"), "kept").unwrap();
        let layout = image_of(
            root.path(),
            &json!({"Labels": {"openhands.dev/owner": "33:34"}}),
        );
        self.registry
            .push(layout.path(), &format!("team/runtime:{tag}"))
    }

    fn client(&self, session: &str, build: &BuildConfig) -> V0Config {
        let mut config = self.fixture.v0(session);
        config.image = None;
        config.build = build.clone();
        config
    }

    fn image(&self, tag: &str) -> String {
        format!("{}/team/runtime:{tag}", self.registry.host())
    }

    async fn image_exists(&self, image: &str) -> Value {
        let image = image.replace('/', "%2F").replace(':', "%3A");
        self.fixture
            .get(&format!("/image_exists?image={image}"))
            .await
    }

    fn build_field(&self, field: &str) -> String {
        self.fixture
            .kubectl(&format!("get imgb -o jsonpath={{.items[0].{field}}}"))
    }
}

fn calls(client: &V0) -> Vec<String> {
    let calls = client.wire.calls().into_iter();
    let names = calls.map(|call| call.split([' ', '?']).nth(1).unwrap_or_default().to_owned());
    names.take_while(|name| name != "/start").collect()
}

#[tokio::test]
async fn image_of_the_same_lock_files_gets_one_layer() {
    let Some(scene) = scene(PASSWORD) else {
        return;
    };
    let (build, fixture) = (BuildConfig::default(), &scene.fixture);
    let tags = build.tags();
    scene.push_runtime(&tags.lock);
    let before = scene.image_exists(&scene.image(&tags.lock)).await;
    assert!(before["image"]["image_size_bytes"].as_u64().unwrap() > 1000);
    assert!(before["image"]["upload_time"].is_string());
    let source = scene.image(&tags.source);
    assert_eq!(scene.image_exists(&source).await, json!({"exists": false}));

    let mut client = connected(scene.client("first", &build)).await;
    let asked = calls(&client);
    assert_eq!(
        asked.iter().filter(|call| *call == "/build_status").count(),
        1,
        "{asked:?}"
    );
    let found = client.run("ls /openhands/code/openhands /openhands/code; cat /openhands/kept");
    let found = found.await.unwrap();
    assert!(
        found.contains("__init__.py") && found.contains("poetry.lock"),
        "{found}"
    );
    assert!(
        found.contains("kept") && !found.contains("old.py"),
        "{found}"
    );
    let owner = client.run("stat -c %u:%g:%a /openhands/code/openhands/__init__.py");
    assert_eq!(owner.await.unwrap(), "33:34:777");
    client.close().await.unwrap();

    assert_eq!(scene.build_field("spec.mode"), "Append");
    assert_eq!(scene.build_field("status.phase"), "Succeeded");
    let digest = scene.build_field("status.digest");
    let stored = fixture.kubectl("get sbx -o jsonpath={.items[0].spec.image}");
    assert_eq!(stored, format!("{source}@{digest}"));
    let size: u64 = scene.build_field("status.sizeBytes").parse().unwrap();
    let after = scene.image_exists(&source).await;
    assert_eq!(after["image"]["image_size_bytes"], size);
    let added = size - before["image"]["image_size_bytes"].as_u64().unwrap();
    assert!(added < 2000, "{added}");
    assert!(after["image"]["upload_time"].as_str().unwrap() > "2026-11");

    // The registry has it, so another process finds it there, and makes the same again.
    fixture.kubectl("delete imgb --all");
    let mut client = connected(scene.client("second", &build)).await;
    assert!(!calls(&client).contains(&"/build".to_owned()));
    let stored = fixture.kubectl("get sbx -o jsonpath={.items[*].spec.image}");
    assert!(
        stored.split(' ').all(|image| image.ends_with(&digest)),
        "{stored}"
    );
    client.close().await.unwrap();
}

/// Images of the other kinds are aliases, by the digest of what they are made of.
#[tokio::test]
async fn image_of_another_kind_is_an_alias() {
    let Some(scene) = scene(PASSWORD) else {
        return;
    };
    let versioned = BuildConfig::default();
    let parent = scene.push_runtime(&versioned.tags().version);
    let layout = image_of(small_root().path(), &json!({}));
    let base = scene.registry.push(layout.path(), "team/base:1");
    let scratch = BuildConfig {
        base: base.clone(),
        ..BuildConfig::default()
    };
    for (session, build, image) in [
        ("versioned", &versioned, &parent),
        ("scratch", &scratch, &base),
    ] {
        let mut client = connected(scene.client(session, build)).await;
        client.run("echo here").await.unwrap();
        assert_eq!(scene.build_field("spec.mode"), "Alias");
        let digest = scene.build_field("status.digest");
        let stored = scene
            .fixture
            .kubectl("get sbx -o jsonpath={.items[0].spec.image}");
        assert_eq!(stored, format!("{image}@{digest}"));
        client.close().await.unwrap();
        scene.fixture.kubectl("delete imgb,sbx --all");
    }
    let absent = BuildConfig {
        base: format!("{}/team/absent:1", scene.registry.host()),
        ..BuildConfig::default()
    };
    let error = V0::new(scene.client("absent", &absent)).connect().await;
    let ClientException::Unavailable(text) = error.unwrap_err() else {
        panic!("another error");
    };
    assert!(text.contains("the registry has no image"), "{text}");
}

#[tokio::test]
async fn client_is_told_that_the_registry_refuses() {
    let Some(scene) = scene("wrong-horse-battery") else {
        return;
    };
    let mut client = V0::new(scene.client("s", &BuildConfig::default()));
    let error = client.connect().await.unwrap_err();
    let ClientException::Http { status, detail } = &error else {
        panic!("{error:?}");
    };
    assert_eq!(*status, 500);
    let detail = detail.as_deref().unwrap();
    assert!(detail.contains("incorrect user or password"), "{detail}");
    assert!(!detail.contains("wrong-horse"), "{detail}");
}

/// The registry never answers; the process is asked to end.
#[tokio::test]
async fn build_that_a_stop_interrupts_is_reported() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let host = silent.local_addr().unwrap().to_string();
    let flags = flags(&host);
    let flags: Vec<_> = flags.iter().map(String::as_str).collect();
    let Some(fixture) = fixture_with(&flags) else {
        return;
    };
    let image = |tag: &str| format!("{host}/team/runtime:{tag}");
    let text = image_build::dockerfile(Release::V0_62, Rung::Lock, &image("oh_v0.62.0_lock"));
    let form = image_build::form(
        &image_build::context(&text, 1),
        &image("oh_v0.62.0_lock_a"),
        &[],
    );
    let wire =
        HttpClient::with_headers(&[("X-API-Key", fixture.key()), ("Content-Type", FORM_TYPE)]);
    let url = format!("{}/build", fixture.api());
    let reply = wire
        .send(Method::POST, &url, form.into(), CALL_TIMEOUT)
        .await
        .unwrap();
    assert_eq!(reply.status, 202);
    let id = reply.json().unwrap()["build_id"].clone();
    let Fixture { standalone, state } = fixture;
    standalone.stop();
    let standalone = crate::fixture::start(state.path(), &flags);
    let fixture = Fixture { standalone, state };
    let path = format!("/build_status?build_id={}", id.as_str().unwrap());
    let progress = fixture.get(&path).await;
    assert_eq!(progress["status"], "INTERNAL_ERROR");
    assert!(
        progress["error"].as_str().unwrap().contains("start again"),
        "{progress}"
    );
}
