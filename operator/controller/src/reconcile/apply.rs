//! Executes the actions of a plan. Every write is safe to repeat. Responses update the indexes at
//! once, so that the next reconcile does not depend on watch lag.

use std::sync::Arc;

use crds::contract::identity::IdentityKey;
use crds::contract::persistence::{RootMechanism, SaveRequest, SnapshotSource};
use crds::sandbox::SandboxStatus;
use crds::{Sandbox, names};
use jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use super::build::PodParams;
use super::build::volumes::workspace_path;
use super::error::ApplyError;
use super::init_message::InitTarget;
use super::observe::{Observed, snapshot};
use super::plan::{Action, DeletionGrace, Plan};
use super::{create, failure_log, init_message};
use crate::context::Context;
use crate::facts::{PodFacts, PodIdentity};
use crate::pools::{claim, resize};
use crate::probes::readiness_prober::{ExpectedOwner, MakeInit, ProbeTarget};
use crate::probes::state_saver::SaveTarget;
use crate::probes::supervisor_client::{SupervisorAddress, SupervisorError};
use crate::sandbox_memory::PerSandbox as _;
use crate::snapshots::claim as shared_claim;
use shared::index::{Entry, Key};
use shared::kubernetes::client::with_timeout;
use shared::kubernetes::owned_objects::{delete, with_uid};
use shared::kubernetes::slim::SlimPod;
use shared::urls::RUNTIME;

/// Starts and stops probes, then executes the actions of a plan in order. Returns the planned
/// status with the results of the actions.
pub(super) async fn apply(
    context: &Arc<Context>,
    observed: &Observed,
    plan: Plan,
) -> Result<SandboxStatus, ApplyError> {
    update_readiness_probe(context, observed, plan.probe_readiness);
    update_idle_check(context, observed, plan.check_idle);
    update_save(context, observed, plan.save);
    let mut status = plan.status;
    for action in &plan.actions {
        tracing::debug!(key = %observed.entry.key, ?action, "applying");
        execute(context, observed, action, &mut status).await?;
    }
    Ok(status)
}

async fn execute(
    context: &Context,
    observed: &Observed,
    action: &Action,
    status: &mut SandboxStatus,
) -> Result<(), ApplyError> {
    let Entry { key, uid: own, .. } = &*observed.entry;
    match action {
        Action::IsolateNamespace => isolate_namespace(context, observed).await?,
        Action::CreateClaim => create::claim(context, observed).await?,
        Action::CreatePod { restarts } => {
            let params = PodParams {
                restarts: *restarts,
                ..PodParams::default()
            };
            create::pod(context, observed, params).await?;
        }
        Action::CreateWaitingPod { paused_at } => {
            create_waiting_pod(context, observed, *paused_at).await?;
        }
        Action::ClaimPod { warm, restarts } => {
            let pool = observed.facts.pool.clone();
            context.memory.record_claimed_from(key, pool);
            status.pod_name = create::claim_pod(context, observed, warm, *restarts).await?;
        }
        Action::AdoptClaim { name } => claim::adopt_volume(context, &observed.entry, name).await?,
        Action::ResizePod => {
            if let Some(pod) = &observed.facts.pod {
                resize::resize(context, &observed.entry, &pod.name, &pod.uid).await?;
            }
        }
        Action::CreateSecret => create::missing_secret(context, observed).await?,
        Action::CaptureLog => {
            if let Some(pod) = &observed.facts.pod {
                let log = failure_log::capture(context, key, &pod.name).await;
                status.sealed_log = log.or(status.sealed_log.take());
            }
        }
        Action::DeletePod { uid, grace } => {
            if let Some(pod) = observed.facts.find_pod(uid) {
                delete_pod(context, key, Some(own), pod, *grace).await?;
            }
        }
        Action::DeleteClaim { name } => {
            shared_claim::release(&context.api(key), name, own).await?;
        }
        Action::DropSealedEnv => drop_sealed_env(context, &observed.entry).await?,
        Action::DeleteSandbox => {
            let api = context.api::<Sandbox>(key);
            delete(&api, &key.name, Some(with_uid(own)), None).await?;
        }
    }
    Ok(())
}

