//! Middleware of all requests to the API server: metrics, time limits, watch health, and the write
//! fence.
//!
//! kube's watcher hides bookmarks and does not limit lists and the start of a watch. A server that
//! accepts connections and never responds would hang it.

mod request;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, BodyStream, StreamBody};
use kube::Client;
use kube::client::Body;
use tokio::time::{Instant, timeout};
use tower::BoxError;

use super::health::WATCH_SILENCE_LIMIT;
use super::leader::WriteFence;
use crate::diagnostics::Diagnostics;
use crate::metrics::outcome_of;

use request::ApiRequest;

pub use request::known_resource;

/// Time limit of a response, and again of its body except for a watch; for pages of large lists.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);

/// Error of a request without a response.
#[derive(Debug, thiserror::Error)]
pub enum MiddlewareError {
    #[error("write blocked: this process is not the leader")]
    Fenced,
    #[error("no response within {}s", RESPONSE_TIMEOUT.as_secs())]
    Timeout,
}

/// Wraps the client in the middleware. With a fence, writes are only sent while it is open.
pub fn instrument(
    client: &Client,
    vitals: &Arc<Diagnostics>,
    fence: Option<Arc<WriteFence>>,
) -> Client {
    let (sender, vitals) = (client.clone(), vitals.clone());
    let middleware = tower::service_fn(move |request| {
        send(sender.clone(), vitals.clone(), fence.clone(), request)
    });
    Client::new(middleware, client.default_namespace())
}

async fn send(
    client: Client,
    vitals: Arc<Diagnostics>,
    fence: Option<Arc<WriteFence>>,
    request: Request<Body>,
) -> Result<Response<TrackedBody>, BoxError> {
    let request_info = ApiRequest::read(&request);
    let mut recorder = RequestRecorder {
        vitals: vitals.clone(),
        request_info,
        started: Instant::now(),
        // The caller may drop the request at any moment.
        outcome: "abandoned",
    };
    if request_info.is_write() && fence.is_some_and(|fence| !fence.allows_writes()) {
        recorder.outcome = "fenced";
        return Err(MiddlewareError::Fenced.into());
    }
    if request_info.is_list_or_watch() {
        vitals.health.watch_attempted(request_info.resource);
    }
    let response = timeout(RESPONSE_TIMEOUT, client.send(request)).await;
    recorder.outcome = "no_answer";
    let response = response.map_err(|_| MiddlewareError::Timeout)??;
    recorder.outcome = outcome_of(response.status());
    if request_info.is_list_or_watch() && response.status().is_success() {
        vitals.health.watch_heard(request_info.resource);
    }
    Ok(response.map(|body| track(body, request_info, vitals)))
}

type TrackedBody = UnsyncBoxBody<Bytes, BoxError>;

/// Response body: every frame of a list or watch updates its health. A silent watch ends, as after
/// its regular timeout, so that the watcher starts it again. A followed log ends with its container,
/// and its reader bounds the silence. Any other body has a time limit.
fn track(body: Body, request: ApiRequest, vitals: Arc<Diagnostics>) -> TrackedBody {
    let started = Instant::now();
    let frames = stream::try_unfold(BodyStream::new(body), move |mut frames| async move {
        let next = if request.verb == "watch" {
            let next = timeout(WATCH_SILENCE_LIMIT, frames.next()).await;
            next.unwrap_or_default()
        } else if request.is_followed_log {
            frames.next().await
        } else {
            let left = RESPONSE_TIMEOUT.saturating_sub(started.elapsed());
            let next = timeout(left, frames.next()).await;
            next.map_err(|_| MiddlewareError::Timeout)?
        };
        Ok::<_, BoxError>(next.transpose()?.map(|frame| (frame, frames)))
    });
    let frames = frames.inspect_ok(move |_| {
        if request.is_list_or_watch() {
            vitals.health.watch_heard(request.resource);
        }
    });
    StreamBody::new(frames).boxed_unsync()
}

/// Records a request in the metrics however it ends.
struct RequestRecorder {
    vitals: Arc<Diagnostics>,
    request_info: ApiRequest,
    started: Instant,
    outcome: &'static str,
}

impl Drop for RequestRecorder {
    fn drop(&mut self) {
        let ApiRequest { verb, resource, .. } = self.request_info;
        let (metrics, took) = (&self.vitals.metrics, self.started.elapsed());
        metrics.record_kubernetes_request(verb, resource, self.outcome, took);
    }
}
