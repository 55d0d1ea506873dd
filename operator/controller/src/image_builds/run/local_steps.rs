//! Steps that this process does itself, if the Pod runs on this machine.

use std::path::PathBuf;

use builder::{BuiltImage, FetchArgs, PushArgs, RegistryAccess, StepError};
use crds::ImageBuild;
use shared::image_builds::reason;
use tokio::time::{sleep, timeout};

use super::{BuildRun, POLL_INTERVAL};
use crate::config::BuildSteps;
use crate::image_builds::failure::Failure;
use crate::image_builds::pod::{self, local_directory};
use crate::image_builds::queue::{MIN_BUILD_TIME, remaining};

impl BuildRun<'_> {
    /// Directory of a build on this machine, with the access to registries.
    fn local(&self, build: &ImageBuild) -> Option<(PathBuf, &RegistryAccess)> {
        match &self.context.config.builder.steps {
            BuildSteps::Local {
                directory,
                registries,
            } => Some((local_directory(directory, build), registries)),
            BuildSteps::Containers { .. } => None,
        }
    }

    pub(super) async fn fetch(&self, build: &ImageBuild) -> Result<(), Failure> {
        let Some((directory, registries)) = self.local(build) else {
            return Ok(());
        };
        let status = build.status.as_ref();
        let context = status.and_then(|status| status.context.as_deref());
        let base = status.and_then(|status| status.base_image.as_deref());
        let illegal = |_| Failure::new(reason::BUILDER_ERROR, "the build has no legal references");
        let fetch = FetchArgs {
            context: context.unwrap_or_default().parse().map_err(illegal)?,
            base: base.map(str::parse).transpose().map_err(illegal)?,
            directory: directory.join(pod::SOURCE),
            registries: registries.clone(),
        };
        pod::make_directories(&directory).map_err(|error| {
            Failure::new(
                reason::DISK_ERROR,
                format!("{}: {error}", directory.display()),
            )
        })?;
        self.step(build, fetch.run()).await
    }

    /// Runs a step, at most until the client gives up, or until the build is deleted.
    async fn step<T>(
        &self,
        build: &ImageBuild,
        step: impl Future<Output = Result<T, StepError>>,
    ) -> Result<T, Failure> {
        let left = remaining(build, self.context.clock.now()).max(MIN_BUILD_TIME);
        let deleted = async {
            while self.current().is_some() {
                sleep(POLL_INTERVAL).await;
            }
        };
        tokio::select! {
            done = timeout(left.unsigned_abs(), step) => match done {
                Ok(done) => {
                    done.map_err(|error| Failure::new(reason::REGISTRY_ERROR, error.to_string()))
                }
                Err(_) => Err(Failure::deadline(Some("the registry is slow"))),
            },
            () = deleted => Err(Failure::new(reason::INTERRUPTED, "the build was deleted")),
        }
    }

    pub(super) async fn push(&self, build: &ImageBuild) -> Result<BuiltImage, Failure> {
        let lost = || Failure::new(reason::BUILDER_ERROR, "the image of the build is lost");
        let (directory, registries) = self.local(build).ok_or_else(lost)?;
        let context = build
            .status
            .as_ref()
            .and_then(|status| status.context.as_deref());
        let push = PushArgs {
            targets: build
                .references()
                .filter_map(|target| target.parse().ok())
                .collect(),
            context: context.and_then(|context| context.parse().ok()),
            layout: directory.join(pod::IMAGE),
            registries: registries.clone(),
        };
        self.step(build, push.run()).await
    }

    pub(super) async fn remove_directory(&self, build: &ImageBuild) {
        let Some((directory, _)) = self.local(build) else {
            return;
        };
        let shown = directory.display().to_string();
        let removed = tokio::task::spawn_blocking(move || images::remove_tree(&directory)).await;
        if !matches!(removed, Ok(Ok(()))) {
            tracing::warn!(
                directory = shown,
                "cannot remove the files of an image build"
            );
        }
    }
}