/// Ensures the `NetworkPolicy` of the namespace. Without it no Pod is created; one that exists is
/// served on, and the next reconcile tries again.
async fn isolate_namespace(context: &Context, observed: &Observed) -> Result<(), ApplyError> {
    let key = &observed.entry.key;
    let (api, namespace, now) = (context.api(key), &key.namespace, context.clock.now());
    match context.isolation.ensure(&api, namespace, now).await {
        Err(error) if observed.facts.pod.is_some() => {
            tracing::warn!(namespace, %error, "cannot ensure the NetworkPolicy of sandboxes");
            Ok(())
        }
        result => Ok(result?),
    }
}

/// Creates a Pod ahead of the resume. A rejection is no state of the paused sandbox: the resume meets
/// it again, and reports it.
async fn create_waiting_pod(
    context: &Context,
    observed: &Observed,
    paused_at: Timestamp,
) -> Result<(), ApplyError> {
    let params = PodParams {
        created_in_pause: Some(paused_at),
        // If that is unknown, it is not.
        is_small: resize::is_supported(context).await.unwrap_or(false),
        ..PodParams::default()
    };
    let create = async || {
        if observed.facts.isolation_due {
            isolate_namespace(context, observed).await?;
        }
        create::pod(context, observed, params).await
    };
    let key = &observed.entry.key;
    match create().await {
        Err(error) if error.rejection().is_none() => return Err(error),
        Err(error) => tracing::warn!(%key, %error, "cannot create a Pod ahead of the resume"),
        Ok(()) => {}
    }
    context.memory.record_waiting_pod(key, paused_at);
    Ok(())
}

/// Starts or stops the readiness probe of the sandbox.
fn update_readiness_probe(context: &Arc<Context>, observed: &Observed, wanted: bool) {
    let key = &observed.entry.key;
    let pod = observed.facts.pod.as_ref().filter(|_| wanted);
    let Some((pod, ip)) = pod.and_then(|pod| Some((pod, pod.ip.as_ref()?))) else {
        context.readiness.forget(key);
        return;
    };
    let entry = &observed.entry;
    let target = match observed.plan_input().probe.port {
        _ if pod.supervised => ProbeTarget::Supervisor {
            init: make_init(context, observed),
            identity: identity_key(context, entry, pod),
            created_at: entry.created_at,
            owner: ExpectedOwner {
                sandbox_uid: entry.uid.clone(),
                is_required: pod.was_warm(),
            },
        },
        Some(port) => ProbeTarget::Port(port),
        None => return,
    };
    let readiness = &context.readiness;
    readiness.ensure_probing(key, pod.container_run(), ip, target);
}

/// Key with which the supervisor of a Pod proves that it is the sandbox's.
pub(crate) fn identity_key(
    context: &Context,
    entry: &Entry,
    pod: &PodFacts,
) -> Option<IdentityKey> {
    let (key, keys) = (&entry.key, context.keys.of(entry.created_at));
    Some(match pod.identity? {
        PodIdentity::Sandbox => keys.identity_key(&entry.uid),
        PodIdentity::Pod => keys.pod_identity_key(&key.namespace, &pod.name),
    })
}

/// Starts an idle check, or drops the last report if there is no Pod.
fn update_idle_check(context: &Arc<Context>, observed: &Observed, wanted: bool) {
    let key = &observed.entry.key;
    let Some(pod) = &observed.facts.pod else {
        context.idle_checker.forget(key);
        return;
    };
    if wanted {
        let server = pod.ip.clone().zip(observed.entry.port(RUNTIME));
        let checker = &context.idle_checker;
        checker.ensure_checking(key, pod.container_run(), server);
    }
}

/// Builds the init message from current facts each time, because the pool may appear later.
fn make_init(context: &Arc<Context>, observed: &Observed) -> MakeInit {
    let (context, key) = (context.clone(), observed.entry.key.clone());
    let uid = observed.facts.pod.as_ref().map(|pod| pod.uid.clone());
    Arc::new(move || {
        let observed = snapshot(&context, &key, context.clock.now());
        let observed = observed.ok_or(SupervisorError::Malformed)?;
        // The init message is only for the Pod that is probed.
        let pod = observed.facts.pod.as_ref();
        let pod = pod.filter(|pod| Some(&pod.uid) == uid.as_ref());
        // Nor for one of a sandbox whose start is not written.
        let pod = pod.filter(|pod| !pod.waits_for_resume(&observed.entry.status));
        let pod = pod.ok_or(SupervisorError::Malformed)?;
        let source = snapshot_source(&context, &observed.entry, pod);
        let target = InitTarget {
            key_rotation: pod.key_rotation,
            was_warm: pod.was_warm(),
            state_image: state_image(pod)?,
            source: source.as_ref(),
        };
        let build_context = create::build_context(&context, &observed);
        init_message::init(&build_context, target).map_err(|_| SupervisorError::Malformed)
    })
}

