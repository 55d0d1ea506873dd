//! Copy of the state of a running sandbox by its supervisor.

use std::time::Duration;

use crds::SandboxSnapshot;
use crds::contract::control::{ControlMessage, Grant};
use crds::contract::persistence::{KeptState, PersistenceLevel, SnapshotReport, SnapshotRequest};
use crds::sandbox::{DesiredState, SandboxSpec};
use crds::snapshot::{SandboxSnapshotStatus, SnapshotPhase};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{Api, ResourceExt as _};
use serde_json::Value;
use shared::kubernetes::client::CallError;
use tokio::time::{Instant, sleep, timeout_at};

use super::{claim, status};
use crate::context::Context;
use crate::facts::PodFacts;
use crate::probes::supervisor_client::{SupervisorAddress, SupervisorError};
use crate::reconcile::apply::identity_key;
use crate::reconcile::build::volumes::workspace_path;
use crate::reconcile::observe::Observed;

/// Snapshots on one volume. An API key has at most 100, and those that were deleted may still be
/// owners of the volume for a moment.
const MAX_SNAPSHOTS_PER_VOLUME: usize = 128;
/// Maximum time of one long poll.
const LONG_POLL_TIMEOUT: Duration = Duration::from_secs(20);
/// Delay after a call that failed, or that another snapshot precedes.
const RETRY_INTERVAL: Duration = Duration::from_millis(250);
/// Time for calls, and for snapshots that precede, in addition to the limits of the copy itself.
const CALL_GRACE: Duration = Duration::from_secs(30);

/// Takes a snapshot, and writes how it ended.
pub(super) async fn take(
    context: &Context,
    snapshot: &SandboxSnapshot,
    source: &Observed,
    pod: &PodFacts,
) -> Result<(), CallError> {
    let entry = &source.entry;
    let claim = entry.workspace_claim();
    let begun = SandboxSnapshotStatus {
        phase: SnapshotPhase::Saving,
        image_digest: pod.container.image.clone(),
        sandbox_uid: Some(entry.uid.clone()),
        pod_uid: Some(pod.uid.clone()),
        claim: Some(claim.clone()),
        tenant: entry.session().map(|session| session.tenant.clone()),
        template: template(&entry.spec),
        ..SandboxSnapshotStatus::default()
    };
    // Before the volume is shared, so that a snapshot that fails is known to have it.
    if !status::write(context, snapshot, begun.clone()).await? {
        return Ok(());
    }
    let Some(others) = claim::share(&context.api(&entry.key), &claim, snapshot).await? else {
        let gone = "the volume of the sandbox is gone".to_owned();
        return status::fail(context, snapshot, gone).await;
    };
    if others.len() >= MAX_SNAPSHOTS_PER_VOLUME {
        let reason = format!(
            "the volume of the sandbox has {MAX_SNAPSHOTS_PER_VOLUME} snapshots: delete one \
             before the next"
        );
        return give_up(context, snapshot, Some(source), reason).await;
    }
    let now = |context: &Context| Some(Time(context.clock.now()));
    match call(context, snapshot, source, pod, others).await {
        Ok(kept) => {
            context.metrics.record_snapshot("ready");
            let ready = SandboxSnapshotStatus {
                phase: SnapshotPhase::Ready,
                message: kept.reason,
                level: Some(kept.level),
                size: kept.bytes.and_then(|bytes| i64::try_from(bytes).ok()),
                saved_at: now(context),
                ..begun
            };
            status::write(context, snapshot, ready).await.map(drop)
        }
        Err(reason) => give_up(context, snapshot, Some(source), reason).await,
    }
}

/// Ends a snapshot that cannot be taken. It gives up the volume first, so that no failed one keeps it.
pub(super) async fn give_up(
    context: &Context,
    snapshot: &SandboxSnapshot,
    source: Option<&Observed>,
    reason: String,
) -> Result<(), CallError> {
    let known = snapshot.status.as_ref();
    let known = known.and_then(|status| status.claim.clone());
    // The status may not say yet that the volume is shared.
    let claim = known.or_else(|| Some(source?.entry.workspace_claim()));
    if let (Some(claim), Some(uid)) = (claim, snapshot.uid()) {
        let namespace = snapshot.namespace().unwrap_or_default();
        let api = Api::namespaced(context.client.clone(), &namespace);
        claim::release(&api, &claim, &uid).await?;
    }
    status::fail(context, snapshot, reason).await
}

