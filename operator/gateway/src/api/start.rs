//! `POST /start`: the sandbox of a session, created if there is none (`docs/specs/runtime-api.md`,
//! sections 1.4 and 7, rule 1).
//!
//! The object name is derived from tenant, session and epoch. So `create` is also the check for a
//! concurrent start, across any number of replicas and without a lock.

mod build;
pub(super) mod environment;
mod image;
pub(super) mod request;
mod runtime_class;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::routing::post;
use crds::conditions::Reason;
use crds::names;
use crds::sandbox::DesiredState;
use http::StatusCode;
use tokio::time::{Instant, timeout_at};

use super::auth::RateLimitedCaller;
use super::body::Body;
use super::endpoint::{Endpoint, SANDBOXES};
use super::info::RuntimeInfo;
use super::{Api, ApiError, Shared, audit};
use crate::runtime_status::{RuntimeStatus, derive, is_stopped};
use crate::sandboxes::SandboxError;
use shared::index::Entry;
use shared::traces::TraceParent;

pub(super) use request::{Start, StartRequest};

/// Longest wait for readiness before the response says `starting`.
const START_WAIT: Duration = Duration::from_secs(1);
/// Attempts to find or create. A lost attempt means that another caller changed the session.
const MAX_ROUNDS: u32 = 8;

/// Example of a request body.
const EXAMPLE: &str = r#"{
    "session_id": "session-1",
    "image": "ghcr.io/openhands/agent-server:latest-python",
    "command": ["/usr/local/bin/openhands-agent-server", "--port", "60000"],
    "working_dir": "/workspace",
    "environment": {"LOG_JSON": "1"},
    "resource_factor": 1
}"#;

pub(super) fn endpoint() -> Endpoint {
    Endpoint::new(SANDBOXES, "POST", "/start", post(start))
        .documented(
            "startSandbox",
            "Starts the sandbox of a session: creates it, or resumes the existing one.",
        )
        .request_body::<StartRequest>(EXAMPLE)
        .response::<RuntimeInfo>(201)
        .errors(&[400, 401, 413, 503])
}

async fn start(
    State(api): Shared,
    caller: RateLimitedCaller,
    Body(request): Body<StartRequest>,
) -> Result<(StatusCode, Json<RuntimeInfo>), ApiError> {
    let mut start = request.check(api.config())?;
    let deadline = Instant::now() + caller.remaining_time();
    let image = start.spec.image.as_deref().unwrap_or_default();
    // A registry may take longer than the whole call.
    let runnable = timeout_at(deadline, api.builds.runnable(&caller.tenant, image)).await;
    if let Some(image) = runnable.map_err(|_| SandboxError::Timeout)?? {
        Arc::make_mut(&mut start.spec).image = Some(image);
    }
    let entry = api.obtain(&caller, &start, deadline).await?;
    let info = api.started(entry, start).await?;
    Ok((StatusCode::CREATED, Json(info)))
}

impl Api {
    /// Returns the live sandbox of the session, with an audit line.
    pub(super) async fn obtain(
        &self,
        caller: &RateLimitedCaller,
        start: &Start,
        deadline: Instant,
    ) -> Result<Arc<Entry>, ApiError> {
        let obtaining = self.get_or_create(caller, start);
        let obtained = timeout_at(deadline, obtaining).await;
        let obtained = obtained.unwrap_or(Err(SandboxError::Timeout.into()));
        let runtime = obtained.as_ref().map_or("", |entry| &entry.runtime_id);
        audit::tenant("start", caller, runtime, obtained.as_ref().map(drop));
        obtained
    }

    /// Describes a sandbox that was obtained, after a wait for readiness.
    pub(super) async fn started(
        &self,
        entry: Arc<Entry>,
        start: Start,
    ) -> Result<RuntimeInfo, ApiError> {
        let kept = kept_fields(&entry, &start);
        let entry = self.wait_for_ready(entry).await;
        if let Some(refusal) = refusal(&entry) {
            // A retry makes a new sandbox in any case; nothing of this one is left to use.
            let _ = self.change(entry, DesiredState::Stopped).await;
            return Err(ApiError::PoolExhausted(refusal));
        }
        let mut info = self.info(&entry).ok_or(ApiError::UnknownRuntime)?;
        let detail = info.status_detail.into_iter().chain(start.notes);
        let detail: Vec<_> = detail.chain(kept).collect();
        info.status_detail = (!detail.is_empty()).then(|| detail.join("; "));
        Ok(info)
    }

