//! The client against a registry that misbehaves.

use std::sync::atomic::{AtomicUsize, Ordering};

use axum::body::Body;
use axum::extract::Request;
use futures::stream;
use http::header::{AUTHORIZATION, LOCATION, WWW_AUTHENTICATE};
use parking_lot::Mutex;

use super::fake::{FakeRegistry, response};
use super::*;

/// Body that ends with an error after `content`.
fn broken(content: &[u8]) -> Body {
    let content = Bytes::copy_from_slice(content);
    let pieces = [Ok(content), Err(std::io::Error::other("broken"))];
    Body::from_stream(stream::iter(pieces))
}

fn blob(content: &[u8]) -> Descriptor {
    Descriptor::blob(Digest::of(content), content.len() as u64)
}

fn credentials(host: &str) -> Credentials {
    let json = serde_json::json!({"auths": {host: {"username": "me", "password": "hunter2"}}});
    Credentials::parse(json.to_string().as_bytes()).unwrap()
}

fn none() -> Credentials {
    Credentials::default()
}

struct Download {
    directory: tempfile::TempDir,
    result: Result<(), RegistryError>,
    progress: u64,
}

impl Download {
    /// Downloads `content` from `fake`, into a directory that has `part` of it.
    async fn run(fake: &FakeRegistry, content: &[u8], part: &[u8]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        if !part.is_empty() {
            std::fs::write(directory.path().join("blob.part"), part).unwrap();
        }
        let into = directory.path().join("blob");
        let progress = std::sync::atomic::AtomicU64::new(0);
        let add = |bytes| {
            progress.fetch_add(bytes, Ordering::Relaxed);
        };
        let (reference, blob) = (fake.reference("a:1"), blob(content));
        let registry = fake.registry();
        let result = registry
            .download(&reference, &blob, &none(), &into, add)
            .await;
        Self {
            directory,
            result,
            progress: progress.into_inner(),
        }
    }

    fn files(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.directory.path()).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.collect()
    }

    fn assert_complete(&self, content: &[u8]) {
        self.result.as_ref().unwrap();
        assert_eq!(self.files(), ["blob"]);
        let found = std::fs::read(self.directory.path().join("blob")).unwrap();
        assert_eq!(
            (found.as_slice(), self.progress),
            (content, content.len() as u64)
        );
    }
}

fn start_of_range(request: &Request) -> usize {
    let range = request.headers().get(RANGE_HEADER);
    let range = range.map(|range| range.to_str().unwrap());
    range.map_or(0, |range| range[6..range.len() - 1].parse().unwrap())
}

const RANGE_HEADER: &str = "range";

fn content() -> Vec<u8> {
    (0..300_000_u32).map(|n| (n * 7 % 251) as u8).collect()
}

#[tokio::test]
async fn interrupted_download_goes_on_where_it_stopped() {
    let all = content();
    let sent = AtomicUsize::new(0);
    let served = all.clone();
    let fake = FakeRegistry::start(move |_, request| {
        let start = start_of_range(request);
        let range = format!("bytes {start}-{}/{}", served.len() - 1, served.len());
        let status = if start == 0 { 200 } else { 206 };
        let body = match sent.fetch_add(1, Ordering::Relaxed) {
            0..4 => broken(&served[start..start + 50_000]),
            _ => served[start..].to_vec().into(),
        };
        response(status, &[("content-range", &range)], body)
    })
    .await;
    let download = Download::run(&fake, &all, &all[..1000]).await;
    download.assert_complete(&all);
    assert_eq!(fake.paths().len(), 5);
}

#[tokio::test]
async fn registry_without_ranges_sends_everything_again() {
    let all = content();
    let served = all.clone();
    let fake = FakeRegistry::start(move |_, _| response(200, &[], served.clone())).await;
    for part in [
        &b"other content"[..],
        &all[..5000],
        &[all.clone(), vec![0]].concat(),
    ] {
        let download = Download::run(&fake, &all, part).await;
        download.result.as_ref().unwrap();
        assert_eq!(download.files(), ["blob"]);
    }
}

