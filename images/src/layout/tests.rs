use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::sync::Arc;

use axum::body::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use crate::manifest::OCI_MANIFEST;
use crate::registry::fake::{FakeRegistry, response};

type Stored = Arc<Mutex<HashMap<String, Vec<u8>>>>;

/// Registry whose documents and blobs, by digest or tag, are those of the map.
async fn registry_of(stored: &Stored) -> FakeRegistry {
    let stored = stored.clone();
    FakeRegistry::start(move |path, request| {
        let name = path.rsplit(['/', '=']).next().unwrap().replace("%3A", ":");
        let found = stored.lock().get(&name).cloned();
        match (request.method().as_str(), found) {
            ("PUT", _) => {
                stored.lock().insert(name, Vec::new());
                response(201, &[], "")
            }
            ("POST", _) => response(202, &[("location", "/upload")], ""),
            (_, Some(bytes)) => {
                let kind = serde_json::from_slice::<Value>(&bytes).unwrap_or_default();
                let kind = kind["mediaType"].as_str().unwrap_or("x").to_owned();
                response(200, &[("content-type", &kind)], Body::from(bytes))
            }
            _ => response(404, &[], ""),
        }
    })
    .await
}

fn store(stored: &Stored, name: Option<&str>, content: &[u8]) -> Value {
    let digest = Digest::of(content).to_string();
    let names = [Some(digest.as_str()), name];
    for name in names.into_iter().flatten() {
        stored.lock().insert(name.to_owned(), content.to_vec());
    }
    json!({"mediaType": "application/vnd.oci.image.layer.v1.tar", "digest": digest,
        "size": content.len()})
}

/// An image for this machine, and one for another that is not there.
fn store_image(stored: &Stored) -> Digest {
    let manifest = json!({
        "schemaVersion": 2, "mediaType": OCI_MANIFEST,
        "config": store(stored, None, b"{}"), "layers": [store(stored, None, b"layer")],
    });
    let mut own = store(stored, None, manifest.to_string().as_bytes());
    own["mediaType"] = OCI_MANIFEST.into();
    own["platform"] = json!(Platform::here());
    let mut other = own.clone();
    other["platform"]["architecture"] = "m68k".into();
    other["digest"] = json!(Digest::of(b"absent"));
    let index = json!({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": [other, own]});
    store(stored, Some("1"), index.to_string().as_bytes());
    Digest::of(index.to_string().as_bytes())
}

async fn fetched() -> (TempDir, Digest) {
    let stored = Stored::default();
    let digest = store_image(&stored);
    let fake = registry_of(&stored).await;
    let directory = tempfile::tempdir().unwrap();
    let reference = fake.reference("a:1");
    let none = Credentials::default();
    fetch_layout(&fake.registry(), &reference, &none, directory.path())
        .await
        .unwrap();
    (directory, digest)
}

async fn push(layout: &Path) -> (Result<Pushed, String>, Stored) {
    let stored = Stored::default();
    let fake = registry_of(&stored).await;
    let targets = ["b:1", "b:2"].map(|name| fake.reference(name));
    let none = Credentials::default();
    let pushed = push_layout(layout, &targets, &fake.registry(), &none).await;
    (pushed.map_err(|error| error.to_string()), stored)
}

#[tokio::test]
async fn layout_has_the_image_of_this_machine_and_its_index() {
    let (layout, digest) = fetched().await;
    let index = fs::read(layout.path().join("index.json")).unwrap();
    let index: Index = serde_json::from_slice(&index).unwrap();
    assert_eq!(index.manifests[0].digest, digest);
    let (pushed, stored) = push(layout.path()).await;
    assert_eq!(pushed.unwrap().size, 7);
    let stored = stored.lock();
    assert!(stored.contains_key(&Digest::of(b"layer").to_string()));
    assert!(stored.contains_key("1") && stored.contains_key("2"));
}

#[tokio::test]
async fn layout_with_links_or_other_content_is_not_pushed() {
    let secret = tempfile::tempdir().unwrap();
    fs::write(secret.path().join("secret"), "layer").unwrap();
    let layer = |layout: &TempDir| {
        let blobs = layout.path().join("blobs/sha256");
        blobs.join(Digest::of(b"layer").hex())
    };
    let (linked, _) = fetched().await;
    fs::remove_file(layer(&linked)).unwrap();
    symlink(secret.path().join("secret"), layer(&linked)).unwrap();
    let (linked_directory, _) = fetched().await;
    let blobs = linked_directory.path().join("blobs");
    fs::rename(&blobs, secret.path().join("blobs")).unwrap();
    symlink(secret.path().join("blobs"), blobs).unwrap();
    let (linked_index, _) = fetched().await;
    let index = linked_index.path().join("index.json");
    fs::rename(&index, secret.path().join("index")).unwrap();
    symlink(secret.path().join("index"), index).unwrap();
    let (changed, digest) = fetched().await;
    let document = changed.path().join("blobs/sha256").join(digest.hex());
    fs::write(document, "{}").unwrap();
    for (layout, text) in [
        (linked, "not a regular file"),
        (linked_directory, "not a regular file"),
        (linked_index, "symbolic link"),
        (changed, "has digest"),
    ] {
        let (pushed, stored) = push(layout.path()).await;
        let error = pushed.unwrap_err();
        assert!(error.contains(text), "{error}");
        assert!(!stored.lock().contains_key("1"), "{text}");
    }
}
