//! Images of containers from registries: pull policy, credentials, progress and events.

use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use images::{Credentials, ImageStore, Puller, Reference};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Container;
use kube::Resource as _;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use super::NODE_NAME;
use super::container::PreparedPod;
use super::environment::DataRef;
use super::image::{Image, ImageError, ImageSource};

/// Time between two reports of progress.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// Pulled images of a node.
#[derive(Debug)]
pub(crate) struct PulledImages {
    pub puller: Puller,
    /// Credentials of the machine, after those of the Pod.
    pub credentials: Credentials,
    /// Bytes that the store should take at most; 0 is no limit.
    pub limit: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PullPolicy {
    Always,
    IfNotPresent,
    Never,
}

impl PullPolicy {
    /// Policy of a container; the default depends on the tag, as in Kubernetes.
    fn of(container: &Container, reference: &Reference) -> Self {
        match container.image_pull_policy.as_deref() {
            Some("Always") => Self::Always,
            Some("IfNotPresent") => Self::IfNotPresent,
            Some("Never") => Self::Never,
            _ if reference.digest().is_none() && reference.tag() == Some("latest") => Self::Always,
            _ => Self::IfNotPresent,
        }
    }
}

impl PulledImages {
    async fn find(&self, reference: &Reference) -> Result<Option<Image>, ImageError> {
        let (store, reference) = (self.puller.store().clone(), reference.clone());
        let found = spawn_blocking(move || store.find(&reference)).await;
        let found = found.map_err(std::io::Error::from)??;
        Ok(found.map(|image| Image::Pulled(Arc::new(image))))
    }

    /// Frees space after a pull, without the images in use.
    fn shrink(&self) {
        let (store, limit) = (self.puller.store().clone(), self.limit);
        if limit > 0 {
            drop(spawn_blocking(move || shrink(&store, limit)));
        }
    }
}

fn shrink(store: &ImageStore, limit: u64) {
    match store.shrink(limit) {
        Ok(freed) if freed.images > 0 => {
            let (images, bytes) = (freed.images, freed.bytes);
            tracing::info!(images, bytes, "images removed, because the store is full");
        }
        Ok(_) => {}
        Err(error) => tracing::warn!(%error, "image store not cleaned up"),
    }
}

impl PreparedPod {
    /// The image of a container, pulled if its policy says so. `report` gets the progress.
    pub(crate) async fn image(
        &self,
        container: &Container,
        report: impl Fn(String),
    ) -> Result<Image, ImageError> {
        let name = container.image.as_deref().unwrap_or_default();
        let reference = match self.node.config.images.resolve(name)? {
            ImageSource::Local(image) => {
                if self.node.config.images.is_replaced(name) {
                    let pod = self.name();
                    tracing::info!(pod, image = name, "the image is replaced by the host root");
                }
                return Ok(image);
            }
            ImageSource::Registry(reference) => reference,
        };
        let images = self.node.images.as_ref().ok_or(ImageError::NotRoot)?;
        let policy = PullPolicy::of(container, &reference);
        if policy != PullPolicy::Always
            && let Some(image) = images.find(&reference).await?
        {
            return Ok(image);
        }
        if policy == PullPolicy::Never {
            return Err(ImageError::Never(name.to_owned()));
        }
        self.pull(images, name, &reference, report).await
    }

    async fn pull(
        &self,
        images: &PulledImages,
        name: &str,
        reference: &Reference,
        report: impl Fn(String),
    ) -> Result<Image, ImageError> {
        let credentials = self.credentials(&images.credentials).await?;
        self.event("Pulling", format!("Pulling image {name:?}"))
            .await;
        let begin = Timestamp::now();
        let pull = images.puller.start(reference, &credentials);
        let mut progress = pull.progress();
        let reporting = async {
            while progress.changed().await.is_ok() {
                let state = *progress.borrow_and_update();
                report(format!("pulling image {name:?}: {state}"));
                sleep(REPORT_INTERVAL).await;
            }
            pending::<Infallible>().await
        };
        let outcome = tokio::select! {
            outcome = pull.finish() => outcome,
            never = reporting => match never {},
        };
        let failed = |error| ImageError::Pull(name.to_owned(), error);
        let pulled = match outcome {
            Ok(pulled) => pulled,
            Err(error) => {
                let error = failed(error);
                self.warning("Failed", error.to_string()).await;
                return Err(error);
            }
        };
        let (took, bytes) = (Timestamp::now().duration_since(begin), pulled.bytes);
        let took = took.as_millis();
        let note =
            format!("Successfully pulled image {name:?} in {took}ms. Image size: {bytes} bytes.");
        self.event("Pulled", note).await;
        images.shrink();
        Ok(Image::Pulled(pulled))
    }

    /// Credentials of the Pod's pull secrets, before those of the machine.
    async fn credentials(&self, machine: &Credentials) -> Result<Credentials, ImageError> {
        let mut credentials = Credentials::default();
        let namespace = self.pod.metadata.namespace.as_deref().unwrap_or_default();
        let spec = self.pod.spec.as_ref();
        for secret in spec
            .iter()
            .flat_map(|spec| spec.image_pull_secrets.iter().flatten())
        {
            let failed = |error: String| ImageError::PullSecret(secret.name.clone(), error);
            // A missing secret does not prevent the pull, as in the kubelet.
            let read = DataRef::secret(&secret.name, Some(true));
            let data = read.read(&self.node.client, namespace).await;
            let data = data.map_err(|error| failed(error.to_string()))?;
            if let Some(config) = data.and_then(|mut data| data.remove(".dockerconfigjson")) {
                let parsed = Credentials::parse(&config);
                credentials.extend(parsed.map_err(|error| failed(error.to_string()))?);
            }
        }
        credentials.extend(machine.clone());
        Ok(credentials)
    }

    async fn event(&self, reason: &str, note: String) {
        self.publish(EventType::Normal, reason, note).await;
    }

    async fn warning(&self, reason: &str, note: String) {
        self.publish(EventType::Warning, reason, note).await;
    }

    /// Events are for people: one that cannot be written delays nothing.
    async fn publish(&self, type_: EventType, reason: &str, note: String) {
        let reporter = Reporter {
            controller: "kubelet".into(),
            instance: Some(NODE_NAME.into()),
        };
        let recorder = Recorder::new(self.node.client.clone(), reporter);
        let event = Event {
            type_,
            reason: reason.into(),
            note: Some(note.chars().take(1000).collect()),
            action: "Pulling".into(),
            secondary: None,
        };
        if let Err(error) = recorder.publish(&event, &self.pod.object_ref(&())).await {
            tracing::debug!(%error, reason, "event not written");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_policy_depends_on_the_tag() {
        let digest = format!("debian:latest@sha256:{}", "0".repeat(64));
        for (stated, reference, policy) in [
            (None, "debian", PullPolicy::Always),
            (None, "debian:latest", PullPolicy::Always),
            (None, "debian:12", PullPolicy::IfNotPresent),
            (None, digest.as_str(), PullPolicy::IfNotPresent),
            (Some("Never"), "debian", PullPolicy::Never),
            (Some("Always"), "debian:12", PullPolicy::Always),
            (Some("IfNotPresent"), "debian", PullPolicy::IfNotPresent),
        ] {
            let container = Container {
                image_pull_policy: stated.map(str::to_owned),
                ..Container::default()
            };
            let reference = reference.parse().unwrap();
            assert_eq!(
                PullPolicy::of(&container, &reference),
                policy,
                "{reference}"
            );
        }
    }
}
