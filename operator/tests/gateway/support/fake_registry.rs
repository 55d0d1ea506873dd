//! A registry in memory: what was pushed, and an image that is there from the beginning.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use axum::body::to_bytes;
use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use http::{Method, StatusCode};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::TcpListener;

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// Content by its path below `/v2/`.
type Stored = Arc<Mutex<BTreeMap<String, Bytes>>>;

#[derive(Debug)]
pub(crate) struct FakeRegistry {
    pub(crate) host: String,
    stored: Stored,
}

/// Digest as registries write it.
pub(crate) fn digest_of(bytes: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
    let hex = data_encoding::HEXLOWER.encode(digest.as_ref());
    format!("sha256:{hex}")
}

impl FakeRegistry {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let stored = Stored::default();
        let router = Router::new().fallback(answer).with_state(stored.clone());
        tokio::spawn(async { axum::serve(listener, router).await.unwrap() });
        Self { host, stored }
    }

    /// Stores an image of one layer, and returns its digest.
    pub(crate) fn put_image(&self, repository: &str) -> String {
        let layer = Bytes::from_static(b"a layer of the image");
        let config = json!({
            "architecture": "amd64", "os": "linux",
            "config": {"Env": ["A=1"]}, "rootfs": {"type": "layers", "diff_ids": [digest_of(&layer)]},
        });
        let config = Bytes::from(config.to_string());
        let describe = |kind: &str, blob: &[u8]| json!({"mediaType": kind, "digest": digest_of(blob), "size": blob.len()});
        let manifest = json!({
            "schemaVersion": 2, "mediaType": MANIFEST,
            "config": describe("application/vnd.oci.image.config.v1+json", &config),
            "layers": [describe("application/vnd.oci.image.layer.v1.tar+gzip", &layer)],
        });
        let manifest = Bytes::from(manifest.to_string());
        let digest = digest_of(&manifest);
        let mut stored = self.stored.lock();
        for blob in [layer, config] {
            stored.insert(format!("{repository}/blobs/{}", digest_of(&blob)), blob);
        }
        stored.insert(format!("{repository}/manifests/{digest}"), manifest);
        digest
    }

    pub(crate) fn blob(&self, repository: &str, digest: &str) -> Option<Bytes> {
        let path = format!("{repository}/blobs/{digest}");
        self.stored.lock().get(&path).cloned()
    }

    pub(crate) fn manifest(&self, repository: &str, tag: &str) -> Option<Value> {
        let path = format!("{repository}/manifests/{tag}");
        let stored = self.stored.lock().get(&path).cloned();
        stored.map(|manifest| serde_json::from_slice(&manifest).unwrap())
    }
}

async fn answer(State(stored): State<Stored>, request: Request) -> Response {
    let path = request.uri().path().trim_start_matches("/v2/").to_owned();
    let query = request.uri().query().unwrap_or_default().to_owned();
    let method = request.method().clone();
    let body = to_bytes(request.into_body(), usize::MAX).await.unwrap();
    match method {
        Method::POST => {
            // It does not mount.
            let place = [("location", format!("/v2/{path}"))];
            (StatusCode::ACCEPTED, place).into_response()
        }
        Method::PUT => {
            let digest = query.rsplit_once("digest=").map(|(_, digest)| digest);
            let place = match digest {
                Some(digest) => path.replace("uploads/", &digest.replace("%3A", ":")),
                None => path,
            };
            let is_manifest = place.contains("/manifests/");
            let mut stored = stored.lock();
            if let Some((repository, _)) = place.split_once("/manifests/").filter(|_| is_manifest) {
                let by_digest = format!("{repository}/manifests/{}", digest_of(&body));
                stored.insert(by_digest, body.clone());
            }
            stored.insert(place, body);
            StatusCode::CREATED.into_response()
        }
        _ => match stored.lock().get(&path).cloned() {
            Some(content) => {
                let headers = [
                    ("content-type", MANIFEST.to_owned()),
                    ("docker-content-digest", digest_of(&content)),
                ];
                (headers, content).into_response()
            }
            None => StatusCode::NOT_FOUND.into_response(),
        },
    }
}
