//! One full build, from its Pod to the status. A later leader goes on with the Pod that it finds.

mod local_steps;

use std::sync::Arc;
use std::time::Duration;

use builder::BuiltImage;
use crds::ImageBuild;
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, PostParams};
use kube::{Api, ResourceExt as _};
use shared::image_builds::reason;
use shared::kubernetes::client::{CallError, with_timeout};
use tokio::time::{Instant, sleep, timeout};

use super::failure::Failure;
use super::pod::{self, BuildPod};
use super::progress::{Progress, has_log, progress, waiting_for};
use super::queue::{MIN_BUILD_TIME, RunningBuild, remaining};
use super::{log, status};
use crate::context::Context;

/// Time between two looks at a Pod.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Time between two reads of the step of a running builder.
const STEP_INTERVAL: Duration = Duration::from_secs(5);
/// Time before a build goes on after a failed call.
const RETRY_DELAY: Duration = Duration::from_secs(5);
/// Pods of one build; more than one if a node was lost.
const MAX_ATTEMPTS: u32 = 3;
/// Time after its deadline in which a Pod must have ended.
const DEADLINE_GRACE: SignedDuration = SignedDuration::from_secs(20);
/// Time for a Pod to be gone, with its grace period and without.
const DELETE_TIMEOUT: Duration = Duration::from_secs(30);

/// Runs a build until it has finished or was deleted. After an error it waits, and stays in the
/// queue.
pub(super) async fn run(context: Arc<Context>, running: RunningBuild) {
    let run = BuildRun {
        pods: Api::namespaced(context.client.clone(), &context.config.builder.namespace),
        context: &context,
        running: &running,
        name: running.build.name_any(),
    };
    if let Err(error) = run.run().await {
        let name = &run.name;
        tracing::warn!(name, %error, "image build is delayed; retrying");
        sleep(RETRY_DELAY).await;
    }
}

struct BuildRun<'a> {
    context: &'a Context,
    running: &'a RunningBuild,
    pods: Api<Pod>,
    name: String,
}

/// End of a Pod.
enum Ended {
    Built(Result<BuiltImage, Failure>),
    /// Its node was lost, not the build.
    Lost(String),
    /// The build was deleted.
    Deleted,
}