/// Access to the snapshot that a Pod begins with.
fn snapshot_source(context: &Context, entry: &Entry, pod: &PodFacts) -> Option<SnapshotSource> {
    let snapshot = pod.snapshot.as_ref()?;
    Some(SnapshotSource {
        id: snapshot.uid.clone(),
        key: context
            .keys
            .of(snapshot.created_at)
            .state_key(&snapshot.uid),
        workspace: workspace_path(&entry.spec).to_owned(),
    })
}

/// Image of a Pod that keeps more than the workspace. What an earlier Pod kept fits one image, so
/// that a start waits until the node has reported it.
fn state_image(pod: &PodFacts) -> Result<Option<&str>, SupervisorError> {
    let image = pod.container.image.as_deref();
    match pod.persistence.as_ref().map(|persistence| persistence.root) {
        None => Ok(None),
        Some(RootMechanism::Node) => Ok(Some(image.unwrap_or_default())),
        Some(_) => image.map(Some).ok_or(SupervisorError::UnknownImage),
    }
}

/// Starts the save of a sandbox that is paused, or forgets the one of an earlier Pod.
fn update_save(context: &Context, observed: &Observed, wanted: bool) {
    let key = &observed.entry.key;
    let Some(pod) = &observed.facts.pod else {
        context.saver.forget(key);
        return;
    };
    let address = pod.ip.clone().map(|ip| SupervisorAddress {
        ip,
        identity: identity_key(context, &observed.entry, pod),
    });
    let target = address.zip(pod.persistence.clone());
    if let Some((address, persistence)) = target.filter(|_| wanted) {
        let target = SaveTarget {
            run: pod.container_run(),
            address,
            created_at: observed.entry.created_at,
            persistence,
            request: SaveRequest {
                image: pod.container.image.clone().unwrap_or_default(),
                stop_seconds: context.config.pods.grace_seconds.unsigned_abs(),
            },
        };
        context.saver.ensure_saving(key, target);
    }
}

/// Deletes the Pod of a sandbox, which may be deleted already.
pub(super) async fn delete_pod(
    context: &Context,
    sandbox: &Key,
    owner_uid: Option<&str>,
    pod: &PodFacts,
    grace: DeletionGrace,
) -> Result<(), ApplyError> {
    let api = context.api::<SlimPod>(sandbox);
    let seconds = match grace {
        DeletionGrace::PodDefault => None,
        DeletionGrace::Force => Some(0),
    };
    let remaining = delete(&api, &pod.name, Some(with_uid(&pod.uid)), seconds).await?;
    // Without a grace period the response is the last state of a deleted Pod.
    let lingers = |pod: &SlimPod| pod.metadata.deletion_grace_period_seconds.unwrap_or(0) > 0;
    match remaining.filter(lingers) {
        Some(pod) => context.pods.apply(&pod),
        None => context.pods.forget(sandbox, owner_uid, &pod.uid),
    }
    Ok(())
}

/// Removes the sealed environment from the spec of a stopped Sandbox. It can take up a megabyte, and
/// a stopped sandbox never starts again.
async fn drop_sealed_env(context: &Context, entry: &Entry) -> Result<(), ApplyError> {
    let metadata = json!({"uid": entry.uid, "resourceVersion": entry.resource_version});
    let patch = Patch::Merge(json!({"metadata": metadata, "spec": {"sealedEnv": null}}));
    let params = PatchParams::apply(names::CONTROLLER_FIELD_MANAGER);
    let api = context.api::<Sandbox>(&entry.key);
    let written = with_timeout(api.patch(&entry.key.name, &params, &patch)).await?;
    context.index.apply(&written);
    Ok(())
}
