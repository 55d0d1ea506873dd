//! Control server: accepts the init message of this Pod and reports readiness. The sandbox's own
//! code can reach the port, so every call needs a signature.

mod layer;

use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::extract::rejection::{QueryRejection, StringRejection};
use axum::extract::{DefaultBodyLimit, Query, Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use crds::contract::control::{
    ControlError, ControlMessage, Grant, Init, MAX_READY_WAIT_SECONDS, PodOwner, ReadyReport,
    SupervisorState,
};
use crds::contract::endpoint;
use crds::contract::identity::{MAX_NONCE_BYTES, NONCE_HEADER, PROOF_HEADER};
use crds::contract::sealing::{SealingError, SealingKey};
use crds::contract::token::{MAX_TOKEN_BYTES, Verifier};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::mpsc;

use super::command_state::CommandState;
use super::init_store::{InitStore, InitStoreError};
use super::persistence::LayerError;
use super::save_calls::SaveCalls;
use super::snapshot_calls::SnapshotCalls;

pub(super) use self::layer::LayerCalls;

/// Timeout of a request, longer than the maximum wait of `ready`.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(MAX_READY_WAIT_SECONDS + 10);

const MAX_UID_BYTES: usize = 63;

/// Rejected control calls since the start of the process.
static REJECTED_CALLS: AtomicU64 = AtomicU64::new(0);

#[derive(Debug, thiserror::Error)]
pub(super) enum CallError {
    #[error(transparent)]
    Refused(#[from] ControlError),
    #[error("the token does not grant this call")]
    OtherGrant,
    #[error("a bearer token is required")]
    NoToken,
    #[error("the Pod is dormant: there is no command whose state could be saved")]
    Dormant,
    #[error("the command is not ready")]
    NotReady,
    #[error("another snapshot is being taken, or the command ends")]
    Busy,
    #[error("another layer is being sent")]
    LayerBusy,
    #[error(transparent)]
    Layer(#[from] LayerError),
    #[error("the id of the snapshot must be a uid")]
    SnapshotId,
    #[error("the Pod was initialized with another init message")]
    Conflict(Option<PodOwner>),
    #[error("the body must be text of at most 3 MiB")]
    Body,
    #[error("timeout must be a number of seconds")]
    Query,
    #[error("unknown path")]
    Unknown,
    #[error("the request took too long")]
    BodyTimeout,
    #[error(transparent)]
    InitStore(#[from] InitStoreError),
    #[error("the init message cannot be decrypted: {0}")]
    Sealed(#[from] SealingError),
    #[error("this Pod accepts encrypted init messages only")]
    NotSealed,
    #[error("{NONCE_HEADER} must be text of at most {MAX_NONCE_BYTES} bytes")]
    Nonce,
}

impl CallError {
    fn status(&self) -> StatusCode {
        match self {
            Self::Refused(ControlError::Token(_)) | Self::NoToken | Self::Body => {
                StatusCode::UNAUTHORIZED
            }
            Self::Query | Self::Nonce | Self::SnapshotId => StatusCode::BAD_REQUEST,
            Self::Unknown | Self::Layer(LayerError::Unknown) => StatusCode::NOT_FOUND,
            Self::BodyTimeout => StatusCode::REQUEST_TIMEOUT,
            Self::Refused(_) | Self::OtherGrant | Self::Sealed(_) | Self::NotSealed => {
                StatusCode::FORBIDDEN
            }
            Self::Conflict(_)
            | Self::Dormant
            | Self::NotReady
            | Self::Busy
            | Self::LayerBusy
            | Self::Layer(_) => StatusCode::CONFLICT,
            Self::InitStore(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

impl IntoResponse for CallError {
    fn into_response(self) -> Response {
        let count = REJECTED_CALLS.fetch_add(1, Ordering::Relaxed) + 1;
        tracing::warn!(count, error = %self, "control call rejected");
        let mut body = json!({"detail": self.to_string()});
        if let Self::Conflict(Some(owner)) = &self {
            body["owner"] = json!(owner);
        }
        (self.status(), Json(body)).into_response()
    }
}

/// Control server of this Pod.
pub(super) struct Control {
    pub(super) verifier: Verifier,
    pub(super) store: InitStore,
    pub(super) lifecycle: CommandState,
    pub(super) acceptance: Mutex<Acceptance>,
    pub(super) starts: mpsc::Sender<Init>,
    pub(super) saves: SaveCalls,
    pub(super) snapshots: SnapshotCalls,
    pub(super) layers: LayerCalls,
}

/// Progress of the initialization.
pub(super) enum Acceptance {
    /// Dormant, with the key of the init message.
    Open(SealingKey),
    /// Initialized; `ephemeral` is the key of the encrypted message that this process accepted.
    Done {
        owner: Option<PodOwner>,
        ephemeral: Option<String>,
    },
}

impl Control {
    pub(super) fn router(self: Arc<Self>) -> Router {
        Router::new()
            .route(endpoint::INIT, post(init))
            .route(endpoint::READY, get(ready))
            .route(endpoint::SAVE, post(save))
            .route(endpoint::SNAPSHOT, post(snapshot))
            .route(endpoint::IDENTITY, get(identity))
            .route(endpoint::WARM, get(warm))
            .fallback(async || CallError::Unknown)
            .layer(DefaultBodyLimit::max(MAX_TOKEN_BYTES))
            .layer(middleware::from_fn(in_time))
            .route(endpoint::LAYER, get(layer::layer))
            .with_state(self)
    }

    /// Starts the command of the stored init message after a restart of the container. A message
    /// that cannot be read leaves the Pod dormant, so that the controller can initialize it again.
    pub(super) fn resume(&self) {
        if let Some(init) = self.store.load() {
            self.start(init, None, &mut self.acceptance.lock());
        }
    }

    /// Accepts the first init message. The same call may be repeated.
    fn accept(&self, token: &str) -> Result<ReadyReport, CallError> {
        let sealed = match self.verify(token)? {
            Grant::SealedInit(sealed) => sealed,
            Grant::Init(_) => return Err(CallError::NotSealed),
            Grant::Ready | Grant::Save(_) | Grant::Snapshot(_) | Grant::Layer(_) => {
                return Err(CallError::OtherGrant);
            }
        };
        let mut acceptance = self.acceptance.lock();
        let init: Init = match &mut *acceptance {
            Acceptance::Open(key) => {
                // A key opens one message; the next ready report has a new one.
                let key = mem::replace(key, SealingKey::generate()?);
                key.open(&sealed, &self.store.identity.pod_uid)?
            }
            Acceptance::Done { ephemeral, .. } if ephemeral.as_ref() == Some(&sealed.ephemeral) => {
                return Ok(self.lifecycle.report());
            }
            Acceptance::Done { owner, .. } => return Err(CallError::Conflict(owner.clone())),
        };
        // Stored before the start, so that a restart finds it. The volume is in memory, so the
        // write may block here, under the lock.
        self.store.save(&init)?;
        self.start(init, Some(sealed.ephemeral), &mut acceptance);
        Ok(self.lifecycle.report())
    }

    fn start(&self, init: Init, ephemeral: Option<String>, acceptance: &mut Acceptance) {
        *acceptance = Acceptance::Done {
            owner: init.owner(),
            ephemeral,
        };
        self.lifecycle.set(SupervisorState::Starting, None);
        // The channel holds one message, and this is the only one.
        if self.starts.try_send(init).is_err() {
            tracing::error!("the supervisor has ended; the command is not started");
        }
    }

    fn verify(&self, token: &str) -> Result<Grant, CallError> {
        let pod_uid = &self.store.identity.pod_uid;
        let grant = ControlMessage::verify(token, &self.verifier, pod_uid, unix_now())?;
        Ok(grant)
    }

    /// Report as JSON, with the proof of this Pod.
    fn prove_report(&self, nonce: &str, report: &impl Serialize) -> Result<Response, CallError> {
        let body = serde_json::to_vec(report).map_err(|_| SealingError::Malformed)?;
        Ok(self.prove(nonce, body))
    }

    /// Response with the proof of this Pod.
    fn prove(&self, nonce: &str, body: Vec<u8>) -> Response {
        let identity = &self.store.identity;
        let proof = identity.key.prove(identity.address, nonce, &body);
        let mut response = body.into_response();
        let headers = response.headers_mut();
        headers.remove(header::CONTENT_TYPE);
        if let Ok(proof) = HeaderValue::from_str(&proof) {
            headers.insert(PROOF_HEADER, proof);
        }
        response
    }
}

async fn init(
    State(control): State<Arc<Control>>,
    token: Result<String, StringRejection>,
) -> Result<Json<ReadyReport>, CallError> {
    let token = token.map_err(|_| CallError::Body)?;
    control.accept(token.trim_end()).map(Json)
}

/// Proves that this Pod belongs to its sandbox. The call has no effect, so it needs no token.
async fn identity(
    State(control): State<Arc<Control>>,
    headers: HeaderMap,
) -> Result<Response, CallError> {
    let nonce = headers.get(NONCE_HEADER).and_then(|n| n.to_str().ok());
    let nonce = nonce.filter(|n| !n.is_empty() && n.len() <= MAX_NONCE_BYTES);
    Ok(control.prove(nonce.ok_or(CallError::Nonce)?, Vec::new()))
}

/// Tells the kubelet whether the Pod is warm. The call has no effect, so it needs no token.
async fn warm(State(control): State<Arc<Control>>) -> StatusCode {
    if control.lifecycle.is_warm() {
        StatusCode::NO_CONTENT
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    }
}

/// Bounds the time of a request, so that a slow body does not hold a connection.
async fn in_time(request: Request, next: Next) -> Result<Response, CallError> {
    tokio::time::timeout(REQUEST_TIMEOUT, next.run(request))
        .await
        .map_err(|_| CallError::BodyTimeout)
}

#[derive(Deserialize)]
struct WaitQuery {
    #[serde(default)]
    timeout: u64,
}

type Wait = Result<Query<WaitQuery>, QueryRejection>;

/// Time that a long poll asks for, within its limit.
fn wait_of(query: Wait) -> Result<Duration, CallError> {
    let Query(wait) = query.map_err(|_| CallError::Query)?;
    Ok(Duration::from_secs(
        wait.timeout.min(MAX_READY_WAIT_SECONDS),
    ))
}

async fn ready(
    State(control): State<Arc<Control>>,
    wait: Wait,
    headers: HeaderMap,
) -> Result<Response, CallError> {
    let token = bearer(&headers).ok_or(CallError::NoToken)?;
    if control.verify(token)? != Grant::Ready {
        return Err(CallError::OtherGrant);
    }
    let mut report = control.lifecycle.wait_settled(wait_of(wait)?).await;
    match &*control.acceptance.lock() {
        // The key for the init message, as long as one is accepted.
        Acceptance::Open(key) => report.sealing_key = Some(key.public_key().to_owned()),
        Acceptance::Done { owner, .. } => report.owner.clone_from(owner),
    }
    control.prove_report(token, &report)
}

/// Begins the save of the command's state, and reports on it.
async fn save(
    State(control): State<Arc<Control>>,
    wait: Wait,
    token: Result<String, StringRejection>,
) -> Result<Response, CallError> {
    let token = token.map_err(|_| CallError::Body)?;
    let token = token.trim_end();
    let Grant::Save(request) = control.verify(token)? else {
        return Err(CallError::OtherGrant);
    };
    let wait = wait_of(wait)?;
    if matches!(*control.acceptance.lock(), Acceptance::Open(_)) {
        return Err(CallError::Dormant);
    }
    control.saves.begin(request);
    let report = control.saves.wait_done(wait).await;
    control.prove_report(token, &report)
}

/// Begins a snapshot of the command, and reports on it.
async fn snapshot(
    State(control): State<Arc<Control>>,
    wait: Wait,
    token: Result<String, StringRejection>,
) -> Result<Response, CallError> {
    let token = token.map_err(|_| CallError::Body)?;
    let token = token.trim_end();
    let Grant::Snapshot(request) = control.verify(token)? else {
        return Err(CallError::OtherGrant);
    };
    let wait = wait_of(wait)?;
    let id = request.id.clone();
    if !is_uid(&id) {
        return Err(CallError::SnapshotId);
    }
    if !control.snapshots.has_begun(&id) {
        if !control.lifecycle.is_ready() {
            return Err(CallError::NotReady);
        }
        if !control.snapshots.begin(request) {
            return Err(CallError::Busy);
        }
    }
    let report = control.snapshots.wait_taken(&id, wait).await;
    control.prove_report(token, &report)
}

/// Returns whether a text can be a uid, and so the name of a directory.
fn is_uid(text: &str) -> bool {
    let may_have = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    !text.is_empty() && text.len() <= MAX_UID_BYTES && text.bytes().all(may_have)
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    value.strip_prefix("Bearer ")
}

fn unix_now() -> i64 {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH);
    // A clock before 1970 counts as 1970.
    elapsed.map_or(0, |elapsed| {
        i64::try_from(elapsed.as_secs()).unwrap_or(i64::MAX)
    })
}
