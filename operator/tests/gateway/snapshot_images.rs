//! Images of snapshots: a registry, and the Pod of the sandbox, which delivers the layer.

use std::collections::HashSet;
use std::path::Path;

use crds::sandbox::SandboxStatus;
use futures::future::join_all;
use operator::gateway::{ApiSettings, GatewayConfig, RegistryArgs};
use operator::image_builds::ImageBuilds;
use operator::kubernetes::watch::WatchSink;
use serde_json::{Value, json};
use testing::{CapturedLog, FakeApi};

use crate::support::fake_registry::{FakeRegistry, digest_of};
use crate::support::gateway_fixture::{GatewayFixture, KEY, OTHER_KEY, config, ready};
use crate::support::layer_pod::{LayerPod, POD_UID};

const LAYER: &[u8] = b"not read by the gateway";
const CLAIM: &str = "claim";

struct Scene {
    fixture: GatewayFixture,
    registry: FakeRegistry,
    runtime: String,
    ip: &'static str,
    _config: tempfile::TempDir,
}

/// A gateway with a registry and a running sandbox at `ip`.
async fn scene(ip: &'static str) -> Scene {
    let registry = FakeRegistry::start().await;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("config.json");
    let auths = json!({"auths": {&registry.host: {}}});
    std::fs::write(&path, auths.to_string()).unwrap();
    let fixture = fixture_with(&registry.host, &path);
    // An old build that is not finished counts as interrupted.
    let now = jiff::Timestamp::now().to_string();
    fixture.api.set_creation_time(&now);
    let status = SandboxStatus {
        proves_address: true,
        pod_uid: Some(POD_UID.into()),
        workspace_claim: Some(CLAIM.into()),
        ..ready(ip)
    };
    let runtime = fixture.add(60000, &status);
    Scene {
        fixture,
        registry,
        runtime,
        ip,
        _config: directory,
    }
}

fn fixture_with(host: &str, registry_config: &Path) -> GatewayFixture {
    let mut config = GatewayConfig {
        settings: ApiSettings {
            registry_prefix: format!("{host}/agents"),
            image_builds: Some(ImageBuilds::Append),
            ..ApiSettings::default()
        },
        registry_owner: Some("default".into()),
        ..config()
    };
    let registries = RegistryArgs {
        config: Some(registry_config.to_owned()),
        insecure: vec![host.to_owned()],
    };
    config.open_registries(&registries).unwrap();
    let fixture = GatewayFixture::beside(&FakeApi::default(), config);
    fixture.gateway.image_builds().retain(&HashSet::new());
    fixture
}

impl Scene {
    /// A snapshot of this level whose sandbox ran `image`.
    async fn snapshot(&self, level: &str, image: &str) -> String {
        let id = self.fixture.snapshot(&self.runtime).await;
        let uid = self.fixture.stored(&self.runtime).metadata.uid;
        self.fixture.set_snapshot_status(
            &id,
            &json!({
                "phase": "Ready", "level": level, "tenant": "default", "sandboxUID": uid,
                "claim": CLAIM, "imageDigest": image, "template": {"image": "debian:12"},
            }),
        );
        id
    }

    fn target(&self, tag: &str) -> String {
        format!("{}/agents/runtime:{tag}", self.registry.host)
    }

    async fn ask(&self, id: &str, target: &str) -> (u16, Value) {
        let path = format!("/snapshots/{id}/image");
        self.fixture.post(&path, &json!({"target": target})).await
    }

    /// Progress of the image of a snapshot, once it has ended.
    async fn make(&self, id: &str, target: &str) -> Value {
        let (code, answer) = self.ask(id, target).await;
        assert_eq!(code, 202, "{answer}");
        let build = answer["build_id"].as_str().unwrap();
        self.fixture.progress(build).await
    }

    async fn pod(&self, layer: &[u8]) -> std::sync::Arc<LayerPod> {
        LayerPod::start(&self.fixture, &self.runtime, self.ip, layer).await
    }
}

