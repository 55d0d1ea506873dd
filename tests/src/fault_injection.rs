//! Fault injection: lagging watches, conflicts, lost responses, outages. It is a tower layer around
//! the embedded API, which knows nothing of it.

mod requests;
mod watches;

use std::ops::Deref;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{Request, StatusCode, header};
use http_body_util::BodyExt as _;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use operator::clock::Clock;
use parking_lot::Mutex;
use serde_json::json;
use standalone::api::EmbeddedApi;
use tokio::sync::watch;
use tower::{BoxError, ServiceExt as _};

pub use requests::{RequestInfo, Verb, Write};

/// API in memory whose clients meet faults: a tower service.
#[derive(Clone)]
#[allow(missing_debug_implementations, reason = "rules are closures")]
pub struct TestApi {
    api: EmbeddedApi,
    faults: Faults,
}

/// Switches faults on and off and records writes. Clones share one state.
#[derive(Clone, Default)]
#[allow(missing_debug_implementations, reason = "rules are closures")]
pub struct Faults {
    state: Arc<Mutex<FaultState>>,
    /// Increases when all watches are dropped.
    drops: watch::Sender<u64>,
    outage: watch::Sender<Outage>,
    /// Number of requests that met [`Failure::Freeze`].
    frozen: watch::Sender<u64>,
}

#[derive(Default)]
struct FaultState {
    watch_lag: Duration,
    latency: Duration,
    rules: Vec<Rule>,
    writes: Vec<Write>,
    written: u64,
    exempt_agent: Option<&'static str>,
}

struct Rule {
    left: usize,
    failure: Failure,
    applies: Box<dyn Fn(&RequestInfo) -> bool + Send + Sync>,
}

/// Failure of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Response with this code (409, 429, 500, 503, …); the request is not executed.
    Code(StatusCode),
    /// Response with 403 and this message, in which `{}` is a number that rises by one each time.
    Forbidden(&'static str),
    /// The connection breaks before the request is executed.
    Refuse,
    /// The connection breaks after the request was executed; the client cannot know.
    DropResponse,
    /// The request is executed but never answered, as for a client that dies at this moment.
    /// [`Faults::frozen`] counts these requests.
    Freeze,
}

/// Reachability of the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Outage {
    #[default]
    None,
    /// Connections are refused and open watches break.
    Refuse,
    /// Requests are not answered and watches send nothing until the outage is over.
    Hang,
}

/// Broken connection: the outcome of the request is unknown.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("connection reset by fault injection")]
struct Disconnected;

/// Start of 2026, at which the virtual time of tests begins.
fn test_clock() -> Clock {
    let start = "2026-01-01T00:00:00Z".parse();
    Clock::starting_at(start.expect("a timestamp"))
}

impl Faults {
    /// Exempts clients with this user agent prefix: observers of a test and fake nodes.
    pub fn exempt(&self, agent: &'static str) {
        self.state.lock().exempt_agent = Some(agent);
    }

    /// Delays watch events after the change.
    pub fn set_watch_lag(&self, lag: Duration) {
        self.state.lock().watch_lag = lag;
    }

    /// Delays every request before it is executed.
    pub fn set_latency(&self, latency: Duration) {
        self.state.lock().latency = latency;
    }

    /// Breaks all open watches once.
    pub fn drop_watches(&self) {
        self.drops.send_modify(|count| *count += 1);
    }

    pub fn set_outage(&self, outage: Outage) {
        self.outage.send_replace(outage);
    }

    /// Fails the next `count` requests that `applies` accepts.
    pub fn fail_next(
        &self,
        count: usize,
        failure: Failure,
        applies: impl Fn(&RequestInfo) -> bool + Send + Sync + 'static,
    ) {
        let applies = Box::new(applies);
        self.state.lock().rules.push(Rule {
            left: count,
            failure,
            applies,
        });
    }

    /// Number of requests that met [`Failure::Freeze`].
    pub fn frozen(&self) -> watch::Receiver<u64> {
        self.frozen.subscribe()
    }

    /// Removes all rules of `fail_next`.
    pub fn clear_failures(&self) {
        self.state.lock().rules.clear();
    }

    /// Recorded writes, oldest first.
    pub fn writes(&self) -> Vec<Write> {
        self.state.lock().writes.clone()
    }

    /// Forgets the recorded writes.
    pub fn clear_writes(&self) {
        self.state.lock().writes.clear();
    }

    /// Number of write requests since the start, recorded or not.
    pub fn total_writes(&self) -> u64 {
        self.state.lock().written
    }

