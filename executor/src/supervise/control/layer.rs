//! `GET /v1/layer`: the changed files of a snapshot as a layer of an image.

use std::io;
use std::sync::{Arc, OnceLock};

use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use crds::contract::control::Grant;
use crds::contract::header::ARCHITECTURE;
use crds::contract::persistence::LayerRequest;
use http::{HeaderMap, HeaderValue, header};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;

use super::{CallError, Control, bearer, is_uid};
use crate::serve::transfer::stream::channel;
use crate::supervise::persistence::{Layer, LayerError, LayerSource};

/// Layers, one at a time.
#[derive(Debug)]
pub(in crate::supervise) struct LayerCalls {
    /// Set when the root is prepared; `None` if there is no room for snapshots.
    source: OnceLock<Option<LayerSource>>,
    slot: Arc<Semaphore>,
}

impl LayerCalls {
    pub(in crate::supervise) fn new() -> Self {
        Self {
            source: OnceLock::new(),
            slot: Arc::new(Semaphore::new(1)),
        }
    }

    pub(in crate::supervise) fn serve(&self, source: Option<LayerSource>) {
        // Set once, so it cannot have a value.
        let _ = self.source.set(source);
    }

    async fn open(&self, request: LayerRequest) -> Result<Response, CallError> {
        let source = self.source.get().ok_or(CallError::NotReady)?.clone();
        let source = source.ok_or(LayerError::Unknown)?;
        let slot = self.slot.clone().try_acquire_owned();
        let slot = slot.map_err(|_| CallError::LayerBusy)?;
        // The slot goes with the thread: a client that is gone does not end it.
        let opening = spawn_blocking(move || Ok((source.open(&request)?, slot)));
        let opened: Result<_, LayerError> = opening
            .await
            .map_err(|error| LayerError::Unreadable(error.to_string()))?;
        let (layer, slot) = opened?;
        Ok(send(layer, slot))
    }
}

fn send(layer: Layer, slot: OwnedSemaphorePermit) -> Response {
    let bytes = layer.bytes();
    let (body, mut writer) = channel();
    spawn_blocking(move || {
        let _slot = slot;
        if let Err(error) = layer.write(&mut writer) {
            tracing::warn!(%error, "a layer was not sent completely");
            writer.fail(io::Error::other(error));
        }
    });
    let mut response = body.into_response();
    let headers = response.headers_mut();
    let tar = HeaderValue::from_static("application/vnd.oci.image.layer.v1.tar");
    headers.insert(header::CONTENT_TYPE, tar);
    headers.insert(header::CONTENT_LENGTH, bytes.into());
    headers.insert(ARCHITECTURE, HeaderValue::from_static(architecture()));
    response
}

/// Architecture of this machine, in the words of Go.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// Sends the changed files of a snapshot. The stream has a limit of its own in place of that of
/// other calls.
pub(super) async fn layer(
    State(control): State<Arc<Control>>,
    headers: HeaderMap,
) -> Result<Response, CallError> {
    let token = bearer(&headers).ok_or(CallError::NoToken)?;
    let Grant::Layer(request) = control.verify(token)? else {
        return Err(CallError::OtherGrant);
    };
    if !is_uid(&request.id) {
        return Err(CallError::SnapshotId);
    }
    control.layers.open(request).await
}
