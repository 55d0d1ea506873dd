//! `POST /start`: the sandbox of a session, made if there is none (runtime API spec 1.4, 7.1).
//!
//! The name of the object follows from tenant, session and epoch. So the one create is also the
//! check whether somebody else has just started this session: across any number of replicas,
//! without a lock.

mod build;
mod command;
mod environment;
mod queue;
mod request;
mod runtime_class;
mod words;

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use crds::sandbox::DesiredState;
use http::StatusCode;
use tokio::time::timeout;

use super::auth::Turn;
use super::body::Body;
use super::endpoint::Endpoint;
use super::info::{Lifecycle, RuntimeInfo, derive};
use super::state::is_stopped;
use super::{Api, ApiError, Shared, audit};
use crate::gateway::sandboxes::{Created, SandboxError};
use crate::index::Entry;
use crate::tenants::Tenant;
use request::Start;

pub(super) use request::StartRequest;

/// Rounds of looking and creating. Each lost round means that somebody else changed the session.
const ROUNDS: u32 = 8;

pub(super) fn endpoint() -> Endpoint {
    Endpoint::post("/start", start)
        .says("The sandbox of a session; made if there is none, resumed if it is paused.")
        .takes::<StartRequest>()
        .answers::<RuntimeInfo>(201)
        .fails(&[400, 401, 413, 503])
}

async fn start(
    State(api): Shared,
    turn: Turn,
    Body(request): Body<StartRequest>,
) -> Result<(StatusCode, Json<RuntimeInfo>), ApiError> {
    let start = request.check(&api.config.runtime_classes)?;
    let tenant = &turn.tenant;
    let obtained = timeout(turn.left(), api.obtain(tenant, &start)).await;
    let obtained = obtained.unwrap_or(Err(SandboxError::Timeout.into()));
    let runtime = obtained.as_ref().map_or("", |entry| &entry.runtime_id);
    audit::tenant("start", &tenant.name, runtime, obtained.as_ref().map(drop));
    let entry = obtained?;
    let entry = api.settled(entry).await;
    let mut info = api.info(&entry).ok_or(ApiError::UnknownRuntime)?;
    info.status_detail = info.status_detail.or(start.note);
    Ok((StatusCode::CREATED, Json(info)))
}

/// What to do about the newest sandbox of a session.
enum Verdict {
    Keep,
    Resume,
    /// Its end is final: the next epoch begins.
    Replace,
    /// A name of ours on an object without a session is somebody's mistake; it is left alone.
    Avoid,
}

impl Api {
    /// The live sandbox of the session: the one there is, resumed if it is paused, or a new one.
    async fn obtain(&self, owner: &Tenant, start: &Start) -> Result<Arc<Entry>, ApiError> {
        self.sandboxes.synced().await?;
        let tenant = &owner.name;
        let mut epoch = 0;
        let mut newest = self.newest(tenant, &start.session).await;
        for _ in 0..ROUNDS {
            if let Some(entry) = newest {
                match self.take(&entry).await? {
                    Some(live) => return Ok(live),
                    None => epoch = epoch_of(&entry).unwrap_or(epoch).saturating_add(1),
                }
            }
            self.check_queue(owner)?;
            let sandbox = self.build(tenant, start, epoch)?;
            match self.sandboxes.create(&sandbox).await? {
                Created::New(entry) => return Ok(entry),
                Created::Exists => newest = self.existing(tenant, start, epoch).await?,
            }
        }
        Err(SandboxError::Timeout.into())
    }

    /// The newest sandbox of the session that can be known, as the API server has it now: another
    /// replica may have stopped it a moment ago.
    async fn newest(&self, tenant: &str, session: &str) -> Option<Arc<Entry>> {
        let entry = self.sandboxes.known_session(tenant, session)?;
        if is_stopped(&entry) {
            return Some(entry);
        }
        self.sandboxes.refresh(entry).await
    }

    /// Who has the name that a create wanted.
    async fn existing(
        &self,
        tenant: &str,
        start: &Start,
        epoch: u32,
    ) -> Result<Option<Arc<Entry>>, ApiError> {
        let keys = &self.sandboxes.keys;
        let name = keys.session_runtime_id(&self.config.namespace, tenant, &start.session, epoch);
        Ok(self.sandboxes.look_up(&name).await?)
    }

    /// Makes the best of a sandbox of the session. `None` if it cannot live any more.
    async fn take(&self, entry: &Arc<Entry>) -> Result<Option<Arc<Entry>>, ApiError> {
        match judge(entry) {
            Verdict::Keep => Ok(Some(entry.clone())),
            Verdict::Resume => {
                let resumed = self.change(entry.clone(), DesiredState::Running).await?;
                Ok(Some(resumed).filter(|entry| !is_stopped(entry)))
            }
            Verdict::Replace => {
                // The failed one is stopped first: never two live ones of a session.
                self.change(entry.clone(), DesiredState::Stopped).await?;
                Ok(None)
            }
            Verdict::Avoid => Ok(None),
        }
    }

    /// The entry after a moment in which a warm start becomes ready.
    async fn settled(&self, entry: Arc<Entry>) -> Arc<Entry> {
        let limit = self.config.start_wait;
        let settled = |e: &Entry| derive(e).lifecycle != Lifecycle::Starting;
        let index = &self.sandboxes.index;
        index
            .wait(&entry.key, limit, settled)
            .await
            .unwrap_or(entry)
    }
}

fn judge(entry: &Entry) -> Verdict {
    if entry.session().is_none() {
        return Verdict::Avoid;
    }
    match derive(entry).lifecycle {
        Lifecycle::Starting | Lifecycle::Running => Verdict::Keep,
        Lifecycle::Paused => Verdict::Resume,
        Lifecycle::Stopped | Lifecycle::Error => Verdict::Replace,
    }
}

fn epoch_of(entry: &Entry) -> Option<u32> {
    entry.session().map(|session| session.epoch)
}