#[tokio::test]
async fn wrong_content_is_refused_and_removed() {
    let all = content();
    let mut corrupt = all.clone();
    corrupt[1000] ^= 1;
    let long = [all.clone(), b"more".to_vec()].concat();
    let endless = Body::from_stream(stream::repeat_with(|| Ok::<_, std::io::Error>("12345678")));
    for (body, expected) in [
        (corrupt.into(), "content has digest sha256:"),
        (long.into(), "more than the 300000 bytes of its manifest"),
        (endless, "more than the 300000 bytes of its manifest"),
    ] {
        let body = Mutex::new(Some(body));
        let fake = FakeRegistry::start(move |_, _| {
            response(200, &[], body.lock().take().unwrap_or_else(Body::empty))
        })
        .await;
        let download = Download::run(&fake, &all, b"").await;
        let error = download.result.as_ref().unwrap_err();
        assert!(matches!(error, RegistryError::Refused { .. }), "{error}");
        assert!(error.to_string().contains(expected), "{error}");
        let left = download.directory.path().join("blob.part");
        let left = std::fs::metadata(left).map_or(0, |part| part.len());
        assert_eq!(left, 0);
    }
}

#[tokio::test]
async fn short_and_silent_registries_are_given_up() {
    let all = content();
    let fake = FakeRegistry::start(|_, _| response(206, &[], "")).await;
    let error = Download::run(&fake, &all, b"").await.result.unwrap_err();
    assert!(error.to_string().ends_with("ends after 0 bytes"), "{error}");
    let fake = FakeRegistry::start(|_, _| response(200, &[], broken(b""))).await;
    let error = Download::run(&fake, &all, b"").await.result.unwrap_err();
    assert!(
        matches!(error, RegistryError::Unreachable { .. }),
        "{error}"
    );
    // Four downloads of three attempts each.
    assert_eq!(fake.paths().len(), 12);
}

#[tokio::test]
async fn concurrent_downloads_of_a_blob_share_one_transfer() {
    let all = content();
    let served = all.clone();
    let fake = FakeRegistry::start(move |_, _| response(200, &[], served.clone())).await;
    let directory = tempfile::tempdir().unwrap();
    let into = directory.path().join("blob");
    let (registry, reference, blob) = (fake.registry(), fake.reference("a:1"), blob(&all));
    let credentials = none();
    let downloads =
        (0..5).map(|_| registry.download(&reference, &blob, &credentials, &into, |_| {}));
    for done in futures::future::join_all(downloads).await {
        done.unwrap();
    }
    assert_eq!(fake.paths().len(), 1);
}

