//! Executes the actions of a plan. Every write is safe to repeat. Responses update the indexes at
//! once, so that the next reconcile does not depend on watch lag.

use std::sync::Arc;

use crds::contract::identity::IdentityKey;
use crds::sandbox::SandboxStatus;
use crds::{Sandbox, names};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Secret};
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use super::error::ApplyError;
use super::observe::{Observed, snapshot};
use super::plan::{Action, DeletionGrace, Plan};
use super::{create, failure_log, init_message};
use crate::context::Context;
use crate::per_sandbox::PerSandbox as _;
use crate::probes::idle_checker::ServerAddress;
use crate::probes::readiness_prober::{MakeInit, ProbeTarget};
use shared::index::{Entry, Key};
use shared::kubernetes::client::with_timeout;
use shared::kubernetes::owned_objects::{delete, delete_owned};
use shared::kubernetes::slim::SlimPod;
use shared::urls::RUNTIME;

/// Results of the actions that belong into the status.
#[derive(Debug, Default)]
pub(super) struct Applied {
    sealed_log: Option<String>,
}

impl Applied {
    /// Adds the results to the planned status.
    pub(super) fn complete(self, status: SandboxStatus) -> SandboxStatus {
        SandboxStatus {
            sealed_log: self.sealed_log.or(status.sealed_log),
            ..status
        }
    }
}

/// Starts and stops probes, then executes the actions of a plan in order.
pub(super) async fn apply(
    context: &Arc<Context>,
    observed: &Observed,
    plan: &Plan,
) -> Result<Applied, ApplyError> {
    update_readiness_probe(context, observed, plan.probe_readiness);
    update_idle_check(context, observed, plan.check_idle);
    let mut applied = Applied::default();
    for action in &plan.actions {
        tracing::debug!(key = %observed.entry.key, ?action, "applying");
        execute(context, observed, action, &mut applied).await?;
    }
    Ok(applied)
}

async fn execute(
    context: &Context,
    observed: &Observed,
    action: &Action,
    applied: &mut Applied,
) -> Result<(), ApplyError> {
    match action {
        Action::CreateClaim => create::claim(context, observed).await,
        Action::CreatePod { restarts } => create::pod(context, observed, *restarts).await,
        Action::CaptureLog => {
            applied.sealed_log = failure_log::capture(context, &observed.entry.key).await;
            Ok(())
        }
        Action::DeletePod { uid, grace } => {
            let Entry {
                key, uid: owner, ..
            } = &*observed.entry;
            delete_pod(context, key, Some(owner), uid, *grace).await
        }
        Action::DeleteClaim { name } => delete_claim(context, observed, name).await,
        Action::DeleteSecret => delete_secret(context, observed).await,
        Action::DropSealedEnv => drop_sealed_env(context, observed).await,
        Action::DeleteSandbox => delete_sandbox(context, observed).await,
    }
}

/// Starts or stops the readiness probe of the sandbox.
fn update_readiness_probe(context: &Arc<Context>, observed: &Observed, wanted: bool) {
    let key = &observed.entry.key;
    let pod = observed.facts.pod.as_ref().filter(|_| wanted);
    let Some((pod, ip)) = pod.and_then(|pod| Some((pod, pod.ip.as_ref()?))) else {
        context.readiness.forget(key);
        return;
    };
    let target = match observed.plan_input().probe.port {
        _ if pod.supervised => ProbeTarget::Supervisor {
            init: make_init(context, observed),
            identity: identity_key(context, observed),
        },
        Some(port) => ProbeTarget::Port(port),
        None => return,
    };
    context
        .readiness
        .ensure_probing(key, pod.container_run(), ip, target);
}

/// Starts an idle check, or drops the last report if there is no Pod.
fn update_idle_check(context: &Arc<Context>, observed: &Observed, wanted: bool) {
    let key = &observed.entry.key;
    let Some(pod) = &observed.facts.pod else {
        context.idle_checker.forget(key);
        return;
    };
    if wanted {
        let ip = pod.ip.clone();
        let server = ip.zip(observed.entry.port(RUNTIME));
        let server = server.map(|(ip, port)| ServerAddress { ip, port });
        context
            .idle_checker
            .ensure_checking(key, pod.container_run(), server);
    }
}