/// Calls until the supervisor reports an end, within the limits of the Pod.
async fn call(
    context: &Context,
    snapshot: &SandboxSnapshot,
    source: &Observed,
    pod: &PodFacts,
    others: Vec<String>,
) -> Result<KeptState, String> {
    let persistence = pod
        .persistence
        .as_ref()
        .ok_or("the sandbox keeps no state")?;
    let ip = pod.ip.clone().ok_or("the Pod has no address")?;
    let identity = identity_key(context, &source.entry, pod);
    let address = SupervisorAddress { ip, identity };
    let request = request(context, snapshot, source, pod, others);
    let until = Instant::now() + Duration::from_secs(persistence.limits.seconds) + CALL_GRACE;
    let mut last_error = None;
    let reports = async {
        loop {
            match ask(context, source, pod, &address, request.clone()).await {
                Ok(SnapshotReport {
                    kept: Some(kept), ..
                }) => return Ok(kept.bounded()),
                Ok(SnapshotReport {
                    error: Some(error), ..
                }) => return Err(bounded(error)),
                Ok(_) => {}
                Err(SupervisorError::Refused(404)) => {
                    return Err(
                        "the supervisor is of an earlier version; pause and resume the \
                                sandbox first"
                            .to_owned(),
                    );
                }
                Err(error) => {
                    tracing::debug!(pod = pod.name, %error, "snapshot call failed");
                    last_error = Some(error.to_string());
                    sleep(RETRY_INTERVAL).await;
                }
            }
        }
    };
    match timeout_at(until, reports).await {
        Ok(result) => result,
        Err(_) => Err(match last_error {
            Some(error) => format!("the supervisor did not answer: {error}"),
            None => "the copy took too long".to_owned(),
        }),
    }
}

async fn ask(
    context: &Context,
    source: &Observed,
    pod: &PodFacts,
    address: &SupervisorAddress,
    request: SnapshotRequest,
) -> Result<SnapshotReport, SupervisorError> {
    let now = context.clock.now().max(Timestamp::now());
    let token = ControlMessage::new(&pod.uid, now.as_second(), Grant::Snapshot(request))
        .sign(context.keys.of(source.entry.created_at).signer())
        .map_err(|_| SupervisorError::Malformed)?;
    let supervisors = &context.supervisors;
    supervisors
        .snapshot(address, token, LONG_POLL_TIMEOUT)
        .await
}

fn request(
    context: &Context,
    snapshot: &SandboxSnapshot,
    source: &Observed,
    pod: &PodFacts,
    others: Vec<String>,
) -> SnapshotRequest {
    SnapshotRequest {
        id: snapshot.uid().unwrap_or_default(),
        key: key_of(context, snapshot),
        level: snapshot.spec.level.unwrap_or(PersistenceLevel::Memory),
        image: pod.container.image.clone().unwrap_or_default(),
        workspace: workspace_path(&source.entry.spec).to_owned(),
        others,
    }
}

/// Key that encrypts a snapshot.
pub(crate) fn key_of(context: &Context, snapshot: &SandboxSnapshot) -> String {
    let created_at = snapshot.creation_timestamp().map(|at| at.0);
    let uid = snapshot.uid().unwrap_or_default();
    context.keys.of(created_at).state_key(&uid)
}

/// Spec for sandboxes of the runtime API that start from the snapshot.
fn template(spec: &SandboxSpec) -> Option<Value> {
    let spec = SandboxSpec {
        sealed_env: None,
        session: None,
        source: None,
        pool: None,
        key_rotation: None,
        state: DesiredState::default(),
        ..spec.clone()
    };
    serde_json::to_value(spec).ok()
}

fn bounded(reason: String) -> String {
    let kept = KeptState {
        reason: Some(reason),
        ..KeptState::default()
    };
    kept.bounded().reason.unwrap_or_default()
}