#[tokio::test]
async fn token_is_fetched_once_for_each_repository() {
    let fake = FakeRegistry::start(|path, request| {
        let host = request.headers()["host"].to_str().unwrap();
        if path.starts_with("/token") {
            return response(200, &[], r#"{"token": "t1", "access_token": "t1"}"#);
        }
        match request.headers().get(AUTHORIZATION) {
            Some(value) if value == "Bearer t1" => response(200, &[], "{}"),
            _ => {
                let challenge = format!(
                    r#"Bearer realm="http://{host}/token",service="s",scope="repository:other:push""#
                );
                response(401, &[(WWW_AUTHENTICATE.as_str(), &challenge)], "")
            }
        }
    })
    .await;
    let (registry, credentials) = (fake.registry(), credentials(&fake.host));
    for reference in ["a:1", "a:2", "b:1"] {
        let reference = fake.reference(reference);
        registry.manifest(&reference, &credentials).await.unwrap();
    }
    let tokens: Vec<String> = fake
        .paths()
        .into_iter()
        .filter(|p| p.starts_with("/t"))
        .collect();
    let query = |name: &str| format!("/token?service=s&scope=repository%3A{name}%3Apull");
    assert_eq!(tokens, [query("a"), query("b")]);
    let requests = fake.seen.requests.lock();
    let basic = "Basic bWU6aHVudGVyMg==";
    let with_password = requests
        .iter()
        .filter(|(_, value)| value.as_deref() == Some(basic));
    assert!(
        with_password
            .clone()
            .all(|(path, _)| path.starts_with("/token"))
    );
    assert_eq!(with_password.count(), 2);
}

#[tokio::test]
async fn basic_challenge_is_answered_with_the_password() {
    let fake = FakeRegistry::start(|_, request| match request.headers().get(AUTHORIZATION) {
        Some(value) if value == "Basic bWU6aHVudGVyMg==" => response(200, &[], "{}"),
        _ => {
            let words = r#"{"errors": [{"code": "UNAUTHORIZED", "message": "log\u0000 in"}]}"#;
            response(
                401,
                &[(WWW_AUTHENTICATE.as_str(), r#"Basic realm="r""#)],
                words,
            )
        }
    })
    .await;
    let (registry, reference) = (fake.registry(), fake.reference("a:1"));
    registry
        .manifest(&reference, &credentials(&fake.host))
        .await
        .unwrap();
    for wrong in [none(), credentials("other.example.com")] {
        let error = registry.manifest(&reference, &wrong).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("{}/a:1: access denied: log in", fake.host)
        );
    }
    let wrong = br#"{"auths": {"HOST": {"username": "me", "password": "hunter3"}}}"#;
    let wrong = String::from_utf8_lossy(wrong).replace("HOST", &fake.host);
    let wrong = Credentials::parse(wrong.as_bytes()).unwrap();
    let error = registry.manifest(&reference, &wrong).await.unwrap_err();
    assert!(
        !format!("{error} {error:?} {registry:?}").contains("hunter"),
        "{error}"
    );
}

#[tokio::test]
async fn credentials_are_not_sent_to_other_hosts() {
    let storage = FakeRegistry::start(|_, _| response(200, &[], content())).await;
    let location = format!(
        "http://{}/blob",
        storage.host.replace("127.0.0.1", "localhost")
    );
    let fake = FakeRegistry::start(
        move |_, request| match request.headers().get(AUTHORIZATION) {
            Some(_) => response(307, &[(LOCATION.as_str(), &location)], ""),
            None => response(401, &[(WWW_AUTHENTICATE.as_str(), "Basic realm=\"r\"")], ""),
        },
    )
    .await;
    let (registry, reference) = (fake.registry(), fake.reference("a:1"));
    let credentials = credentials(&fake.host);
    let whole = blob(&content());
    let read = registry.blob(&reference, &whole, &credentials, 1 << 20);
    assert_eq!(read.await.unwrap(), content());
    let requests = storage.seen.requests.lock().clone();
    assert_eq!(requests, [("/blob".to_owned(), None)]);
    // A token server over HTTP gets them only if the registry itself may be reached so.
    let fake = FakeRegistry::start(|_, _| {
        let challenge = r#"Bearer realm="ftp://elsewhere.example.com/token""#;
        response(401, &[(WWW_AUTHENTICATE.as_str(), challenge)], "")
    })
    .await;
    let error = fake
        .registry()
        .manifest(&fake.reference("a:1"), &none())
        .await
        .unwrap_err();
    assert!(
        error.to_string().ends_with("not reached over HTTPS"),
        "{error}"
    );
}

#[tokio::test]
async fn temporary_failures_are_tried_again() {
    let count = AtomicUsize::new(0);
    let fake = FakeRegistry::start(move |_, _| match count.fetch_add(1, Ordering::Relaxed) {
        0 => response(429, &[("retry-after", "0")], ""),
        1 => response(503, &[], ""),
        2 => response(
            200,
            &[("content-type", "application/x; charset=utf-8")],
            "{}",
        ),
        _ => response(500, &[], "<b>no</b>"),
    })
    .await;
    let (registry, reference) = (fake.registry(), fake.reference("a:1"));
    let (found, bytes) = registry.manifest(&reference, &none()).await.unwrap();
    assert_eq!(
        (found.media_type.as_str(), &bytes[..]),
        ("application/x", &b"{}"[..])
    );
    let error = registry.manifest(&reference, &none()).await.unwrap_err();
    let expected = format!("{}/a:1: status 500: <b>no</b>", fake.host);
    assert_eq!(error.to_string(), expected);
    assert_eq!(fake.paths().len(), 6);
}

#[tokio::test]
async fn documents_are_bounded_and_checked() {
    let fake = FakeRegistry::start(|path, _| {
        if path.contains("huge") {
            return response(200, &[], vec![b' '; 5 << 20]);
        }
        if path.contains("missing") {
            let words =
                r#"{"errors": [{"code": "MANIFEST_UNKNOWN", "message": "manifest unknown"}]}"#;
            return response(404, &[], words);
        }
        response(200, &[], "{}")
    })
    .await;
    let (registry, other) = (fake.registry(), Digest::of(b"other"));
    let error = |reference: String| {
        let (registry, reference) = (&registry, fake.reference(&reference));
        async move {
            let error = registry.manifest(&reference, &none()).await.unwrap_err();
            error.to_string()
        }
    };
    assert!(
        error("a:huge".into())
            .await
            .ends_with("more than 4194304 bytes")
    );
    assert!(
        error("a:missing".into())
            .await
            .ends_with("a:missing: not found: manifest unknown")
    );
    let pinned = error(format!("a@{other}")).await;
    assert!(
        pinned.ends_with(&format!("content has digest {}", Digest::of(b"{}"))),
        "{pinned}"
    );
    let reference = fake.reference("a:1");
    let read = |blob: Descriptor| {
        let (registry, reference) = (&registry, &reference);
        async move { registry.blob(reference, &blob, &none(), 100).await }
    };
    assert_eq!(&read(blob(b"{}")).await.unwrap()[..], b"{}");
    for bad in [blob(&[0; 101]), blob(b"12"), blob(b"1")] {
        let error = read(bad).await.unwrap_err();
        assert!(matches!(error, RegistryError::Refused { .. }), "{error}");
    }
}

#[tokio::test]
async fn mirror_is_asked_first_and_without_credentials() {
    let mirror = FakeRegistry::start(|path, _| {
        let status = if path.contains("only") { 404 } else { 200 };
        response(status, &[], "{}")
    })
    .await;
    let origin = FakeRegistry::start(|_, _| response(200, &[], "[]")).await;
    let settings = RegistrySettings {
        insecure: [mirror.host.clone(), origin.host.clone()].into(),
        mirrors: [(origin.host.clone(), vec![mirror.host.clone()])].into(),
    };
    let registry = Registry::with_pause(&settings, Duration::ZERO).unwrap();
    for (tag, body) in [("a:1", "{}"), ("a:only", "[]")] {
        let (reference, credentials) = (origin.reference(tag), credentials(&origin.host));
        let (_, bytes) = registry.manifest(&reference, &credentials).await.unwrap();
        assert_eq!(&bytes[..], body.as_bytes());
    }
    assert_eq!(origin.paths(), ["/v2/a/manifests/only"]);
    let requests = mirror.seen.requests.lock();
    assert!(
        requests
            .iter()
            .all(|(_, authorization)| authorization.is_none())
    );
}

#[tokio::test]
async fn unreachable_registry_is_named_without_its_url() {
    let settings = RegistrySettings::default();
    let registry = Registry::with_pause(&settings, Duration::ZERO).unwrap();
    let reference = "127.0.0.1:1/a:1".parse().unwrap();
    let error = registry
        .manifest(&reference, &none())
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("127.0.0.1:1/a:1: cannot connect: "),
        "{error}"
    );
}
