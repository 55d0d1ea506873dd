//! V0 without an image of its own (`docs/specs/runtime-api.md`, sections 1.10 and 3.2, step 3): at a
//! server that makes aliases, and at one that builds no images.

use futures::future::join_all;
use http::Method;
use hyper::body::Bytes;
use serde_json::json;
use testing::image_build::{self, FORM_TYPE, Release, Rung};
use tests::clients::{BuildConfig, ClientException, HttpClient, V0, V0Config};

use crate::fixture::{CALL_TIMEOUT, Fixture, connected, fixture_with};

/// A build context as it is sent: tens of MiB.
const CONTEXT: usize = 40 << 20;
const REPOSITORY: &str = "registry.example.com/agents/runtime";

fn standalone(more: &[&str]) -> Option<Fixture> {
    let prefix = ["--registry-prefix", "registry.example.com/agents/"];
    fixture_with(&[&["--url-form", "nested"], &prefix[..], more].concat())
}

fn unnamed(fixture: &Fixture, session: &str, build: &BuildConfig) -> V0Config {
    let mut config = fixture.v0(session);
    config.image = None;
    config.build = build.clone();
    config
}

/// Image that the Sandbox of a client runs.
fn stored_image(fixture: &Fixture, client: &V0) -> String {
    fixture.kubectl(&format!(
        "get sbx {} -o jsonpath={{.spec.image}}",
        client.id()
    ))
}

/// Calls up to `/start`: each as its tag, where it names one.
fn ladder(client: &V0, build: &BuildConfig) -> Vec<String> {
    let tags = build.tags();
    let calls = client.wire.calls();
    let calls = calls
        .iter()
        .skip_while(|call| !call.contains("registry_prefix"));
    let calls = calls.take_while(|call| !call.starts_with("POST /start"));
    let short = |call: &String| {
        let name = call.strip_suffix(" 200").or(call.strip_suffix(" 202"));
        let name = name.unwrap_or(call).rsplit("%3A").next().unwrap_or(call);
        match name {
            name if name == tags.source => "source".to_owned(),
            name if name == tags.lock => "lock".to_owned(),
            name if name == tags.version => "version".to_owned(),
            name => name.split('?').next().unwrap_or(name).to_owned(),
        }
    };
    calls.map(short).collect()
}

fn words(text: &str) -> Vec<String> {
    text.split(", ").map(str::to_owned).collect()
}

/// Every rung of the ladder, with the client's calls in their order; each ends in a sandbox of the
/// base image.
#[tokio::test]
async fn image_of_every_rung_is_an_alias_and_starts() {
    let Some(fixture) = standalone(&[]) else {
        return;
    };
    for (release, version) in [
        (Release::V0_10, "0.10.0"),
        (Release::V0_54, "0.54.0"),
        (Release::V0_62, "0.62.0"),
    ] {
        let scratch = BuildConfig {
            release,
            version: version.into(),
            ..BuildConfig::default()
        };
        let mut lock = scratch.clone();
        lock.source = "1111111111111111".into();
        let mut versioned = scratch.clone();
        versioned.source = "2222222222222222".into();
        versioned.lock_files[1] = "other lock\n".into();
        let of_scratch = match release {
            Release::V0_10 => "source, lock, source, lock",
            _ => "source, lock, version, source, lock, version",
        };
        let of_versioned = match release {
            Release::V0_10 => "source, lock, source, lock",
            _ => "source, lock, version, source, lock",
        };
        for (rung, build, asked) in [
            ("scratch", &scratch, of_scratch),
            ("none", &scratch, "source"),
            ("lock", &lock, "source, lock, source, lock"),
            ("versioned", &versioned, of_versioned),
        ] {
            let session = format!("{version}-{rung}");
            let mut client = connected(unnamed(&fixture, &session, build)).await;
            assert_eq!(client.run("echo here").await.unwrap(), "here", "{session}");
            let mut expected = words(&format!("GET /registry_prefix, {asked}"));
            if rung != "none" {
                expected.extend(words("POST /build, GET /build_status"));
            }
            expected.push("source".into());
            assert_eq!(ladder(&client, build), expected, "{session}");
            assert_eq!(stored_image(&fixture, &client), build.base, "{session}");
            client.close().await.unwrap();
        }
    }
    let listed = fixture.kubectl("get imgb --no-headers");
    assert_eq!(listed.lines().count(), 9, "{listed}");
    assert!(
        listed
            .lines()
            .all(|line| line.contains("Alias   Succeeded")),
        "{listed}"
    );
}

#[tokio::test]
async fn concurrent_clients_share_one_build() {
    let Some(fixture) = standalone(&[]) else {
        return;
    };
    let build = BuildConfig::default();
    let target = format!("{REPOSITORY}:{}", build.tags().source);
    let text = image_build::dockerfile(build.release, Rung::Scratch, &build.base);
    let url = format!("{}/build", fixture.api());
    let wire =
        HttpClient::with_headers(&[("X-API-Key", fixture.key()), ("Content-Type", FORM_TYPE)]);
    let builds = (0..50).map(|seconds| {
        let form = image_build::form(&image_build::context(&text, seconds), &target, &[]);
        wire.send(Method::POST, &url, form.into(), CALL_TIMEOUT)
    });
    let replies = join_all(builds).await;
    let ids: Vec<_> = replies
        .into_iter()
        .map(|reply| {
            let reply = reply.unwrap();
            assert_eq!(reply.status, 202);
            reply.json().unwrap()["build_id"].clone()
        })
        .collect();
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    assert_eq!(fixture.kubectl("get imgb -o name").lines().count(), 1);
    let id = ids[0].as_str().unwrap();
    let status = fixture.get(&format!("/build_status?build_id={id}")).await;
    assert_eq!(
        (&status["status"], &status["image"]),
        (&json!("SUCCESS"), &json!(target))
    );
}

