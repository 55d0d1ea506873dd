use http::header::LOCATION;

use super::super::fake::{FakeRegistry, response};
use super::*;

fn blob(content: &[u8]) -> Descriptor {
    Descriptor::blob(Digest::of(content), content.len() as u64)
}

/// Registry that has no blob, takes an upload at `location`, and the result of a push to it.
async fn push_to(location: &'static str) -> (Result<bool, String>, Vec<String>) {
    let fake = FakeRegistry::start(move |_, request| match request.method().as_str() {
        "HEAD" => response(404, &[], ""),
        "POST" => response(202, &[(LOCATION.as_str(), location)], ""),
        _ => response(201, &[], ""),
    })
    .await;
    let (registry, reference) = (fake.registry(), fake.reference("a:1"));
    let content = Bytes::from_static(b"content");
    let (blob, none) = (blob(&content), Credentials::default());
    let content = Content::Bytes(&content);
    let pushed = registry.push_blob(&reference, &blob, content, &none).await;
    (pushed.map_err(|error| error.to_string()), fake.paths())
}

#[tokio::test]
async fn upload_goes_to_the_place_that_the_registry_names() {
    let (pushed, paths) = push_to("/v2/a/blobs/uploads/7?_state=x%2B").await;
    assert_eq!(pushed, Ok(true));
    let digest = Digest::of(b"content").to_string();
    let put = format!(
        "/v2/a/blobs/uploads/7?_state=x%2B&digest={}",
        digest.replace(':', "%3A")
    );
    assert_eq!(paths.last(), Some(&put));
}

#[tokio::test]
async fn upload_is_refused_if_it_leads_to_another_host() {
    for location in [
        "http://169.254.169.254/latest",
        "https://127.0.0.1/upload",
        "//elsewhere.example.com/upload",
        "ftp:x",
    ] {
        let (pushed, paths) = push_to(location).await;
        let refused = pushed.is_err_and(|error| error.ends_with("another host"));
        assert!(refused, "{location}: {paths:?}");
        assert_eq!(paths.len(), 2, "{paths:?}");
    }
}

#[tokio::test]
async fn blob_that_the_registry_has_is_not_uploaded() {
    let fake = FakeRegistry::start(|_, _| response(200, &[], "")).await;
    let (registry, reference) = (fake.registry(), fake.reference("a:1"));
    let content = Bytes::from_static(b"content");
    let (blob, none) = (blob(&content), Credentials::default());
    let pushed = registry.push_blob(&reference, &blob, Content::Bytes(&content), &none);
    assert!(!pushed.await.unwrap());
    assert_eq!(fake.paths().len(), 1);
}

#[tokio::test]
async fn unreadable_file_is_an_error_and_no_empty_blob() {
    let fake = FakeRegistry::start(|_, request| match request.method().as_str() {
        "HEAD" => response(404, &[], ""),
        "POST" => response(202, &[(LOCATION.as_str(), "/upload")], ""),
        _ => response(201, &[], ""),
    })
    .await;
    let (registry, reference) = (fake.registry(), fake.reference("a:1"));
    let missing = Content::File(Path::new("/nonexistent/blob"));
    let (blob, none) = (blob(b"content"), Credentials::default());
    let pushed = registry.push_blob(&reference, &blob, missing, &none);
    assert!(matches!(
        pushed.await,
        Err(RegistryError::Unreachable { .. })
    ));
}