impl BuildRun<'_> {
    async fn run(&self) -> Result<(), CallError> {
        let mut last = "its Pods were lost".to_owned();
        while let Some(build) = self.current() {
            let attempts = build.status.as_ref().and_then(|status| status.attempts);
            let found = with_timeout(self.pods.get_opt(&self.name)).await?;
            if found
                .as_ref()
                .is_some_and(|pod| !pod::belongs_to(pod, &build))
            {
                self.delete_pod().await?;
                continue;
            }
            if found.is_none() && attempts.unwrap_or_default() >= MAX_ATTEMPTS {
                let failure = Failure::new(reason::INTERRUPTED, last);
                return status::finish(self.context, &build, &Err(failure)).await;
            }
            // After an end, a late event may show the build as unfinished once more.
            if found.is_none() && !self.begin(&build).await? {
                break;
            }
            match self.wait().await? {
                Ended::Built(made) => return self.finish(&build, made).await,
                Ended::Deleted => break,
                Ended::Lost(message) => last = message,
            }
            self.delete_pod().await?;
        }
        self.delete_pod().await?;
        self.remove_directory(&self.running.build).await;
        Ok(())
    }

    /// The build, unless it has finished or was deleted.
    fn current(&self) -> Option<Arc<ImageBuild>> {
        let uid = self.running.build.metadata.uid.as_deref();
        self.context.builds.unfinished(&self.running.key, uid)
    }

    /// Creates the Pod. Returns whether there is one.
    async fn begin(&self, build: &ImageBuild) -> Result<bool, CallError> {
        status::begin(self.context, build).await?;
        let left = remaining(build, self.context.clock.now()).max(MIN_BUILD_TIME);
        if let Err(failure) = self.fetch(build).await {
            status::finish(self.context, build, &Err(failure)).await?;
            return Ok(false);
        }
        let pod = BuildPod {
            build,
            config: &self.context.config.builder,
            seconds: left.as_secs(),
        };
        match with_timeout(self.pods.create(&PostParams::default(), &pod.pod())).await {
            Err(error) if error.is_already_exists() => Ok(true),
            Err(error) if !error.is_server_error() && !is_quota(&error) => {
                let message = format!("the Pod of the build is not accepted: {error}");
                let failure = Failure::new(reason::BUILDER_ERROR, message);
                status::finish(self.context, build, &Err(failure)).await?;
                Ok(false)
            }
            created => created.map(|_| true),
        }
    }

    /// Waits until the Pod has ended.
    async fn wait(&self) -> Result<Ended, CallError> {
        let mut step_due = Instant::now();
        loop {
            let Some(build) = self.current() else {
                return Ok(Ended::Deleted);
            };
            let Some(pod) = with_timeout(self.pods.get_opt(&self.name)).await? else {
                return Ok(Ended::Lost("its Pod was deleted".to_owned()));
            };
            let is_over = remaining(&build, self.context.clock.now()) < -DEADLINE_GRACE;
            match progress(&pod) {
                Progress::Unfinished if is_over => {
                    let waiting = pod.status.as_ref().and_then(waiting_for);
                    let failure = Failure::deadline(waiting.as_deref());
                    return Ok(Ended::Built(Err(failure)));
                }
                Progress::Unfinished if pod.metadata.deletion_timestamp.is_none() => {}
                Progress::Unfinished => return Ok(Ended::Lost("its Pod was deleted".to_owned())),
                Progress::Succeeded(Some(image)) => return Ok(Ended::Built(Ok(image))),
                Progress::Succeeded(None) => return Ok(Ended::Built(self.push(&build).await)),
                Progress::Failed(failure) => return Ok(Ended::Built(Err(failure))),
                Progress::Lost(message) => return Ok(Ended::Lost(message)),
            }
            if step_due <= Instant::now() && has_log(&pod) {
                self.report_step(&build).await;
                step_due = Instant::now() + STEP_INTERVAL;
            }
            sleep(POLL_INTERVAL).await;
        }
    }

    /// Writes the step if it has changed. The build does not depend on it.
    async fn report_step(&self, build: &ImageBuild) {
        let known = build.status.as_ref().and_then(|it| it.message.as_ref());
        let step = log::read_step(&self.pods, &self.name).await;
        if let Some(step) = step.filter(|step| known != Some(step))
            && let Err(error) = status::write_step(self.context, build, step).await
        {
            let name = &self.name;
            tracing::debug!(name, %error, "cannot write the step of an image build");
        }
    }

    /// Keeps the log, then writes the status, and only then deletes the Pod.
    async fn finish(
        &self,
        build: &ImageBuild,
        made: Result<BuiltImage, Failure>,
    ) -> Result<(), CallError> {
        let pod = with_timeout(self.pods.get_opt(&self.name)).await?;
        let log = match pod.filter(has_log) {
            Some(_) => log::read(&self.pods, &self.name).await,
            None => String::new(),
        };
        let made = made.map_err(|failure| match failure.reason {
            reason::REGISTRY_ERROR | reason::BUILDER_ERROR => failure,
            _ => failure.with_log(&log),
        });
        if !log.is_empty()
            && let Err(error) = log::keep(self.context, build, log).await
        {
            tracing::warn!(name = self.name, %error, "the log of an image build is not kept");
        }
        if let Err(failure) = &made {
            let (name, reason) = (&self.name, failure.reason);
            tracing::info!(
                name,
                target = build.spec.target,
                reason,
                "image build failed"
            );
        }
        status::finish(self.context, build, &made).await?;
        self.delete_pod().await?;
        self.remove_directory(build).await;
        Ok(())
    }

    /// Deletes the Pod and waits until its name is free. The kubelet of a lost node does not end
    /// it; builds share nothing, so it need not.
    async fn delete_pod(&self) -> Result<(), CallError> {
        for params in [
            DeleteParams::default(),
            DeleteParams::default().grace_period(0),
        ] {
            match with_timeout(self.pods.delete(&self.name, &params)).await {
                Err(error) if error.is_not_found() => return Ok(()),
                deleted => drop(deleted?),
            }
            let gone = async {
                while with_timeout(self.pods.get_opt(&self.name)).await?.is_some() {
                    sleep(POLL_INTERVAL).await;
                }
                Ok(())
            };
            if let Ok(gone) = timeout(DELETE_TIMEOUT, gone).await {
                return gone;
            }
        }
        Err(CallError::Timeout)
    }
}

/// Returns whether there is no room for the Pod at the moment.
fn is_quota(error: &CallError) -> bool {
    let status = error.status();
    status.is_some_and(|status| status.code == 403 && status.message.contains("exceeded quota"))
}