    fn is_exempt(&self, user_agent: &str) -> bool {
        let exempt_agent = self.state.lock().exempt_agent;
        exempt_agent.is_some_and(|agent| user_agent.starts_with(agent))
    }

    /// Failure of this request, if any, and how often its rule can apply after it.
    fn take_failure(&self, request: &RequestInfo) -> Option<(Failure, usize)> {
        let mut state = self.state.lock();
        state.rules.retain(|rule| rule.left > 0);
        let mut rules = state.rules.iter_mut();
        let rule = rules.find(|rule| (rule.applies)(request))?;
        rule.left -= 1;
        Some((rule.failure, rule.left))
    }

    fn record(&self, write: Write) {
        let mut state = self.state.lock();
        state.written += 1;
        state.writes.push(write);
    }

    /// Applies latency and outages.
    async fn connect(&self) -> Result<(), Disconnected> {
        let latency = self.state.lock().latency;
        if !latency.is_zero() {
            tokio::time::sleep(latency).await;
        }
        let mut outage = self.outage.subscribe();
        let reachable = outage.wait_for(|outage| *outage != Outage::Hang).await;
        match reachable.as_deref() {
            Ok(Outage::None) => Ok(()),
            _ => Err(Disconnected),
        }
    }
}

impl Deref for TestApi {
    type Target = EmbeddedApi;

    fn deref(&self) -> &EmbeddedApi {
        &self.api
    }
}

impl TestApi {
    pub fn new(definitions: &[CustomResourceDefinition]) -> Self {
        Self {
            api: EmbeddedApi::in_memory(definitions, test_clock()),
            faults: Faults::default(),
        }
    }

    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// Client that meets faults.
    pub fn client(&self) -> kube::Client {
        kube::Client::new(self.clone(), "default")
    }

    async fn respond(self, request: Request<kube::client::Body>) -> Result<Response, BoxError> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let info = RequestInfo::parse(&parts, &body);
        let request = Request::from_parts(parts, Body::from(body));
        if self.faults.is_exempt(&info.user_agent) {
            return Ok(self.execute(request, info).await);
        }
        self.faults.connect().await?;
        match self.faults.take_failure(&info) {
            None => {
                let (verb, is_resumed) = (info.verb, info.is_resumed);
                let response = self.execute(request, info).await;
                if verb != Verb::Watch || !response.status().is_success() {
                    return Ok(response);
                }
                Ok(response.map(|body| self.faults.watch(body, is_resumed)))
            }
            Some((Failure::Refuse, _)) => Err(Disconnected.into()),
            Some((Failure::DropResponse, _)) => {
                self.execute(request, info).await;
                Err(Disconnected.into())
            }
            Some((Failure::Freeze, _)) => {
                self.execute(request, info).await;
                self.faults.frozen.send_modify(|count| *count += 1);
                std::future::pending().await
            }
            Some((Failure::Code(status), _)) => {
                self.record(info, status, false);
                Ok(failure_response(status, "injected failure"))
            }
            Some((Failure::Forbidden(message), left)) => {
                self.record(info, StatusCode::FORBIDDEN, false);
                let message = message.replace("{}", &(usize::MAX - left).to_string());
                Ok(failure_response(StatusCode::FORBIDDEN, &message))
            }
        }
    }

    /// A request changes an object if the revision rises: the API in memory executes it at once.
    async fn execute(&self, request: Request<Body>, info: RequestInfo) -> Response {
        let before = self.api.revision();
        let Ok(response) = self.api.clone().oneshot(request).await;
        self.record(info, response.status(), self.api.revision() > before);
        response
    }

    fn record(&self, request: RequestInfo, status: StatusCode, changed: bool) {
        if request.is_write() {
            self.faults.record(Write {
                request,
                status,
                changed,
            });
        }
    }
}

impl tower::Service<Request<kube::client::Body>> for TestApi {
    type Response = Response;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<kube::client::Body>) -> Self::Future {
        self.clone().respond(request).boxed()
    }
}

fn failure_response(status: StatusCode, message: &str) -> Response {
    let reason = match status.as_u16() {
        403 => "Forbidden",
        409 => "Conflict",
        410 => "Expired",
        429 => "TooManyRequests",
        503 => "ServiceUnavailable",
        504 => "Timeout",
        _ => "InternalError",
    };
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": status.as_u16(),
    });
    let retry = (status == StatusCode::TOO_MANY_REQUESTS).then_some([(header::RETRY_AFTER, "1")]);
    (status, retry, axum::Json(body)).into_response()
}

#[cfg(test)]
mod tests;
