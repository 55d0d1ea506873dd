//! Full image builds: any Dockerfile runs in a Pod of the node, and its image starts.

use std::fs;
use std::process::Command;

use client::BuildStatus;
use serde_json::json;
use tempfile::TempDir;
use tests::binaries::{binary, root};
use tests::image_builds::Builder;
use tests::registry::{LocalRegistry, PASSWORD, USER, image_of, small_root};
use tests::session::Session;

use crate::fixture::{Fixture, fixture_with};

const BUILDER: &str = "localhost/buildkit:1";

pub(crate) struct Scene {
    registry: LocalRegistry,
    pub(crate) fixture: Fixture,
    /// Base image that only the credentials of the server reach.
    pub(crate) base: String,
    _config: TempDir,
}

/// A server with full builds, whose registry wants tokens.
fn scene() -> Option<Scene> {
    scene_with(&[])
}

/// The same with further flags.
pub(crate) fn scene_with(more: &[&str]) -> Option<Scene> {
    let registry = LocalRegistry::with_tokens();
    let config = tempfile::tempdir().unwrap();
    let path = config.path().join("config.json");
    let login = json!({"username": USER, "password": PASSWORD});
    fs::write(
        &path,
        json!({"auths": {registry.host(): login}}).to_string(),
    )
    .unwrap();
    let layout = image_of(small_root().path(), &json!({"Env": ["PATH=/bin"]}));
    let base = registry.push(layout.path(), "team/base:1");
    let (host, path) = (registry.host(), path.display().to_string());
    let prefix = format!("{host}/team");
    let flags = [
        ["--url-form", "nested"],
        ["--image-builds", "full"],
        ["--registry-prefix", &prefix],
        ["--insecure-registries", &host],
        ["--registry-config", &path],
        ["--builder-image", BUILDER],
    ];
    let fixture = fixture_with(&[&flags.concat(), more].concat())?;
    load_builder(&fixture);
    Some(Scene {
        registry,
        fixture,
        base,
        _config: config,
    })
}

/// Adds the image of the builder to the store of the running server.
fn load_builder(fixture: &Fixture) {
    let made = Command::new(root().join("hack/image"))
        .arg("buildkit")
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&made.stderr);
    assert!(made.status.success(), "hack/image buildkit: {errors}");
    let archive = String::from_utf8(made.stdout).unwrap();
    let loaded = Command::new(binary("sandbox-standalone"))
        .arg("--state-dir")
        .arg(fixture.state.path())
        .args(["images", "load", archive.trim()])
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&loaded.stderr);
    assert!(loaded.status.success(), "{errors}");
}

impl Scene {
    fn image(&self, tag: &str) -> String {
        format!("{}/team/runtime:{tag}", self.registry.host())
    }

    fn builder(&self) -> Builder {
        Builder::new(self.fixture.api(), self.fixture.key())
    }

    /// `POST /build`; the id.
    pub(crate) async fn submit(&self, dockerfile: &str, tag: &str) -> String {
        self.builder().submit(dockerfile, &self.image(tag)).await
    }

    pub(crate) async fn end(&self, id: &str) -> BuildStatus {
        self.builder().end(id).await
    }

    async fn log(&self, id: &str) -> String {
        self.builder().log(id).await
    }
}

#[tokio::test]
async fn any_dockerfile_makes_an_image_that_starts() {
    let Some(scene) = scene() else {
        return;
    };
    let dockerfile = format!(
        "FROM {}\nRUN echo built by $(id -u) > /made && mkdir /owned && chown 33:34 /owned\n\
         COPY code/poetry.lock /copied\nENV MADE=yes\n",
        scene.base
    );
    let id = scene.submit(&dockerfile, "made").await;
    assert_eq!(scene.submit(&dockerfile, "made").await, id);
    let log = scene.log(&id).await;
    assert!(log.contains("RUN echo built"), "{log}");
    let image = scene.image("made");
    let end = BuildStatus {
        status: "SUCCESS".into(),
        image: image.clone(),
        error: None,
        step: None,
    };
    assert_eq!(scene.end(&id).await, end);

    let fixture = &scene.fixture;
    let status =
        |field: &str| fixture.kubectl(&format!("get imgb {id} -o jsonpath={{.status.{field}}}"));
    let escaped = image.replace('/', "%2F").replace(':', "%3A");
    let exists = fixture.get(&format!("/image_exists?image={escaped}")).await;
    assert_eq!(
        exists["image"]["image_size_bytes"].to_string(),
        status("sizeBytes")
    );
    let started = json!({"session_id": "s", "image": image, "working_dir": "/workspace",
        "command": ["python", "-u", "-m", "openhands.runtime.action_execution_server", "60000",
            "--working-dir", "/workspace", "--username", "root", "--user-id", "0"]});
    let session = Session::start(fixture.api(), fixture.key(), &started).await;
    let found = session
        .run("cat /made /copied; stat -c %u:%g /owned; echo $MADE")
        .await;
    assert!(found.contains("built by 0\nlock\n33:34\nyes"), "{found}");
    let stored = fixture.kubectl("get sbx -o jsonpath={.items[0].spec.image}");
    assert_eq!(stored, format!("{image}@{}", status("digest")));

    // Its Pod is gone, and its log is kept. The registry has its context no longer.
    assert_eq!(fixture.kubectl("get pods -n sandbox-builds -o name"), "");
    assert!(scene.log(&id).await.contains("RUN echo built"));
    assert!(
        !scene
            .registry
            .tags("team/runtime")
            .contains(&format!("ctx-{id}"))
    );
    let left = fs::read_dir(fixture.state.path().join("image-builds")).unwrap();
    assert_eq!(left.count(), 0);
}

#[tokio::test]
async fn failing_step_is_told_with_its_output() {
    let Some(scene) = scene() else {
        return;
    };
    let dockerfile = format!(
        "FROM {}\nRUN echo the trouble is here >&2; exit 7\n",
        scene.base
    );
    let id = scene.submit(&dockerfile, "failing").await;
    let end = scene.end(&id).await;
    assert_eq!(end.status, "FAILURE");
    let error = end.error.unwrap();
    assert!(error.contains("the trouble is here"), "{error}");
    assert!(error.contains("exit code: 7"), "{error}");
    // Corrected, under the same name.
    let corrected = format!("FROM {}\nRUN echo fine\n", scene.base);
    let id = scene.submit(&corrected, "failing").await;
    assert_eq!(scene.end(&id).await.status, "SUCCESS");
}

#[tokio::test]
async fn deleted_build_ends_with_its_pod() {
    let Some(scene) = scene() else {
        return;
    };
    let dockerfile = format!("FROM {}\nRUN sleep 600\n", scene.base);
    let id = scene.submit(&dockerfile, "endless").await;
    let fixture = &scene.fixture;
    scene.builder().wait_step(&id, "RUN sleep 600").await;
    fixture.kubectl(&format!("delete imgb {id}"));
    fixture.kubectl(&format!(
        "wait -n sandbox-builds pod/{id} --for=delete --timeout=60s"
    ));
}
