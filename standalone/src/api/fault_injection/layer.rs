//! Service that applies the faults to requests and watches.

use std::{
    ops::Deref,
    sync::Arc,
    task::{Context, Poll},
};

use axum::{body::Body, response::Response};
use bytes::Bytes;
use futures::{FutureExt, StreamExt as _, future::BoxFuture, stream};
use http::{Request, StatusCode, header};
use http_body_util::BodyExt as _;
use serde_json::json;
use tokio::{sync::watch, time::Instant};
use tower::BoxError;

use super::{Failure, Faults, Outage, RequestInfo, Write};
use crate::api::{
    ApiOptions, ApiState, EmbeddedApi, encode,
    error::Disconnected,
    handler::{self, Changed},
    request,
    watch::{Frame, Frames, Lines, WatchHook},
};

/// API in memory whose clients meet faults.
#[derive(Clone, Debug)]
pub struct TestApi {
    api: EmbeddedApi,
    faults: Faults,
}

impl Deref for TestApi {
    type Target = EmbeddedApi;

    fn deref(&self) -> &EmbeddedApi {
        &self.api
    }
}

impl TestApi {
    pub fn new(options: ApiOptions) -> Self {
        Self {
            api: EmbeddedApi::in_memory(options),
            faults: Faults::new(),
        }
    }

    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// Tower service for [`kube::Client::new`].
    pub fn service(&self) -> FaultyService {
        FaultyService {
            state: Arc::clone(&self.api.state),
            faults: self.faults.clone(),
        }
    }

    /// Client that meets faults.
    pub fn client(&self) -> kube::Client {
        kube::Client::new(self.service(), "default")
    }
}

/// Tower service of a [`TestApi`].
#[derive(Clone, Debug)]
pub struct FaultyService {
    state: Arc<ApiState>,
    faults: Faults,
}

impl<B> tower::Service<Request<B>> for FaultyService
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let service = self.clone();
        async move { service.respond(request.map(Body::new)).await }.boxed()
    }
}

impl FaultyService {
    async fn respond(self, request: Request<Body>) -> Result<Response, BoxError> {
        let (mut parts, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let agent = parts.headers.get(header::USER_AGENT);
        let agent = agent
            .and_then(|agent| agent.to_str().ok())
            .unwrap_or_default();
        let is_exempt = self.faults.is_exempt(agent);
        if !is_exempt {
            self.apply_network_faults().await?;
            let faults = self.faults.clone();
            let hook = WatchHook(Arc::new(move |frames| faults.watch(frames)));
            parts.extensions.insert(hook);
        }
        let parsed = request::Request::parse(&self.state.registry, &parts, body.clone());
        let request = Request::from_parts(parts, Body::from(body));
        let Ok(info) = parsed.map(|request| RequestInfo::of(&request)) else {
            return Ok(handler::handle(self.state, request).await);
        };
        let failure = if is_exempt {
            None
        } else {
            self.faults.take_failure(&info)
        };
        match failure {
            None => Ok(self.execute(request, info).await),
            Some(Failure::Refuse) => Err(Disconnected.into()),
            Some(Failure::DropResponse) => {
                self.execute(request, info).await;
                Err(Disconnected.into())
            }
            Some(Failure::Freeze) => {
                self.execute(request, info).await;
                self.faults.freeze().await;
                Err(Disconnected.into())
            }
            Some(Failure::Code(code)) => {
                self.record(info, code, false);
                Ok(failure_response(code))
            }
        }
    }

    async fn execute(&self, request: Request<Body>, info: RequestInfo) -> Response {
        let response = handler::handle(Arc::clone(&self.state), request).await;
        let changed = response.extensions().get::<Changed>().is_some();
        self.record(info, response.status(), changed);
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

    /// Applies latency and outages.
    async fn apply_network_faults(&self) -> Result<(), Disconnected> {
        let latency = self.faults.latency();
        if !latency.is_zero() {
            tokio::time::sleep(latency).await;
        }
        let mut outage = self.faults.outage();
        let reachable = outage.wait_for(|outage| *outage != Outage::Hang).await;
        match reachable.as_deref() {
            Ok(Outage::None) => Ok(()),
            _ => Err(Disconnected),
        }
    }
}

fn failure_response(code: StatusCode) -> Response {
    let reason = match code.as_u16() {
        409 => "Conflict",
        410 => "Expired",
        429 => "TooManyRequests",
        503 => "ServiceUnavailable",
        504 => "Timeout",
        _ => "InternalError",
    };
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "injected failure", "reason": reason, "code": code.as_u16(),
    });
    let mut response = encode::json(code, &status);
    if code == StatusCode::TOO_MANY_REQUESTS {
        let headers = response.headers_mut();
        headers.insert(header::RETRY_AFTER, header::HeaderValue::from_static("1"));
    }
    response
}

/// Lines of a watch on their way to the client.
struct FaultyWatch {
    frames: Frames,
    faults: Faults,
    drops: watch::Receiver<u64>,
    outage: watch::Receiver<Outage>,
    /// The next line, with the time of its delivery.
    held: Option<(Frame, Instant)>,
    is_broken: bool,
}

impl Faults {
    fn watch(&self, frames: Frames) -> Lines {
        let watch = FaultyWatch {
            frames,
            faults: self.clone(),
            drops: self.drops(),
            outage: self.outage(),
            held: None,
            is_broken: false,
        };
        stream::unfold(watch, |mut watch| async {
            let line = watch.next().await?;
            Some((line, watch))
        })
        .boxed()
    }
}

impl FaultyWatch {
    async fn next(&mut self) -> Option<Result<Bytes, Disconnected>> {
        while !self.is_broken {
            let outage = *self.outage.borrow_and_update();
            if outage == Outage::Refuse || self.drops.has_changed().unwrap_or(true) {
                self.is_broken = true;
                return Some(Err(Disconnected));
            }
            let is_hanging = outage == Outage::Hang;
            let due = self.held.as_ref().map(|(_, due)| *due);
            if !is_hanging && due.is_some_and(|due| due <= Instant::now()) {
                return self.held.take().map(|(frame, _)| Ok(frame.line));
            }
            tokio::select! {
                biased;
                _ = self.drops.changed() => { self.drops.mark_changed(); }
                _ = self.outage.changed() => {}
                () = until(due), if !is_hanging && due.is_some() => {}
                frame = self.frames.next(), if !is_hanging && due.is_none() => match frame {
                    Some(Ok(frame)) => {
                        let due = frame.at.map(|at| at + self.faults.watch_lag());
                        self.held = Some((frame, due.unwrap_or_else(Instant::now)));
                    }
                    Some(Err(error)) => return Some(Err(error)),
                    None => return None,
                },
            }
        }
        None
    }
}

async fn until(due: Option<Instant>) {
    if let Some(due) = due {
        tokio::time::sleep_until(due).await;
    }
}
