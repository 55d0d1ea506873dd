//! Image builds as aliases, call by call (`docs/specs/runtime-api.md`, section 1.10): the four rungs
//! of the client's ladder, concurrency, tenants, and what is not accepted.

mod bad_forms;

use futures::future::join_all;
use http::Method;
use jiff::Timestamp;
use operator::kubernetes::watch::WatchSink;
use serde_json::{Value, json};
use testing::FakeApi;
use testing::image_build::{Release, Rung, context, dockerfile, form};

use crate::support::build_client::{REPOSITORY, fixture, image};
use crate::support::gateway_fixture::{GatewayFixture, KEY, OTHER_KEY};

const BASE: &str = "nikolaik/python-nodejs:python3.12-nodejs22";
const SOURCE: &str = "oh_v0.62.0_cee7jp6os74rw8yt_tn3hksxzqrips7lk";
const LOCK: &str = "oh_v0.62.0_cee7jp6os74rw8yt";
const VERSION: &str = "oh_v0.62.0_nikolaik_s_python-nodejs_t_python3.12-nodejs22";

/// Context of the newest client.
fn newest(rung: Rung, base: &str) -> String {
    context(&dockerfile(Release::V0_62, rung, base), 1_764_288_000)
}

/// Builds the image of a client for which nothing exists yet.
async fn build_from_scratch(fixture: &GatewayFixture) -> String {
    let tags = [image(LOCK), image(VERSION)];
    let tags: Vec<_> = tags.iter().map(String::as_str).collect();
    let context = newest(Rung::Scratch, BASE);
    fixture.build(&context, &image(SOURCE), &tags).await
}

/// The stored image builds.
fn stored(api: &FakeApi) -> Vec<Value> {
    let mut objects = api.objects();
    objects.retain(|object| object["kind"] == "ImageBuild");
    objects
}

#[tokio::test(start_paused = true)]
async fn image_is_an_alias_of_its_base_image() {
    let api = FakeApi::default();
    let fixture = fixture(&api);
    let prefix = json!({"registry_prefix": "registry.example.com/agents"});
    assert_eq!(fixture.found("/registry_prefix").await, prefix);
    for tag in [SOURCE, LOCK, VERSION] {
        assert!(!fixture.exists(KEY, &image(tag)).await);
    }
    let id = build_from_scratch(&fixture).await;
    let expected = json!({"status": "SUCCESS", "image": image(SOURCE), "error": null});
    assert_eq!(fixture.progress(&id).await, expected);
    for tag in [SOURCE, LOCK, VERSION] {
        assert!(fixture.exists(KEY, &image(tag)).await);
        assert_eq!(fixture.image_of_start(KEY, tag, &image(tag)).await, BASE);
    }
    let [build] = &stored(&api)[..] else {
        panic!("one build");
    };
    assert_eq!(build["metadata"]["name"], *id);
    let spec = &build["spec"];
    assert_eq!(
        (&spec["tenant"], &spec["mode"]),
        (&json!("default"), &json!("Alias"))
    );
    assert_eq!(
        (&spec["base"], &spec["target"]),
        (&json!(BASE), &json!(image(SOURCE)))
    );
    assert!(
        spec["contextDigest"]
            .as_str()
            .unwrap()
            .starts_with("sha256:")
    );
    assert_eq!(build["status"]["phase"], "Succeeded");
    let metrics = fixture.gateway.metrics();
    assert_eq!(metrics.image_builds("alias", "succeeded"), 1);
}