/// Builds the init message from current facts each time, because the pool may appear later.
fn make_init(context: &Arc<Context>, observed: &Observed) -> MakeInit {
    let (context, key) = (context.clone(), observed.entry.key.clone());
    let uid = observed.facts.pod.as_ref().map(|pod| pod.uid.clone());
    Arc::new(move || {
        let observed = snapshot(&context, &key, context.clock.now())?;
        // The init message is only for the Pod that is probed.
        let pod = observed.facts.pod.as_ref();
        let pod = pod.filter(|pod| Some(&pod.uid) == uid.as_ref())?;
        let rotation = pod.annotations.key_rotation;
        init_message::init(&create::init_context(&context, &observed, rotation)).ok()
    })
}

/// Identity key of the sandbox, if its Pod was built with it.
fn identity_key(context: &Context, observed: &Observed) -> Option<IdentityKey> {
    let pod = observed.facts.pod.as_ref();
    let entry = &observed.entry;
    pod.filter(|pod| pod.annotations.has_identity)
        .map(|_| context.keys.identity_key(&entry.uid))
}

/// Deletes the Pod of a sandbox, which may be deleted already.
pub(super) async fn delete_pod(
    context: &Context,
    sandbox: &Key,
    owner_uid: Option<&str>,
    uid: &str,
    grace: DeletionGrace,
) -> Result<(), ApplyError> {
    let api = Api::<SlimPod>::namespaced(context.client.clone(), &sandbox.namespace);
    let seconds = match grace {
        DeletionGrace::PodDefault => None,
        DeletionGrace::Force => Some(0),
    };
    let name = names::pod(&sandbox.name);
    let remaining = delete(&api, &name, Some(uid), seconds).await?;
    // Without a grace period the response is the last state of a deleted Pod.
    let lingers = |pod: &SlimPod| pod.metadata.deletion_grace_period_seconds.unwrap_or(0) > 0;
    match remaining.filter(lingers) {
        Some(pod) => context.pods.apply(&pod),
        None => context.pods.forget(sandbox, owner_uid, uid),
    }
    Ok(())
}

async fn delete_claim(
    context: &Context,
    observed: &Observed,
    name: &str,
) -> Result<(), ApplyError> {
    let key = &observed.entry.key;
    let api = Api::<PersistentVolumeClaim>::namespaced(context.client.clone(), &key.namespace);
    delete_owned(&api, name, &observed.entry.uid).await?;
    Ok(())
}

async fn delete_secret(context: &Context, observed: &Observed) -> Result<(), ApplyError> {
    let key = &observed.entry.key;
    let api = Api::<Secret>::namespaced(context.client.clone(), &key.namespace);
    let name = names::environment_secret(&key.name);
    delete_owned(&api, &name, &observed.entry.uid).await?;
    Ok(())
}

/// Removes the sealed environment from the spec of a stopped Sandbox. It can take up a megabyte, and
/// a stopped sandbox never starts again.
async fn drop_sealed_env(context: &Context, observed: &Observed) -> Result<(), ApplyError> {
    let entry = &observed.entry;
    let api = Api::<Sandbox>::namespaced(context.client.clone(), &entry.key.namespace);
    let metadata = json!({"uid": entry.uid, "resourceVersion": entry.resource_version});
    let patch = Patch::Merge(json!({"metadata": metadata, "spec": {"sealedEnv": null}}));
    let params = PatchParams {
        field_manager: Some(names::CONTROLLER_FIELD_MANAGER.into()),
        ..PatchParams::default()
    };
    let written = with_timeout(api.patch(&entry.key.name, &params, &patch)).await?;
    context.index.apply(&written);
    Ok(())
}

async fn delete_sandbox(context: &Context, observed: &Observed) -> Result<(), ApplyError> {
    let entry = &observed.entry;
    let api = Api::<Sandbox>::namespaced(context.client.clone(), &entry.key.namespace);
    delete(&api, &entry.key.name, Some(&entry.uid), None).await?;
    Ok(())
}