#[tokio::test]
async fn snapshot_becomes_an_image_that_sessions_start() {
    let log = CapturedLog::start();
    let scene = scene("127.77.1.1").await;
    let pod = scene.pod(LAYER).await;
    let base = scene.registry.put_image("library/tools");
    let image = format!("{}/library/tools@{base}", scene.registry.host);
    let id = scene.snapshot("Root", &image).await;
    let target = scene.target("mine");
    let expected = json!({"status": "SUCCESS", "image": target, "error": null});
    assert_eq!(scene.make(&id, &target).await, expected);

    // The Pod was asked for this snapshot, with its key.
    let uid = scene.fixture.stored_snapshot(&id).metadata.uid.unwrap();
    let key = scene.fixture.keys.of(None).state_key(&uid);
    assert_eq!(pod.asked(), [(uid, key)]);

    // The image is the base with one layer more, all in the repository of the tenant.
    let repository = "agents/runtime";
    let manifest = scene.registry.manifest(repository, "mine").unwrap();
    let blob = |descriptor: &Value| {
        let digest = descriptor["digest"].as_str().unwrap();
        let blob = scene.registry.blob(repository, digest).unwrap();
        assert_eq!(digest_of(&blob), digest);
        assert_eq!(descriptor["size"], blob.len());
        blob
    };
    assert_eq!(manifest["layers"].as_array().unwrap().len(), 2);
    assert_eq!(&*blob(&manifest["layers"][0]), b"a layer of the image");
    blob(&manifest["layers"][1]);
    let config: Value = serde_json::from_slice(&blob(&manifest["config"])).unwrap();
    assert_eq!(config["rootfs"]["diff_ids"][1], digest_of(LAYER));
    assert_eq!(config["config"]["Env"], json!(["A=1"]));
    assert_eq!(
        config["config"]["Labels"]["openhands.dev/tenant"],
        "default"
    );

    assert!(scene.fixture.exists(KEY, &target).await);
    let started = scene.fixture.image_of_start(KEY, "s2", &target).await;
    let digest = digest_of(manifest.to_string().as_bytes());
    assert!(
        started.starts_with(&format!("{target}@sha256:")),
        "{started} {digest}"
    );
    let audit = log.of("audit", &["action", "snapshot", "outcome"]);
    assert!(
        audit.contains(&json!(["make-snapshot-image", id, "done"])),
        "{audit:?}"
    );

    // Calls for the same are one build, and the name is that of no other snapshot.
    let again = join_all((0..2).map(|_| scene.ask(&id, &target))).await;
    assert!(again[0].0 == 202 && again[0] == again[1], "{again:?}");
    assert_eq!(pod.asked().len(), 1);
    let other = scene.snapshot("Memory", &image).await;
    let (code, answer) = scene.ask(&other, &target).await;
    assert_eq!(code, 409);
    let taken = format!("{target} is the name of another image already");
    assert_eq!(answer, json!({"detail": taken}));
    // Of processes there is nothing in an image.
    let second = scene.target("second");
    assert_eq!(scene.make(&other, &second).await["status"], "SUCCESS");
}

#[tokio::test]
async fn concurrent_calls_for_one_target_make_one_image() {
    let scene = scene("127.77.1.2").await;
    let pod = scene.pod(LAYER).await;
    let base = scene.registry.put_image("agents/runtime");
    let image = format!("{}/agents/runtime@{base}", scene.registry.host);
    let id = scene.snapshot("Root", &image).await;
    let target = scene.target("mine");
    let asked = join_all((0..4).map(|_| scene.make(&id, &target))).await;
    for progress in asked {
        assert_eq!(progress["status"], "SUCCESS", "{progress}");
    }
    assert_eq!(pod.asked().len(), 1);
}

#[tokio::test]
async fn failures_of_sandbox_and_registry_are_told() {
    let scene = scene("127.77.1.3").await;
    let pod = scene.pod(b"").await;
    let base = scene.registry.put_image("library/tools");
    let host = &scene.registry.host;
    for (tag, image, said) in [
        (
            "a",
            format!("{host}/library/tools@{base}"),
            "the sandbox does not deliver the snapshot: the volume has no such snapshot",
        ),
        (
            "b",
            "debian:12".into(),
            "the gateway does not know its registry",
        ),
        ("c", "host".into(), "the gateway does not know its registry"),
    ] {
        let id = scene.snapshot("Root", &image).await;
        let progress = scene.make(&id, &scene.target(tag)).await;
        assert_eq!(progress["status"], "FAILURE", "{progress}");
        assert!(
            progress["error"].as_str().unwrap().contains(said),
            "{progress}"
        );
    }
    assert_eq!(pod.asked().len(), 1);
    assert!(scene.registry.manifest("agents/runtime", "a").is_none());
}

