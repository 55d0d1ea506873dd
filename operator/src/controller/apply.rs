//! Carries out what was planned. Every write is safe to repeat: what exists already, or is gone
//! already, is what was wanted. Answers go into the indexes at once, so that the next pass does
//! not depend on how far the watches lag.

use std::sync::Arc;

use crds::conditions::Reason;
use crds::contract::control::Grant;
use crds::{Sandbox, names};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Secret};
use kube::Api;

use super::build::BuildError;
use super::create;
use super::idleness::Server;
use super::init::{self, InitError};
use super::observe::{Observed, observe};
use super::plan::{Action, Grace, Refusal};
use super::readiness::{MakeInit, Question};
use super::reconcile::Context;
use crate::kubernetes::apply::{CreateError, delete, delete_owned};
use crate::kubernetes::client::CallError;
use crate::kubernetes::slim::SlimPod;
use crate::urls::RUNTIME;

/// Why an action was not carried out.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApplyError {
    #[error(transparent)]
    Build(#[from] BuildError),
    #[error(transparent)]
    Init(#[from] InitError),
    #[error("spec.runtimeClassName: the cluster has no RuntimeClass {0}")]
    NoRuntimeClass(String),
    #[error(transparent)]
    Create(#[from] CreateError),
    #[error(transparent)]
    Call(#[from] CallError),
}

/// Carries out one action.
pub(crate) async fn apply(
    context: &Context,
    observed: &Observed,
    action: &Action,
) -> Result<(), ApplyError> {
    tracing::debug!(key = %observed.entry.key, ?action, "applying");
    match action {
        Action::CreateClaim => create::claim(context, observed).await,
        Action::CreatePod { restarts } => create::pod(context, observed, *restarts).await,
        Action::DeletePod { uid, grace } => delete_pod(context, observed, uid, *grace).await,
        Action::DeleteClaim => delete_claim(context, observed).await,
        Action::DeleteSecret => delete_secret(context, observed).await,
        Action::DeleteSandbox => delete_sandbox(context, observed).await,
    }
}

/// Has the sandbox asked whether it is ready, or no longer.
pub(crate) fn ask(context: &Arc<Context>, observed: &Observed, asks: bool) {
    let key = &observed.entry.key;
    let pod = observed.facts.pod.as_ref().filter(|_| asks);
    let Some((pod, ip)) = pod.and_then(|pod| Some((pod, pod.ip.as_ref()?))) else {
        context.readiness.forget(key);
        return;
    };
    let question = match observed.subject().port {
        _ if pod.supervised => Question::Supervisor(make_init(context, observed)),
        Some(port) => Question::Port(port),
        None => return,
    };
    context.readiness.ask(key, pod.run(), ip, question);
}

/// Has it found out since when nothing happens in the sandbox, or forgets what was found out about
/// one that does not run.
pub(crate) fn ask_quiet(context: &Arc<Context>, observed: &Observed, asks: bool) {
    let key = &observed.entry.key;
    let Some(pod) = &observed.facts.pod else {
        context.idleness.forget(key);
        return;
    };
    if asks {
        let ip = pod.ip.clone();
        let server = ip.zip(observed.entry.port(RUNTIME));
        let server = server.map(|(ip, port)| Server { ip, port });
        context.idleness.ask(key, pod.run(), server);
    }
}

/// Looks at the sandbox anew each time, because its pool may only appear later.
fn make_init(context: &Arc<Context>, observed: &Observed) -> MakeInit {
    let (context, key) = (context.clone(), observed.entry.key.clone());
    let uid = observed.facts.pod.as_ref().map(|pod| pod.uid.clone());
    Arc::new(move || {
        let observed = observe(&context, &key, context.clock.now())?;
        // Another Pod of the same name is not who is asked here.
        let pod = observed.facts.pod.as_ref();
        let pod = pod.filter(|pod| Some(&pod.uid) == uid.as_ref())?;
        let rotation = pod.edition.key_rotation;
        let init = init::init(&create::identity(&context, &observed, rotation)).ok()?;
        Some(Grant::Init(Box::new(init)))
    })
}

async fn delete_pod(
    context: &Context,
    observed: &Observed,
    uid: &str,
    grace: Grace,
) -> Result<(), ApplyError> {
    let entry = &observed.entry;
    let api = Api::<SlimPod>::namespaced(context.client.clone(), &entry.key.namespace);
    let seconds = match grace {
        Grace::Own => None,
        Grace::None => Some(0),
    };
    let name = names::pod(&entry.key.name);
    let left = delete(&api, &name, Some(uid), seconds).await?;
    // Without a grace period the answer is the last that was seen of the Pod.
    let lingers = |pod: &SlimPod| pod.metadata.deletion_grace_period_seconds.unwrap_or(0) > 0;
    match left.filter(lingers) {
        Some(pod) => context.pods.apply(&pod),
        None => context.pods.forget(&entry.uid, uid),
    }
    Ok(())
}

async fn delete_claim(context: &Context, observed: &Observed) -> Result<(), ApplyError> {
    let key = &observed.entry.key;
    let api = Api::<PersistentVolumeClaim>::namespaced(context.client.clone(), &key.namespace);
    let name = names::workspace_claim(&key.name);
    delete_owned(&api, &name, &observed.entry.uid).await?;
    Ok(())
}

async fn delete_secret(context: &Context, observed: &Observed) -> Result<(), ApplyError> {
    let key = &observed.entry.key;
    let api = Api::<Secret>::namespaced(context.client.clone(), &key.namespace);
    let name = names::environment_secret(&key.name);
    delete_owned(&api, &name, &observed.entry.uid).await?;
    Ok(())
}

async fn delete_sandbox(context: &Context, observed: &Observed) -> Result<(), ApplyError> {
    let entry = &observed.entry;
    let api = Api::<Sandbox>::namespaced(context.client.clone(), &entry.key.namespace);
    delete(&api, &entry.key.name, Some(&entry.uid), None).await?;
    Ok(())
}

impl ApplyError {
    /// What the user is told, if it is for the user to know.
    pub(crate) fn refusal(&self) -> Option<Refusal> {
        let (reason, fatal) = match self {
            Self::Build(_)
            | Self::Init(_)
            | Self::NoRuntimeClass(_)
            | Self::Create(CreateError::Invalid(_)) => (Reason::InvalidSpec, true),
            Self::Create(CreateError::NameTaken { .. }) => (Reason::NameTaken, false),
            Self::Create(CreateError::Ending { .. }) => (Reason::CreatingPod, false),
            Self::Create(CreateError::Forbidden(_)) => (Reason::Refused, false),
            Self::Create(
                CreateError::Encode(_)
                | CreateError::Request(_)
                | CreateError::Call(_)
                | CreateError::NamespaceEnds(_),
            )
            | Self::Call(_) => return None,
        };
        Some(Refusal {
            reason,
            message: steady(&self.to_string()),
            fatal,
        })
    }
}

/// A refusal for a used-up quota without what is used at the moment: that changes with every other
/// Pod, and each change would be a write.
fn steady(message: &str) -> String {
    let used = message.find(", used: ");
    let limited = message.rfind(", limited: ");
    match (used, limited) {
        (Some(used), Some(limited)) if used < limited => {
            format!("{}{}", &message[..used], &message[limited..])
        }
        _ => message.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_used_up_quota_is_told_in_words_that_last() {
        let told = |used: u32| {
            let message = format!(
                "pods \"a\" is forbidden: exceeded quota: team, requested: limits.cpu=2,pods=1, \
                 used: limits.cpu={used},pods={used}, limited: limits.cpu=9,pods=9"
            );
            let error = ApplyError::Create(CreateError::Forbidden(message));
            error.refusal().unwrap()
        };
        assert_eq!(told(8), told(9));
        assert_eq!(
            told(8).message,
            "pods \"a\" is forbidden: exceeded quota: team, requested: limits.cpu=2,pods=1, \
             limited: limits.cpu=9,pods=9"
        );
        assert_eq!(steady("a, limited: b, used: c"), "a, limited: b, used: c");
    }
}
