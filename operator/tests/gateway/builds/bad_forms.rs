//! Forms that are not accepted: status 400 or 413, an object with `detail`, and nothing stored.

use axum::body::Body;
use bytes::Bytes;
use futures::stream;
use testing::FakeApi;
use testing::image_build::{Release, Rung, context, dockerfile, encode, form, form_of};

use crate::support::build_client::{fixture, image};
use crate::support::gateway_fixture::{GatewayFixture, KEY};

const TARGET: &str = "registry.example.com/agents/runtime:oh_v0.62.0_a_b";

fn good_context() -> String {
    context(&dockerfile(Release::V0_62, Rung::Scratch, "debian:11"), 1)
}

/// Sends a form that must be rejected for this reason.
async fn assert_rejected(fixture: &GatewayFixture, body: impl Into<Body>, code: u16, text: &str) {
    let (status, answer) = fixture.upload(KEY, body).await;
    let detail = answer["detail"].as_str().unwrap_or_default();
    assert!(
        status == code && detail.contains(text),
        "{status} {answer}, not {text}"
    );
    assert!(fixture.api.objects().is_empty());
}

#[tokio::test]
async fn incomplete_or_disordered_form_is_rejected() {
    let fixture = fixture(&FakeApi::default());
    let context = &*good_context();
    let (build, target, tag) = (
        ("context", context),
        ("target_image", TARGET),
        ("tags", TARGET),
    );
    for (parts, text) in [
        (vec![], "lacks context"),
        (vec![build], "lacks target_image"),
        (vec![("unknown", "x"), build], "lacks target_image"),
        (vec![target, build], "target_image in the wrong place"),
        (vec![build, tag, target], "tags in the wrong place"),
        (vec![build, target, build], "context in the wrong place"),
        (
            vec![build, target, target],
            "target_image in the wrong place",
        ),
    ] {
        assert_rejected(&fixture, form_of(parts), 400, text).await;
    }
    let tags = [tag; 9];
    let many = form_of([build, target].into_iter().chain(tags));
    assert_rejected(&fixture, many, 400, "more than 8 tags").await;
    let long = "a".repeat(513);
    let long = form_of([build, ("target_image", &*long)]);
    assert_rejected(&fixture, long, 400, "target_image exceeds 512 bytes").await;
    assert_rejected(&fixture, "no form", 400, "not a form").await;
    let cut = form(context, TARGET, &[]);
    let cut = cut[..cut.len() / 2].to_vec();
    assert_rejected(&fixture, cut, 400, "").await;
    let (code, _) = fixture.call_as(KEY, "POST", "/build", "{}").await;
    assert_eq!(code, 400);
}

#[tokio::test]
async fn foreign_or_illegal_reference_is_rejected() {
    let fixture = fixture(&FakeApi::default());
    let context = good_context();
    for (target, text) in [
        (
            "debian:12",
            "not in the repository registry.example.com/agents/runtime",
        ),
        (
            "registry.example.com/agents/runtime-x:1",
            "not in the repository",
        ),
        (
            "registry.example.com/agents/runtime/x:1",
            "not in the repository",
        ),
        ("registry.example.com/agents/runtime", "with a tag"),
        ("", "with a tag"),
        ("a b:1", "with a tag"),
    ] {
        let form = form(&context, target, &[]);
        assert_rejected(&fixture, form, 400, text).await;
    }
    let foreign = form(&context, TARGET, &["ghcr.io/openhands/runtime:1"]);
    assert_rejected(&fixture, foreign, 400, "ghcr.io/openhands/runtime:1").await;
}

#[tokio::test]
async fn hostile_context_is_rejected() {
    let fixture = fixture(&FakeApi::default());
    for (context, text) in [
        ("", "not usable"),
        ("hello, world", "base64"),
        ("AAAA", "base64"),
        (&encode(b""), "no Dockerfile"),
        (&encode(&[7; 4096]), "not usable"),
    ] {
        let form = form(context, TARGET, &[]);
        assert_rejected(&fixture, form, 400, text).await;
    }
}

/// The rest of a long upload is read, so that the client gets the response.
#[tokio::test]
async fn rest_of_a_faulty_form_is_read() {
    let fixture = fixture(&FakeApi::default());
    let noise = format!("!{}", "A".repeat(8 << 20));
    let form = form(&noise, TARGET, &[]);
    let left = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(form.len()));
    let counter = left.clone();
    let chunks: Vec<_> = form.chunks(64 << 10).map(Bytes::copy_from_slice).collect();
    let chunks = chunks.into_iter().map(move |chunk| {
        counter.fetch_sub(chunk.len(), std::sync::atomic::Ordering::Relaxed);
        Ok::<_, std::convert::Infallible>(chunk)
    });
    let body = Body::from_stream(stream::iter(chunks));
    assert_rejected(&fixture, body, 400, "base64").await;
    assert_eq!(left.load(std::sync::atomic::Ordering::Relaxed), 0);
}

#[tokio::test]
async fn form_above_the_limit_is_rejected() {
    let fixture = fixture(&FakeApi::default());
    let head = form("", TARGET, &[]);
    let head = Bytes::from(head[..120].to_vec());
    let chunk = Bytes::from(vec![b'A'; 1 << 20]);
    let chunks = std::iter::once(head).chain(std::iter::repeat_n(chunk, 257));
    let chunks = chunks.map(Ok::<_, std::convert::Infallible>);
    let body = Body::from_stream(stream::iter(chunks));
    let (code, answer) = fixture.upload(KEY, body).await;
    assert_eq!(code, 413, "{answer}");
    assert!(answer["detail"].as_str().unwrap().contains("256 MiB"));
}

#[tokio::test]
async fn upload_without_end_is_given_up() {
    tokio::time::pause();
    let fixture = fixture(&FakeApi::default());
    let silent = stream::pending::<Result<Bytes, std::convert::Infallible>>();
    let body = Body::from_stream(silent);
    assert_rejected(&fixture, body, 400, "within 120 s").await;
    assert!(!fixture.exists(KEY, &image("a")).await);
}