/// A build is stored: status and image survive a restart.
#[tokio::test]
async fn build_survives_a_restart() {
    let Some(fixture) = standalone(&[]) else {
        return;
    };
    let build = BuildConfig::default();
    let mut client = connected(unnamed(&fixture, "before", &build)).await;
    client.close().await.unwrap();
    let Fixture { standalone, state } = fixture;
    drop(standalone);
    let args = [
        "--url-form",
        "nested",
        "--registry-prefix",
        "registry.example.com/agents",
    ];
    let standalone = crate::fixture::start(state.path(), &args);
    let fixture = Fixture { standalone, state };
    let mut client = connected(unnamed(&fixture, "after", &build)).await;
    let expected = words("GET /registry_prefix, source, source");
    assert_eq!(ladder(&client, &build), expected);
    assert_eq!(client.run("echo again").await.unwrap(), "again");
    client.close().await.unwrap();
}

#[tokio::test]
async fn client_is_told_what_to_do_when_a_build_cannot_be_an_alias() {
    let Some(fixture) = standalone(&[]) else {
        return;
    };

    let build = BuildConfig {
        base: "MyOrg/MyImage:V1.0".into(),
        ..BuildConfig::default()
    };
    let mut client = V0::new(unnamed(&fixture, "s", &build));
    let error = client.connect().await.unwrap_err();
    let ClientException::Unavailable(text) = &error else {
        panic!("{error:?}");
    };
    assert!(text.contains("runtime_container_image"), "{text}");
    let reason = "get imgb -o jsonpath={.items[0].status.reason}";
    assert_eq!(fixture.kubectl(reason), "InvalidBase");
}

#[tokio::test]
async fn unnamed_image_is_assumed_to_exist_and_started_when_builds_are_off() {
    let Some(fixture) = standalone(&["--image-builds", "off"]) else {
        return;
    };
    let build = BuildConfig::default();
    let mut client = connected(unnamed(&fixture, "s", &build)).await;
    assert_eq!(client.run("echo here").await.unwrap(), "here");
    let expected = words("GET /registry_prefix, source, source");
    assert_eq!(ladder(&client, &build), expected);
    let image = format!("{REPOSITORY}:{}", build.tags().source);
    assert_eq!(stored_image(&fixture, &client), image);
    client.close().await.unwrap();
}

#[tokio::test]
async fn build_is_rejected_with_a_detail_after_the_whole_upload_when_builds_are_off() {
    let Some(fixture) = standalone(&["--image-builds", "off"]) else {
        return;
    };
    let wire =
        HttpClient::with_headers(&[("X-API-Key", fixture.key()), ("Content-Type", FORM_TYPE)]);
    let form = image_build::form(&"A".repeat(CONTEXT), &format!("{REPOSITORY}:x"), &[]);
    let url = format!("{}/build", fixture.api());
    let build = wire.send(Method::POST, &url, Bytes::from(form), CALL_TIMEOUT);
    let ClientException::Http { status, detail } = build.await.unwrap().error() else {
        panic!("no answer of HTTP");
    };
    assert_eq!(status, 501);
    // It is told what to do instead.
    assert!(detail.is_some_and(|detail| detail.contains("runtime_container_image")));
    let unknown = wire.get(&format!("{url}_status?build_id=1")).await;
    assert_eq!(unknown.status, 404);
    assert!(unknown.body["detail"].is_string());
    // A stranger is not even listened to, and is told so all the same.
    let stranger = HttpClient::new("wrong");
    let body = json!({"context": "A".repeat(CONTEXT)}).to_string();
    let refused = stranger.send(Method::POST, &url, body.into(), CALL_TIMEOUT);
    assert_eq!(refused.await.unwrap().status, 401);
}

/// The first bad byte does not end the connection: the client gets its response.
#[tokio::test]
async fn faulty_upload_is_answered_after_its_end() {
    let Some(fixture) = standalone(&[]) else {
        return;
    };
    let wire =
        HttpClient::with_headers(&[("X-API-Key", fixture.key()), ("Content-Type", FORM_TYPE)]);
    let noise = format!("!{}", "A".repeat(CONTEXT));
    let form = image_build::form(&noise, &format!("{REPOSITORY}:x"), &[]);
    let url = format!("{}/build", fixture.api());
    let build = wire.send(Method::POST, &url, form.into(), CALL_TIMEOUT);
    let ClientException::Http { status, detail } = build.await.unwrap().error() else {
        panic!("no answer of HTTP");
    };
    assert_eq!(status, 400);
    assert!(detail.is_some_and(|detail| detail.contains("base64")));
}