#[tokio::test]
async fn image_of_a_base_that_the_registry_lacks_fails() {
    let scene = scene("127.77.1.4").await;
    scene.pod(LAYER).await;
    let image = format!("{}/library/none@{}", scene.registry.host, digest_of(b""));
    let id = scene.snapshot("Root", &image).await;
    let progress = scene.make(&id, &scene.target("a")).await;
    let error = progress["error"].as_str().unwrap();
    assert!(error.contains("its registry does not have it"), "{error}");
}

#[tokio::test]
async fn snapshots_that_can_be_no_image_are_409() {
    let scene = scene("127.77.1.5").await;
    let image = format!("{}/library/tools@{}", scene.registry.host, digest_of(b""));
    let target = scene.target("a");
    let detail = async |id: &str| {
        let (code, answer) = scene.ask(id, &target).await;
        assert_eq!(code, 409, "{answer}");
        answer["detail"].as_str().unwrap().to_owned()
    };
    let files = scene.snapshot("Workspace", &image).await;
    assert!(
        detail(&files)
            .await
            .starts_with("a snapshot of level Workspace")
    );
    let pending = scene.fixture.snapshot(&scene.runtime).await;
    let text = "the snapshot is not ready: it is pending";
    assert_eq!(detail(&pending).await, text);
    let unknown = scene.snapshot("Root", "not an image").await;
    assert!(detail(&unknown).await.contains("which image"));
    let root = scene.snapshot("Root", &image).await;
    let text = "the sandbox of the snapshot does not run";
    for status in [
        json!({"sandboxUID": "earlier"}),
        json!({"claim": "another"}),
        json!({"sandboxUID": null}),
    ] {
        let mut known = serde_json::to_value(scene.fixture.stored_snapshot(&root).status).unwrap();
        let known = known.as_object_mut().unwrap();
        known.extend(status.as_object().unwrap().clone());
        let id = scene.snapshot("Root", &image).await;
        scene.fixture.set_snapshot_status(&id, &json!(known));
        assert_eq!(detail(&id).await, text);
    }
    let paused = SandboxStatus {
        phase: crds::sandbox::Phase::Paused,
        pod_ip: None,
        ..scene.fixture.stored(&scene.runtime).status.unwrap()
    };
    scene.fixture.report(&scene.runtime, &paused);
    assert_eq!(detail(&root).await, text);
}

#[tokio::test]
async fn target_must_be_a_tag_of_the_tenants_repository() {
    let scene = scene("127.77.1.6").await;
    let image = format!("{}/library/tools@{}", scene.registry.host, digest_of(b""));
    let id = scene.snapshot("Root", &image).await;
    let host = &scene.registry.host;
    for (target, said) in [
        (
            format!("{host}/agents/runtime"),
            "is not an image reference with a tag",
        ),
        (format!("{host}/agents/other:1"), "is not in the repository"),
        (
            "docker.io/library/debian:12".into(),
            "is not in the repository",
        ),
        (
            format!("{host}/agents/runtime:{}", "a".repeat(500)),
            "exceeds 512 bytes",
        ),
        (String::new(), "is not an image reference with a tag"),
    ] {
        let (code, answer) = scene.ask(&id, &target).await;
        let detail = answer["detail"].as_str().unwrap();
        assert!(code == 400 && detail.contains(said), "{answer}");
    }
    let path = format!("/snapshots/{id}/image");
    let (code, _) = scene.fixture.post(&path, &json!({})).await;
    assert_eq!(code, 400);
    assert_eq!(scene.ask("snap-none", &scene.target("a")).await.0, 404);
    // The other tenant has no repository in this registry, and no such snapshot.
    let body = json!({"target": scene.target("a")}).to_string();
    let (code, answer) = scene.fixture.call_as(OTHER_KEY, "POST", &path, &body).await;
    assert_eq!(code, 501, "{answer}");
}

#[tokio::test(start_paused = true)]
async fn without_image_builds_it_is_501() {
    let fixture = GatewayFixture::new();
    let runtime = fixture.add(60000, &ready("10.0.0.9"));
    let id = fixture.snapshot(&runtime).await;
    let body = json!({"target": "registry.example.com/agents/runtime:1"});
    let (code, answer) = fixture.post(&format!("/snapshots/{id}/image"), &body).await;
    assert_eq!(code, 501, "{answer}");
    let detail = answer["detail"].as_str().unwrap();
    assert!(
        detail.starts_with("image builds are not supported"),
        "{answer}"
    );
}
