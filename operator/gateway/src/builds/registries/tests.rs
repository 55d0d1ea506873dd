use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use axum::Router;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use futures::future::join_all;
use http::{Method, StatusCode};
use parking_lot::Mutex;
use tokio::net::TcpListener;

use super::*;

/// Manifest and configuration of an image of 1234 bytes.
const CONFIG: &str = r#"{"created": "2026-01-02T03:04:05Z", "rootfs": {"diff_ids": []}}"#;

fn manifest() -> String {
    let (config, layer) = (Digest::of(CONFIG.as_bytes()), Digest::of(b"layer"));
    let size = CONFIG.len();
    let rest = 1234 - size;
    format!(
        r#"{{"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": {{"mediaType": "application/vnd.oci.image.config.v1+json",
            "digest": "{config}", "size": {size}}},
        "layers": [{{"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip",
            "digest": "{layer}", "size": {rest}}}]}}"#
    )
}

type Answer = fn(&Request) -> Option<StatusCode>;

/// Registry with that image under every tag but `missing`; `refuse` answers first.
struct Fake {
    refuse: Answer,
    heads: AtomicUsize,
    accepted: Mutex<BTreeSet<String>>,
}

async fn answer(State(fake): State<Arc<Fake>>, request: Request) -> Response {
    let path = request.uri().path().to_owned();
    let is_head = request.method() == Method::HEAD;
    fake.heads.fetch_add(usize::from(is_head), Relaxed);
    if let Some(accept) = request.headers().get("accept").filter(|_| is_head) {
        let types = accept.to_str().unwrap().split(", ").map(str::to_owned);
        fake.accepted.lock().extend(types);
    }
    if let Some(status) = (fake.refuse)(&request) {
        return status.into_response();
    }
    if path.contains("/blobs/") {
        return CONFIG.into_response();
    }
    if path.ends_with("/missing") {
        return StatusCode::NOT_FOUND.into_response();
    }
    let manifest = manifest();
    let digest = Digest::of(manifest.as_bytes()).to_string();
    ([("docker-content-digest", digest)], manifest).into_response()
}

async fn start(refuse: Answer) -> (Arc<Fake>, Registries, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let host = listener.local_addr().unwrap().to_string();
    let fake = Arc::new(Fake {
        refuse,
        heads: AtomicUsize::new(0),
        accepted: Mutex::default(),
    });
    let router = Router::new().fallback(answer).with_state(fake.clone());
    tokio::spawn(async { axum::serve(listener, router).await.unwrap() });
    let registries = Registries::new(&RegistryArgs {
        config: None,
        insecure: vec![host.clone()],
    });
    (fake, registries.unwrap(), host)
}

fn reference(host: &str, tag: &str) -> Reference {
    format!("{host}/team/runtime:{tag}").parse().unwrap()
}

#[tokio::test]
async fn image_is_described_once_for_all_who_ask() {
    let (fake, registries, host) = start(|_| None).await;
    let image = reference(&host, "a");
    let found = join_all((0..50).map(|_| registries.find(&image))).await;
    for found in found {
        let found = found.unwrap().unwrap();
        assert_eq!(
            (found.size, &*found.created),
            (1234, "2026-01-02T03:04:05Z")
        );
        assert_eq!(found.digest, Digest::of(manifest().as_bytes()));
    }
    assert_eq!(fake.heads.load(Relaxed), 1);
    // Without all four, registries say that an image is missing.
    assert_eq!(fake.accepted.lock().len(), 4);
    let missing = reference(&host, "missing");
    assert_eq!(registries.find(&missing).await.unwrap(), None);
    assert_eq!(registries.find(&missing).await.unwrap(), None);
    assert_eq!(fake.heads.load(Relaxed), 2);
    registries.forget(&missing).await;
    registries.find(&missing).await.unwrap();
    assert_eq!(fake.heads.load(Relaxed), 3);
}

#[tokio::test]
async fn registry_without_head_is_asked_for_the_document() {
    let refuse: Answer =
        |request| (request.method() == Method::HEAD).then_some(StatusCode::METHOD_NOT_ALLOWED);
    let (_, registries, host) = start(refuse).await;
    let found = registries.find(&reference(&host, "a")).await.unwrap();
    assert_eq!(found.unwrap().size, 1234);
    let missing = registries.find(&reference(&host, "missing")).await;
    assert_eq!(missing.unwrap(), None);
}

#[tokio::test]
async fn refusal_and_silence_are_errors_and_not_remembered() {
    let (fake, registries, host) = start(|_| Some(StatusCode::FORBIDDEN)).await;
    let image = reference(&host, "a");
    for asked in 1..=2 {
        let error = registries.find(&image).await.unwrap_err();
        assert!(error.is_denied(), "{error}");
        assert_eq!(fake.heads.load(Relaxed), asked);
    }
    let gone = reference("127.0.0.1:1", "a");
    let error = registries.find(&gone).await.unwrap_err();
    assert!(!error.is_denied(), "{error}");
}

#[tokio::test]
async fn configuration_is_read_again_and_never_shown() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let registries = Registries::new(&RegistryArgs {
        config: Some(file.path().to_owned()),
        insecure: Vec::new(),
    });
    let registries = registries.unwrap();
    let image = reference("registry.example.com", "a");
    for (text, named) in [
        (r#"{"auths": {"registry.example.com": {}}}"#, Ok(true)),
        (
            r#"{"auths": {"registry.example.com/other": {}}}"#,
            Ok(false),
        ),
        ("hunter2", Err(())),
    ] {
        std::fs::write(file.path(), text).unwrap();
        let found = registries.names(&image).await;
        let shown = found.as_ref().err().map(ToString::to_string);
        assert!(!shown.unwrap_or_default().contains("hunter2"));
        assert_eq!(found.map_err(|_| ()), named, "{text}");
    }
}
