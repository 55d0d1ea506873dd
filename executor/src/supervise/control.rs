//! The control server: takes the one initialisation of this Pod and tells when it is ready.
//!
//! Whoever reaches the port can talk to it, so nothing is believed before its signature is.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::extract::rejection::{QueryRejection, StringRejection};
use axum::extract::{DefaultBodyLimit, Query, Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use crds::contract::control::{
    Claim, ControlError, Grant, Init, MAX_READY_WAIT_SECONDS, ReadyReport, SupervisorState,
};
use crds::contract::endpoint;
use crds::contract::token::{MAX_LEN, Verifier};
use http::{HeaderMap, StatusCode, header};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::json;
use tokio::sync::mpsc;

use super::lifecycle::Lifecycle;
use super::store::{Store, StoreError};

/// Longer than any wait that `ready` grants.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(MAX_READY_WAIT_SECONDS + 10);

#[derive(Debug, thiserror::Error)]
pub(super) enum CallError {
    #[error(transparent)]
    Refused(#[from] ControlError),
    #[error("the token grants something else")]
    OtherGrant,
    #[error("a bearer token is required")]
    NoToken,
    #[error("the sandbox was initialised with a different message")]
    Conflict,
    #[error("the body is no text or too long")]
    Body,
    #[error("the timeout is no number of seconds")]
    Query,
    #[error("there is no such call")]
    Unknown,
    #[error("the request took too long")]
    Slow,
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl CallError {
    fn status(&self) -> StatusCode {
        match self {
            Self::Refused(ControlError::Token(_)) | Self::NoToken | Self::Body => {
                StatusCode::UNAUTHORIZED
            }
            Self::Query => StatusCode::BAD_REQUEST,
            Self::Unknown => StatusCode::NOT_FOUND,
            Self::Slow => StatusCode::REQUEST_TIMEOUT,
            Self::Refused(_) | Self::OtherGrant => StatusCode::FORBIDDEN,
            Self::Conflict => StatusCode::CONFLICT,
            Self::Store(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

impl IntoResponse for CallError {
    fn into_response(self) -> Response {
        tracing::warn!(error = %self, "control call refused");
        (self.status(), Json(json!({"detail": self.to_string()}))).into_response()
    }
}

#[derive(Clone)]
pub(super) struct Control(Arc<Inner>);

struct Inner {
    pod_uid: String,
    verifier: Verifier,
    store: Store,
    lifecycle: Lifecycle,
    accepted: Mutex<Option<Init>>,
    starts: mpsc::Sender<Init>,
}

impl Control {
    pub(super) fn new(
        pod_uid: String,
        verifier: Verifier,
        store: Store,
        lifecycle: Lifecycle,
        starts: mpsc::Sender<Init>,
    ) -> Self {
        Self(Arc::new(Inner {
            pod_uid,
            verifier,
            store,
            lifecycle,
            accepted: Mutex::new(None),
            starts,
        }))
    }

    pub(super) fn router(self) -> Router {
        Router::new()
            .route(endpoint::INIT, post(init))
            .route(endpoint::READY, get(ready))
            .fallback(async || CallError::Unknown)
            .layer(DefaultBodyLimit::max(MAX_LEN))
            .layer(middleware::from_fn(in_time))
            .with_state(self)
    }

    /// Starts what this container ran before it was restarted. A kept token that does not verify
    /// leaves the Pod dormant, so that the controller can initialise it again.
    pub(super) fn resume(&self) {
        let Some(token) = self.0.store.load() else {
            return;
        };
        match Claim::recall(&token, &self.0.verifier, &self.0.pod_uid) {
            Ok(Claim {
                grant: Grant::Init(init),
                ..
            }) => self.start(*init, &mut self.0.accepted.lock()),
            Ok(_) => tracing::error!("the kept token is no initialisation; staying dormant"),
            Err(error) => tracing::error!(%error, "the kept token is unusable; staying dormant"),
        }
    }

    fn verify(&self, token: &str) -> Result<Grant, CallError> {
        let grant = Claim::verify(token, &self.0.verifier, &self.0.pod_uid, unix_now())?;
        Ok(grant)
    }

    /// Exactly one initialisation wins; repeating it is harmless.
    fn accept(&self, token: &str) -> Result<ReadyReport, CallError> {
        let Grant::Init(init) = self.verify(token)? else {
            return Err(CallError::OtherGrant);
        };
        let mut accepted = self.0.accepted.lock();
        match accepted.as_ref() {
            Some(earlier) if *earlier == *init => {}
            Some(_) => return Err(CallError::Conflict),
            None => {
                // First to memory volume, then to life: a restart must find what ran. The write
                // goes to memory, so it may happen here and under the lock.
                self.0.store.save(token)?;
                self.start(*init, &mut accepted);
            }
        }
        Ok(self.0.lifecycle.report())
    }

    fn start(&self, init: Init, accepted: &mut Option<Init>) {
        *accepted = Some(init.clone());
        self.0.lifecycle.set(SupervisorState::Starting, None);
        // The channel holds one message and this is the only one there will ever be.
        if self.0.starts.try_send(init).is_err() {
            tracing::error!("nobody is left to start the command");
        }
    }
}

async fn init(
    State(control): State<Control>,
    token: Result<String, StringRejection>,
) -> Result<Json<ReadyReport>, CallError> {
    let token = token.map_err(|_| CallError::Body)?;
    control.accept(token.trim_end()).map(Json)
}

/// A body that never ends must not hold one of the few connections.
async fn in_time(request: Request, next: Next) -> Result<Response, CallError> {
    tokio::time::timeout(REQUEST_TIMEOUT, next.run(request))
        .await
        .map_err(|_| CallError::Slow)
}

#[derive(Deserialize)]
struct Wait {
    #[serde(default)]
    timeout: u64,
}

async fn ready(
    State(control): State<Control>,
    wait: Result<Query<Wait>, QueryRejection>,
    headers: HeaderMap,
) -> Result<Json<ReadyReport>, CallError> {
    let token = bearer(&headers).ok_or(CallError::NoToken)?;
    if control.verify(token)? != Grant::Ready {
        return Err(CallError::OtherGrant);
    }
    let Query(wait) = wait.map_err(|_| CallError::Query)?;
    let wait = Duration::from_secs(wait.timeout.min(MAX_READY_WAIT_SECONDS));
    Ok(Json(control.0.lifecycle.settled(wait).await))
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    value.strip_prefix("Bearer ")
}

fn unix_now() -> i64 {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH);
    // Before 1970 every call is still valid and after the year 292 billion none is.
    elapsed.map_or(0, |elapsed| {
        i64::try_from(elapsed.as_secs()).unwrap_or(i64::MAX)
    })
}
