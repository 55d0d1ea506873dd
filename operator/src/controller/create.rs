//! Makes the children of a sandbox. Each is created once, under a name that follows from the
//! sandbox's; what exists already and is ours is what was wanted.

#[cfg(test)]
mod tests;

use crds::names;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Secret};
use kube::{Api, ResourceExt as _};

use super::apply::ApplyError;
use super::build::command::key_rotation;
use super::build::pod::{Order, asked_class};
use super::build::{self, Blueprint};
use super::init::{self, Identity};
use super::observe::Observed;
use super::reconcile::Context;
use crate::index::Entry;
use crate::kubernetes::apply::{CreateError, create_owned, delete, lasting};
use crate::kubernetes::slim::SlimPod;

/// Everything that the initialisation of this sandbox depends on.
pub(super) fn identity<'a>(
    context: &'a Context,
    observed: &'a Observed,
    key_rotation: u32,
) -> Identity<'a> {
    Identity {
        entry: &observed.entry,
        config: &context.config,
        keys: &context.keys,
        url: &observed.url,
        deadlines: observed.deadlines,
        key_rotation,
    }
}

/// The workspace's volume claim.
pub(super) async fn claim(context: &Context, observed: &Observed) -> Result<(), ApplyError> {
    let entry = &observed.entry;
    if let Some(claim) = build::claim::claim(&context.blueprint(entry))? {
        let namespace = &entry.key.namespace;
        let client = &context.client;
        let claim: PersistentVolumeClaim =
            create_owned(client, namespace, &claim, &entry.uid).await?;
        lasting(claim)?;
    }
    Ok(())
}

/// The Pod, and before it the Secret that an image's own entrypoint takes its environment from.
/// Whatever cannot be built or initialised is reported now, and makes neither.
pub(super) async fn pod(
    context: &Context,
    observed: &Observed,
    restarts: u32,
) -> Result<(), ApplyError> {
    let entry = &observed.entry;
    let blueprint = context.blueprint(entry);
    let identity = identity(context, observed, key_rotation(&entry.spec));
    let secret = if entry.spec.command.is_some() {
        init::init(&identity)?;
        None
    } else {
        let environment = init::environment(&identity)?;
        Some(build::secret::secret(&blueprint, environment)?)
    };
    let order = Order {
        restarts,
        default_class: false,
        secret: secret.as_ref(),
    };
    let pod = build::pod::pod(&blueprint, &order)?;
    if let Some(secret) = &secret {
        put(context, entry, secret).await?;
    }
    let created = match send(context, entry, &pod).await {
        Err(error) => without_class(context, &blueprint, &order, error).await?,
        Ok(created) => created,
    };
    context.pods.apply(&created);
    lasting(created)?;
    Ok(())
}

/// Creates the Secret. One of an earlier start that holds something else is replaced: no Pod uses
/// it any more, because there is none.
async fn put(context: &Context, entry: &Entry, secret: &Secret) -> Result<(), ApplyError> {
    let (client, namespace) = (&context.client, &entry.key.namespace);
    let found: Secret = lasting(create_owned(client, namespace, secret, &entry.uid).await?)?;
    if found.data == secret.data {
        return Ok(());
    }
    let api = Api::<Secret>::namespaced(client.clone(), namespace);
    let name = names::environment_secret(&entry.key.name);
    delete(&api, &name, found.uid().as_deref(), None).await?;
    let made: Secret = create_owned(client, namespace, secret, &entry.uid).await?;
    lasting(made)?;
    Ok(())
}

async fn send(context: &Context, entry: &Entry, pod: &Pod) -> Result<SlimPod, CreateError> {
    create_owned(&context.client, &entry.key.namespace, pod, &entry.uid).await
}

/// A cluster without the runtime class refuses the Pod. Then the default class takes its place,
/// unless the installation is strict (runtime API spec 7.21).
async fn without_class(
    context: &Context,
    blueprint: &Blueprint<'_>,
    order: &Order<'_>,
    error: CreateError,
) -> Result<SlimPod, ApplyError> {
    let Some(class) = asked_class(blueprint).filter(|class| lacks(&error, class)) else {
        return Err(error.into());
    };
    if context.config.classes.strict {
        return Err(ApplyError::NoRuntimeClass(class.to_owned()));
    }
    let order = Order {
        default_class: true,
        ..*order
    };
    let pod = build::pod::pod(blueprint, &order)?;
    Ok(send(context, blueprint.entry, &pod).await?)
}

/// Whether the refusal is that of Kubernetes' admission plug-in `RuntimeClass` for this class.
fn lacks(error: &CreateError, class: &str) -> bool {
    let CreateError::Forbidden(message) = error else {
        return false;
    };
    message.contains(&format!("RuntimeClass \"{class}\" not found"))
}