    /// Returns the live sandbox of the session: the existing one, resumed if paused, or a new one.
    async fn get_or_create(
        &self,
        caller: &RateLimitedCaller,
        start: &Start,
    ) -> Result<Arc<Entry>, ApiError> {
        self.sandboxes.synced().await?;
        let owner = &caller.tenant;
        let tenant = &owner.name;
        let mut epoch = 0;
        let mut newest = self.newest(tenant, &start.session).await;
        for _ in 0..MAX_ROUNDS {
            if let Some(entry) = newest {
                if let Some(live) = self.reuse(&entry).await? {
                    return Ok(live);
                }
                let ended = entry.session().map_or(epoch, |session| session.epoch);
                epoch = ended.saturating_add(1);
            }
            self.check_waiting_limit(owner)?;
            let name = self
                .sandboxes
                .session_runtime_id(tenant, &start.session, epoch);
            let mut sandbox = self.build(&name, tenant, start, epoch)?;
            self.check_total_limits(owner, &sandbox.spec)?;
            sandbox.metadata.annotations = trace_annotation(caller.trace);
            match self.sandboxes.create(&sandbox).await? {
                Some(entry) => return Ok(entry),
                None => newest = self.sandboxes.look_up(&name).await?,
            }
        }
        Err(SandboxError::Timeout.into())
    }

    /// Finds the newest known sandbox of the session and refreshes it from the API server: another
    /// replica may have stopped it a moment ago.
    async fn newest(&self, tenant: &str, session: &str) -> Option<Arc<Entry>> {
        let entry = self.sandboxes.known_session(tenant, session)?;
        if is_stopped(&entry) {
            return Some(entry);
        }
        self.sandboxes.refresh(entry).await
    }

    /// Keeps or resumes a sandbox of the session. `None` if the session needs a new one.
    async fn reuse(&self, entry: &Arc<Entry>) -> Result<Option<Arc<Entry>>, ApiError> {
        if entry.session().is_none() {
            // An object with the derived name, made by a user. It is left alone.
            return Ok(None);
        }
        match derive(entry).lifecycle {
            RuntimeStatus::Starting | RuntimeStatus::Running => return Ok(Some(entry.clone())),
            RuntimeStatus::Paused => {}
            // Its workspace holds work: it starts again on the same volume.
            RuntimeStatus::Error if entry.has_failed_with_workspace() && entry.was_ready() => {}
            RuntimeStatus::Stopped | RuntimeStatus::Error => {
                // Stop the failed one first: a session has at most one live sandbox.
                self.change(entry.clone(), DesiredState::Stopped).await?;
                return Ok(None);
            }
        }
        let resumed = self.change(entry.clone(), DesiredState::Running).await?;
        Ok(Some(resumed).filter(|entry| !is_stopped(entry)))
    }

    /// Waits for readiness, long enough for a warm start.
    async fn wait_for_ready(&self, entry: Arc<Entry>) -> Arc<Entry> {
        let settled = |e: &Entry| derive(e).lifecycle != RuntimeStatus::Starting;
        let waiting = self.sandboxes.index.wait(&entry.key, START_WAIT, settled);
        waiting.await.unwrap_or(entry)
    }
}

/// Annotation from which the controller takes the parent of the span of the start. One that is not
/// sampled would only enlarge the object.
fn trace_annotation(trace: Option<TraceParent>) -> Option<BTreeMap<String, String>> {
    let trace = trace.filter(TraceParent::is_sampled)?;
    let annotation = (names::TRACE_ANNOTATION.to_owned(), trace.to_string());
    Some(BTreeMap::from([annotation]))
}

/// Message of a sandbox that its pool refused.
fn refusal(entry: &Entry) -> Option<String> {
    let status = &entry.status;
    let is_refused = status.reason == Some(Reason::PoolExhausted);
    is_refused.then(|| status.message.clone().unwrap_or_default())
}

/// Names the fields of a request that differ from the existing sandbox, which keeps its own.
fn kept_fields(entry: &Entry, start: &Start) -> Option<String> {
    let (spec, asked) = (&entry.spec, &start.spec);
    let factor = |factor: Option<f64>| factor.unwrap_or(1.0).to_bits();
    let differs = [
        ("image", spec.image != asked.image),
        ("command", spec.command != asked.command),
        ("working_dir", spec.working_dir != asked.working_dir),
        (
            "resource_factor",
            factor(spec.resource_factor) != factor(asked.resource_factor),
        ),
        (
            "runtime_class",
            spec.runtime_class_name != asked.runtime_class_name,
        ),
        // A request without a level accepts any.
        (
            "persistence",
            asked.persistence.is_some() && spec.persistence != asked.persistence,
        ),
        (
            "state",
            asked.source.is_some() && spec.source != asked.source,
        ),
    ];
    let kept = differs.iter().filter(|(_, differs)| *differs);
    let kept: Vec<_> = kept.map(|(name, _)| *name).collect();
    let names = kept.join(", ");
    (!kept.is_empty())
        .then(|| format!("the session has a sandbox already, which keeps its {names}"))
}
