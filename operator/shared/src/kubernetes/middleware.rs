//! Middleware of all requests to the API server: metrics, time limits, watch health, and the write
//! fence.
//!
//! kube's watcher hides bookmarks and does not limit lists and the start of a watch. A server that
//! accepts connections and never responds would hang it.

mod body;
mod request;
#[cfg(test)]
mod tests;

use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use tokio::time::{Instant, timeout};
use tower::BoxError;

use super::leader::WriteFence;
use crate::diagnostics::Diagnostics;
use crate::metrics::kubernetes_requests::{RequestOutcome, Verb};

use body::TrackedBody;
use request::ApiRequest;

/// Time limit of a response, and again of its body except for a watch. It is meant for pages of
/// large lists; other calls have shorter limits.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);

/// Error of a request without a response.
#[derive(Debug, thiserror::Error)]
pub enum MiddlewareError {
    #[error("write blocked: this process is not the leader")]
    Fenced,
    #[error("no response within {}s", RESPONSE_TIMEOUT.as_secs())]
    Timeout,
}

/// Name of a resource in health and metrics: its plural, or `other`.
pub fn resource_label(plural: &str) -> &'static str {
    request::known_resource(plural)
}

/// Wraps the client in the middleware. With a fence, writes are only sent while it is open.
pub fn instrument(
    client: &Client,
    vitals: &Arc<Diagnostics>,
    fence: Option<Arc<WriteFence>>,
) -> Client {
    let middleware = RequestMiddleware {
        client: client.clone(),
        vitals: vitals.clone(),
        fence,
    };
    Client::new(middleware, client.default_namespace())
}

#[derive(Clone)]
struct RequestMiddleware {
    client: Client,
    vitals: Arc<Diagnostics>,
    fence: Option<Arc<WriteFence>>,
}

impl tower::Service<Request<Body>> for RequestMiddleware {
    type Response = Response<TrackedBody>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        self.clone().send(request).boxed()
    }
}

impl RequestMiddleware {
    async fn send(self, request: Request<Body>) -> Result<Response<TrackedBody>, BoxError> {
        let request_info = ApiRequest::read(&request);
        let mut recorder = RequestRecorder::begin(&self.vitals, request_info);
        if request_info.verb.is_write() && self.fence.as_ref().is_some_and(|t| !t.allows_writes()) {
            recorder.outcome = RequestOutcome::Fenced;
            return Err(MiddlewareError::Fenced.into());
        }
        if request_info.is_list_or_watch() {
            self.vitals.health.watch_attempted(request_info.resource);
        }
        let response = match within(self.client.send(request), &mut recorder).await {
            Some(response) => response?,
            None => return Err(MiddlewareError::Timeout.into()),
        };
        recorder.outcome = RequestOutcome::of(response.status());
        if request_info.is_list_or_watch() && response.status().is_success() {
            self.vitals.health.watch_heard(request_info.resource);
        }
        let vitals = self.vitals.clone();
        Ok(response.map(|body| TrackedBody::new(body, request_info, vitals)))
    }
}

/// Waits within the time limit. A caller that drops the future is recorded as `Abandoned`.
async fn within<T>(response: impl Future<Output = T>, recorder: &mut RequestRecorder) -> Option<T> {
    recorder.outcome = RequestOutcome::Abandoned;
    let response = timeout(RESPONSE_TIMEOUT, response).await.ok();
    recorder.outcome = RequestOutcome::NoAnswer;
    response
}

/// Records a request in the metrics however it ends.
struct RequestRecorder {
    vitals: Arc<Diagnostics>,
    request_info: ApiRequest,
    started: Instant,
    outcome: RequestOutcome,
}

impl RequestRecorder {
    fn begin(vitals: &Arc<Diagnostics>, request_info: ApiRequest) -> Self {
        Self {
            vitals: vitals.clone(),
            request_info,
            started: Instant::now(),
            outcome: RequestOutcome::NoAnswer,
        }
    }
}

impl Drop for RequestRecorder {
    fn drop(&mut self) {
        let ApiRequest { verb, resource } = self.request_info;
        let requests = &self.vitals.metrics.requests;
        requests.note(verb, resource, self.outcome, self.started.elapsed());
    }
}
