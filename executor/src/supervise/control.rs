//! Control server: accepts the init message of this Pod and reports readiness. The sandbox's own
//! code can reach the port, so every call needs a signature.

use std::sync::Arc;
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
use serde::Deserialize;
use serde_json::json;
use tokio::sync::mpsc;

use super::command_state::CommandState;
use super::init_store::{InitStore, InitStoreError, PodIdentity};

/// Timeout of a request, longer than the maximum wait of `ready`.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(MAX_READY_WAIT_SECONDS + 10);

#[derive(Debug, thiserror::Error)]
pub(super) enum CallError {
    #[error(transparent)]
    Refused(#[from] ControlError),
    #[error("the token does not grant this call")]
    OtherGrant,
    #[error("a bearer token is required")]
    NoToken,
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
    #[error("this Pod has no identity key")]
    NoIdentity,
}

impl CallError {
    fn status(&self) -> StatusCode {
        match self {
            Self::Refused(ControlError::Token(_)) | Self::NoToken | Self::Body => {
                StatusCode::UNAUTHORIZED
            }
            Self::Query | Self::Nonce => StatusCode::BAD_REQUEST,
            Self::Unknown | Self::NoIdentity => StatusCode::NOT_FOUND,
            Self::BodyTimeout => StatusCode::REQUEST_TIMEOUT,
            Self::Refused(_) | Self::OtherGrant | Self::Sealed(_) | Self::NotSealed => {
                StatusCode::FORBIDDEN
            }
            Self::Conflict(_) => StatusCode::CONFLICT,
            Self::InitStore(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

impl IntoResponse for CallError {
    fn into_response(self) -> Response {
        tracing::warn!(error = %self, "control call rejected");
        let mut body = json!({"detail": self.to_string()});
        if let Self::Conflict(Some(owner)) = &self {
            body["owner"] = json!(owner);
        }
        (self.status(), Json(body)).into_response()
    }
}

/// Control server of this Pod.
pub(super) struct Control {
    pub(super) pod_uid: String,
    pub(super) verifier: Verifier,
    pub(super) identity: Option<PodIdentity>,
    pub(super) store: InitStore,
    pub(super) lifecycle: CommandState,
    pub(super) acceptance: Mutex<Acceptance>,
    pub(super) starts: mpsc::Sender<Init>,
}

/// Progress of the initialization.
pub(super) enum Acceptance {
    /// Dormant: `None` in Pods of earlier versions, which get plain messages.
    Open(Option<SealingKey>),
    /// Initialized; `ephemeral` is the key of the encrypted message that this process accepted.
    Done {
        init: Init,
        owner: Option<PodOwner>,
        ephemeral: Option<String>,
    },
}

impl Acceptance {
    /// # Errors
    /// If the operating system has no random bytes.
    pub(super) fn open(identity: Option<&PodIdentity>) -> Result<Self, SealingError> {
        let key = identity.map(|_| SealingKey::generate());
        key.transpose().map(Self::Open)
    }
}

impl Control {
    pub(super) fn router(self: Arc<Self>) -> Router {
        Router::new()
            .route(endpoint::INIT, post(init))
            .route(endpoint::READY, get(ready))
            .route(endpoint::IDENTITY, get(identity))
            .route(endpoint::WARM, get(warm))
            .fallback(async || CallError::Unknown)
            .layer(DefaultBodyLimit::max(MAX_TOKEN_BYTES))
            .layer(middleware::from_fn(in_time))
            .with_state(self)
    }

    /// Starts the command of the stored init token after a restart of the container. A token that
    /// does not verify leaves the Pod dormant, so that the controller can initialize it again.
    pub(super) fn resume(&self) {
        let Some(stored) = self.store.load() else {
            return;
        };
        match self.recall(&stored) {
            Ok(init) => self.start(init, None, &mut self.acceptance.lock()),
            Err(error) => {
                tracing::error!(%error, "the stored init message is not valid; staying dormant");
            }
        }
    }

    /// Accepts the first init message. The same call may be repeated.
    fn accept(&self, token: &str) -> Result<ReadyReport, CallError> {
        let grant = self.verify(token)?;
        let mut acceptance = self.acceptance.lock();
        if let Acceptance::Done {
            init,
            owner,
            ephemeral,
        } = &*acceptance
        {
            let is_same = match grant {
                Grant::Ready => return Err(CallError::OtherGrant),
                Grant::Init(again) => *again == *init,
                Grant::SealedInit(again) => ephemeral.as_ref() == Some(&again.ephemeral),
            };
            return if is_same {
                Ok(self.lifecycle.report())
            } else {
                Err(CallError::Conflict(owner.clone()))
            };
        }
        let ephemeral = match &grant {
            Grant::SealedInit(sealed) => Some(sealed.ephemeral.clone()),
            _ => None,
        };
        let init = self.open_init(grant, &mut acceptance)?;
        // Stored before the start, so that a restart finds it. The volume is in memory, so the
        // write may block here, under the lock.
        self.store.save(&self.stored_form(&init, token)?)?;
        self.start(init, ephemeral, &mut acceptance);
        Ok(self.lifecycle.report())
    }

    /// Init message of a grant. A key opens one message; the next ready report has a new one.
    fn open_init(&self, grant: Grant, acceptance: &mut Acceptance) -> Result<Init, CallError> {
        let key = match acceptance {
            Acceptance::Open(key) => key.take(),
            Acceptance::Done { owner, .. } => return Err(CallError::Conflict(owner.clone())),
        };
        let opened = match (grant, key) {
            (Grant::Init(init), None) => return Ok(*init),
            (Grant::SealedInit(sealed), Some(key)) => {
                key.open(&sealed, &self.pod_uid).map_err(Into::into)
            }
            (Grant::Init(_), Some(_)) => Err(CallError::NotSealed),
            (Grant::SealedInit(_), None) => Err(CallError::NoIdentity),
            (Grant::Ready, _) => Err(CallError::OtherGrant),
        };
        *acceptance = Acceptance::open(self.identity.as_ref())?;
        opened
    }

    fn start(&self, init: Init, ephemeral: Option<String>, acceptance: &mut Acceptance) {
        *acceptance = Acceptance::Done {
            owner: init.owner(),
            init: init.clone(),
            ephemeral,
        };
        self.lifecycle.set(SupervisorState::Starting, None);
        // The channel holds one message, and this is the only one.
        if self.starts.try_send(init).is_err() {
            tracing::error!("the supervisor has ended; the command is not started");
        }
    }

    fn verify(&self, token: &str) -> Result<Grant, CallError> {
        let grant = ControlMessage::verify(token, &self.verifier, &self.pod_uid, unix_now())?;
        Ok(grant)
    }

    /// Text that the next run of the container starts from: the message itself where the store
    /// encrypts it, and otherwise the token, whose signature shows changes.
    fn stored_form(&self, init: &Init, token: &str) -> Result<String, CallError> {
        match &self.identity {
            Some(_) => Ok(serde_json::to_string(init).map_err(|_| SealingError::Malformed)?),
            None => Ok(token.to_owned()),
        }
    }

    fn recall(&self, stored: &str) -> Result<Init, CallError> {
        if self.identity.is_some() {
            let init = serde_json::from_str(stored);
            return Ok(init.map_err(|_| SealingError::Malformed)?);
        }
        match ControlMessage::recall(stored, &self.verifier, &self.pod_uid)?.grant {
            Grant::Init(init) => Ok(*init),
            _ => Err(CallError::OtherGrant),
        }
    }

    /// Response with the proof of this Pod, if it has an identity.
    fn prove(&self, nonce: &str, body: Vec<u8>) -> Response {
        let identity = self.identity.as_ref();
        let proof = identity.map(|id| id.key.prove(id.address, nonce, &body));
        let mut response = body.into_response();
        let headers = response.headers_mut();
        headers.remove(header::CONTENT_TYPE);
        if let Some(proof) = proof.and_then(|proof| HeaderValue::from_str(&proof).ok()) {
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
    if control.identity.is_none() {
        return Err(CallError::NoIdentity);
    }
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
struct ReadyQuery {
    #[serde(default)]
    timeout: u64,
}

async fn ready(
    State(control): State<Arc<Control>>,
    wait: Result<Query<ReadyQuery>, QueryRejection>,
    headers: HeaderMap,
) -> Result<Response, CallError> {
    let token = bearer(&headers).ok_or(CallError::NoToken)?;
    if control.verify(token)? != Grant::Ready {
        return Err(CallError::OtherGrant);
    }
    let Query(wait) = wait.map_err(|_| CallError::Query)?;
    let wait = Duration::from_secs(wait.timeout.min(MAX_READY_WAIT_SECONDS));
    let mut report = control.lifecycle.wait_settled(wait).await;
    match &*control.acceptance.lock() {
        // The key for the init message, as long as one is accepted.
        Acceptance::Open(key) => {
            report.sealing_key = key.as_ref().map(|key| key.public_key().to_owned());
        }
        Acceptance::Done { owner, .. } => report.owner.clone_from(owner),
    }
    let body = serde_json::to_vec(&report).map_err(|_| SealingError::Malformed)?;
    Ok(control.prove(token, body))
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