/// Parents are earlier aliases, so every rung ends at the same base image.
#[tokio::test(start_paused = true)]
async fn later_rungs_have_the_base_image_of_their_parent() {
    let oldest = (
        Rung::Versioned,
        VERSION,
        "v0.9.8_d41d8cd98f00b204e9800998ecf8427e",
    );
    let versioned = (Rung::Versioned, VERSION, "oh_v0.62.0_aaaa_bbbb");
    let lock = (Rung::Lock, LOCK, "oh_v0.62.0_cee7jp6os74rw8yt_cccc");
    for (release, rungs) in [
        (Release::V0_9, &[oldest][..]),
        (Release::V0_10, &[lock]),
        (Release::V0_54, &[versioned, lock]),
        (Release::V0_62, &[versioned, lock]),
    ] {
        let fixture = fixture(&FakeApi::default());
        build_from_scratch(&fixture).await;
        for &(rung, parent, target) in rungs {
            let text = dockerfile(release, rung, &image(parent));
            let id = fixture.build(&context(&text, 1), &image(target), &[]).await;
            let progress = fixture.progress(&id).await;
            assert_eq!(
                progress["status"], "SUCCESS",
                "{release:?} {rung:?}: {progress}"
            );
            let started = fixture.image_of_start(KEY, target, &image(target)).await;
            assert_eq!(started, BASE, "{release:?} {rung:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn tag_stays_with_its_first_build() {
    let fixture = fixture(&FakeApi::default());
    let other = newest(Rung::Scratch, "debian:11");
    build_from_scratch(&fixture).await;
    let target = image("oh_v0.62.0_other");
    fixture.build(&other, &target, &[&image(LOCK)]).await;
    assert_eq!(fixture.image_of_start(KEY, "a", &image(LOCK)).await, BASE);
    assert_eq!(fixture.image_of_start(KEY, "b", &target).await, "debian:11");
}

#[tokio::test(start_paused = true)]
async fn base_image_by_digest_is_kept() {
    let api = FakeApi::default();
    let fixture = fixture(&api);
    let digest = format!("sha256:{}", "ab".repeat(32));
    let base = format!("debian@{digest}");
    // Its version tag is not legal, and is left out.
    let version = image(&format!("oh_v0.62.0_debian@sha256_t_{}", "ab".repeat(32)));
    let context = newest(Rung::Scratch, &base);
    let id = fixture
        .build(&context, &image(SOURCE), &[&image(LOCK), &version])
        .await;
    assert_eq!(fixture.progress(&id).await["status"], "SUCCESS");
    let build = &stored(&api)[0];
    assert_eq!(build["spec"]["tags"], json!([image(LOCK)]));
    assert_eq!(build["status"]["digest"], *digest);
    assert_eq!(fixture.image_of_start(KEY, "a", &image(LOCK)).await, base);
    assert!(!fixture.exists(KEY, &version).await);
}

#[tokio::test(start_paused = true)]
async fn concurrent_and_repeated_builds_are_one() {
    let api = FakeApi::default();
    // An old build without a status counts as interrupted.
    api.set_creation_time(&Timestamp::now().to_string());
    let replicas = [fixture(&api), fixture(&api)];
    let builds = (0..50).map(|n| build_from_scratch(&replicas[n % 2]));
    let ids = join_all(builds).await;
    assert!(ids.iter().all(|id| *id == ids[0]));
    assert_eq!(stored(&api).len(), 1);
    for fixture in &replicas {
        assert_eq!(fixture.progress(&ids[0]).await["status"], "SUCCESS");
    }
    assert_eq!(build_from_scratch(&replicas[0]).await, ids[0]);
    // The times in an archive do not count, its contents do.
    let metrics = replicas[0].gateway.metrics();
    let text = dockerfile(Release::V0_62, Rung::Scratch, BASE);
    replicas[0]
        .build(&context(&text, 5), &image(SOURCE), &[])
        .await;
    assert_eq!(metrics.image_build_mismatches.get(), 0);
    let text = dockerfile(Release::V0_62, Rung::Scratch, "debian:11");
    replicas[0]
        .build(&context(&text, 5), &image(SOURCE), &[])
        .await;
    assert_eq!(metrics.image_build_mismatches.get(), 1);
    let started = replicas[0].image_of_start(KEY, "s", &image(SOURCE)).await;
    assert_eq!(started, BASE);
}

/// The watch of the other replica has not delivered the build yet.
#[tokio::test(start_paused = true)]
async fn target_is_known_to_every_replica_at_once() {
    let api = FakeApi::default();
    let (one, other) = (fixture(&api), fixture(&api));
    let id = build_from_scratch(&one).await;
    assert_eq!(other.progress(&id).await["status"], "SUCCESS");
    let late = fixture(&api);
    assert!(late.exists(KEY, &image(SOURCE)).await);
    let third = fixture(&api);
    assert_eq!(third.image_of_start(KEY, "s", &image(SOURCE)).await, BASE);
}

#[tokio::test(start_paused = true)]
async fn tenant_neither_sees_nor_replaces_builds_of_another() {
    let api = FakeApi::default();
    let fixture = fixture(&api);
    let id = build_from_scratch(&fixture).await;
    assert!(!fixture.exists(OTHER_KEY, &image(SOURCE)).await);
    let path = format!("/build_status?build_id={id}");
    assert_eq!(fixture.call_as(OTHER_KEY, "GET", &path, "").await.0, 404);
    let foreign = fixture.image_of_start(OTHER_KEY, "s", &image(SOURCE)).await;
    assert_eq!(foreign, image(SOURCE));
    let planted = newest(Rung::Scratch, "evil:1");
    let planted = form(&planted, &image(SOURCE), &[&image(LOCK)]);
    let (code, answer) = fixture.upload(OTHER_KEY, planted).await;
    assert_eq!(code, 202);
    assert_ne!(answer["build_id"], *id);
    assert_eq!(fixture.image_of_start(KEY, "s", &image(SOURCE)).await, BASE);
    assert_eq!(fixture.image_of_start(KEY, "t", &image(LOCK)).await, BASE);
    assert_eq!(stored(&api).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn build_that_cannot_be_an_alias_fails_with_advice() {
    let api = FakeApi::default();
    let fixture = fixture(&api);
    let plain = dockerfile(Release::V0_62, Rung::Scratch, BASE);
    let end = "# Set up environment for openhands user\n";
    let extra = format!("USER openhands\nRUN pip install numpy\n\n{end}");
    let extra = plain.replacen(end, &extra, 1);
    assert_ne!(extra, plain);
    let orphan = dockerfile(Release::V0_62, Rung::Lock, &image("oh_v0.62.0_gone"));
    for (text, reason, advice) in [
        (&*extra, "ExtraDependencies", "runtime_extra_deps"),
        (
            "FROM debian:12\nRUN true\n",
            "UnknownDockerfile",
            "released version",
        ),
        (&orphan, "UnknownParent", "oh_v0.62.0_gone"),
        ("RUN true\n", "InvalidBase", "FROM"),
        ("FROM ${BASE}\n", "InvalidBase", "FROM"),
    ] {
        let id = fixture.build(&context(text, 1), &image(SOURCE), &[]).await;
        let progress = fixture.progress(&id).await;
        assert_eq!(progress["status"], "FAILURE", "{reason}");
        let error = progress["error"].as_str().unwrap();
        assert!(error.contains(advice), "{error}");
        assert_eq!(stored(&api)[0]["status"]["reason"], reason);
        assert!(!fixture.exists(KEY, &image(SOURCE)).await);
    }
    // A failure does not keep the tag.
    build_from_scratch(&fixture).await;
    assert!(fixture.exists(KEY, &image(SOURCE)).await);
    assert_eq!(stored(&api).len(), 1);
    assert_eq!(fixture.gateway.metrics().image_builds("alias", "failed"), 5);
}

#[tokio::test(start_paused = true)]
async fn other_images_are_reported_as_existing_and_illegal_ones_as_missing() {
    let fixture = fixture(&FakeApi::default());
    for (image, exists) in [
        ("debian:12", true),
        ("registry.example.com/agents/runtime-x:1", true),
        (REPOSITORY, false),
        ("registry.example.com/agents/runtime:oh_v1_a@b", false),
        ("a b", false),
    ] {
        assert_eq!(
            fixture.exists(KEY, &image.replace(' ', "+")).await,
            exists,
            "{image}"
        );
    }
    assert_eq!(
        fixture.image_of_start(KEY, "s", &image("x")).await,
        image("x")
    );
    assert_eq!(fixture.get("/image_exists").await.0, 400);
}

/// The replica that created the object ended before it wrote the status.
#[tokio::test(start_paused = true)]
async fn interrupted_build_is_finished_by_the_next_one_or_reported() {
    let api = FakeApi::default();
    let fixture = fixture(&api);
    let id = build_from_scratch(&fixture).await;
    let path = format!("/apis/openhands.dev/v1alpha1/namespaces/sandboxes/imagebuilds/{id}");
    let mut object = api.object(&path);
    object.as_object_mut().unwrap().remove("status");
    api.put(&path, object);
    let next = crate::support::build_client::fixture(&api);
    let progress = next.progress(&id).await;
    assert_eq!(progress["status"], "INTERNAL_ERROR");
    assert!(progress["error"].as_str().unwrap().contains("start again"));
    assert_eq!(build_from_scratch(&next).await, id);
    assert_eq!(next.progress(&id).await["status"], "SUCCESS");
}

/// Another replica finishes it while the request is held.
#[tokio::test(start_paused = true)]
async fn status_request_is_held_until_the_build_has_finished() {
    let api = FakeApi::default();
    let fixture = fixture(&api);
    let id = build_from_scratch(&fixture).await;
    let path = format!("/apis/openhands.dev/v1alpha1/namespaces/sandboxes/imagebuilds/{id}");
    let finished = api.object(&path);
    let mut queued = finished.clone();
    queued.as_object_mut().unwrap().remove("status");
    api.put(&path, queued);
    let other = crate::support::build_client::fixture(&api);
    let held = other.progress(&id);
    let deliver = async {
        tokio::time::sleep(std::time::Duration::from_secs(40)).await;
        let stored = api.put(&path, finished);
        let index = other.gateway.image_builds();
        index.apply(serde_json::from_value(stored).unwrap());
    };
    let began = tokio::time::Instant::now();
    let (progress, ()) = tokio::join!(held, deliver);
    assert_eq!(progress["status"], "SUCCESS");
    assert_eq!(began.elapsed().as_secs(), 40);
}

/// The controller writes it.
#[tokio::test(start_paused = true)]
async fn running_build_reports_its_step() {
    let api = FakeApi::default();
    let fixture = fixture(&api);
    let id = build_from_scratch(&fixture).await;
    let mut events = fixture.synced_events().await;
    let path = format!("/apis/openhands.dev/v1alpha1/namespaces/sandboxes/imagebuilds/{id}");
    let mut object = api.object(&path);
    object["metadata"]["creationTimestamp"] = json!(Timestamp::now());
    object["status"] = json!({"phase": "Running", "message": "[2/5] RUN make"});
    let stored = api.put(&path, object);
    let index = fixture.gateway.image_builds();
    index.apply(serde_json::from_value(stored).unwrap());
    let mut expected = json!({"build_id": id, "status": "WORKING", "image": image(SOURCE),
        "error": null, "step": "[2/5] RUN make"});
    assert_eq!(events.expect().await.data, expected);
    expected.as_object_mut().unwrap().remove("build_id");
    assert_eq!(fixture.progress(&id).await, expected);
}

#[tokio::test(start_paused = true)]
async fn status_request_of_a_build_that_is_deleted_ends_as_cancelled() {
    let api = FakeApi::default();
    let fixture = fixture(&api);
    let id = build_from_scratch(&fixture).await;
    let path = format!("/apis/openhands.dev/v1alpha1/namespaces/sandboxes/imagebuilds/{id}");
    let mut queued = api.object(&path);
    queued.as_object_mut().unwrap().remove("status");
    api.put(&path, queued);
    let other = crate::support::build_client::fixture(&api);
    let delete = async {
        tokio::time::sleep(std::time::Duration::from_secs(10)).await;
        let uid = api.object(&path)["metadata"]["uid"].clone();
        let index = other.gateway.image_builds();
        index.forget(&id, uid.as_str().unwrap());
    };
    let (progress, ()) = tokio::join!(other.progress(&id), delete);
    assert_eq!(progress["status"], "CANCELLED", "{progress}");
}

#[tokio::test(start_paused = true)]
async fn use_of_an_image_is_recorded_at_most_once_an_hour() {
    let api = FakeApi::default();
    let fixture = fixture(&api);
    let id = build_from_scratch(&fixture).await;
    let patches = || {
        let is_patch = |(method, _): &&(Method, String)| *method == Method::PATCH;
        api.calls().iter().filter(is_patch).count()
    };
    let before = patches();
    assert!(fixture.exists(KEY, &image(LOCK)).await);
    assert_eq!(patches(), before);
    let path = format!("/apis/openhands.dev/v1alpha1/namespaces/sandboxes/imagebuilds/{id}");
    let mut object = api.object(&path);
    object["status"]["finishedAt"] = "2026-01-01T00:00:00Z".into();
    let stored = api.put(&path, object);
    let index = fixture.gateway.image_builds();
    index.apply(serde_json::from_value(stored).unwrap());
    for _ in 0..20 {
        assert!(fixture.exists(KEY, &image(LOCK)).await);
        tokio::task::yield_now().await;
    }
    assert_eq!(patches(), before + 1);
    assert!(api.object(&path)["status"]["lastUsedAt"].is_string());
    assert_eq!(api.object(&path)["status"]["phase"], "Succeeded");
}

#[tokio::test(start_paused = true)]
async fn outage_of_the_api_server_is_a_503() {
    let api = FakeApi::default();
    let fixture = fixture(&api);
    let id = build_from_scratch(&fixture).await;
    api.set_unavailable(true);
    // Known builds are answered.
    assert!(fixture.exists(KEY, &image(SOURCE)).await);
    assert_eq!(fixture.progress(&id).await["status"], "SUCCESS");
    let path = format!("/image_exists?image={}", image("unknown"));
    assert_eq!(fixture.get(&path).await.0, 503);
    let context = newest(Rung::Scratch, BASE);
    let (code, answer) = fixture.upload(KEY, form(&context, &image("x"), &[])).await;
    assert_eq!(code, 503, "{answer}");
}

#[tokio::test(start_paused = true)]
async fn builds_of_the_tenant_are_listed_newest_first() {
    let api = FakeApi::default();
    let fixture = fixture(&api);
    let mut ids = Vec::new();
    for (tag, second) in [
        ("oh_v0.62.0_a", 1),
        ("oh_v0.62.0_b", 3),
        ("oh_v0.62.0_c", 2),
    ] {
        api.set_creation_time(&format!("2026-01-02T03:04:0{second}Z"));
        let context = newest(Rung::Scratch, BASE);
        ids.push(fixture.build(&context, &image(tag), &[&image(LOCK)]).await);
        fixture.progress(&ids[ids.len() - 1]).await;
    }
    let mut list = fixture.found("/builds?limit=2").await;
    let listed: Vec<_> = list["builds"]
        .as_array()
        .unwrap()
        .iter()
        .map(|build| build["build_id"].clone())
        .collect();
    assert_eq!(
        (listed, &list["total"]),
        (vec![json!(ids[1]), json!(ids[2])], &json!(3))
    );
    let mut first = list["builds"][0].take();
    assert!(first["finished_at"].is_string(), "{first}");
    first["finished_at"] = "[time]".into();
    insta::assert_json_snapshot!("listed_build", first);
    let (code, other) = fixture.call_as(OTHER_KEY, "GET", "/builds", "").await;
    assert_eq!((code, other), (200, json!({"builds": [], "total": 0})));
    for limit in ["0", "501", "x"] {
        assert_eq!(fixture.get(&format!("/builds?limit={limit}")).await.0, 400);
    }
}
