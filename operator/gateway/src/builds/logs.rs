//! Logs of full builds: of the Pod while it runs, and afterwards what the controller has kept.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crds::ImageBuild;
use crds::names::BUILD_UID_LABEL;
use futures::{AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::LogParams;
use kube::{Api, ResourceExt as _};
use parking_lot::Mutex;
use shared::image_builds::{BUILD_CONTAINER, LOG_KEY};
use shared::kubernetes::client::with_timeout;
use shared::tenants::Tenant;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::{BuildError, Builds};

/// Logs that are followed at once, and those of one tenant.
const MAX_CONCURRENT: usize = 64;
const MAX_CONCURRENT_PER_TENANT: usize = 8;
/// Time for a client to read a line.
const READ_TIMEOUT: Duration = Duration::from_mins(1);
/// Longest time for which a log is followed: that of a build, in the queue too.
const MAX_FOLLOWED: Duration = Duration::from_mins(35);
/// Time between two looks for the log of a build that has not begun.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Bytes of a line; a longer one becomes several.
const MAX_LINE_BYTES: u64 = 16 << 10;
/// Lines on their way to a client.
const MAX_QUEUED_LINES: usize = 64;

/// Part of a log.
#[derive(Debug)]
pub(crate) enum LogPart {
    /// Without the end of the line.
    Line(String),
    /// The last part: the build has finished, or is followed no longer. `None` if it was deleted.
    End(Option<Arc<ImageBuild>>),
}

/// Logs that are followed, by tenant.
#[derive(Debug, Default)]
pub(super) struct FollowedLogs(Mutex<HashMap<String, usize>>);

/// Permission to follow a log, until it is dropped.
struct LogPermit {
    followed: Arc<FollowedLogs>,
    tenant: String,
}

/// Log of one build on its way to a client.
struct Follower {
    builds: Arc<Builds>,
    lines: mpsc::Sender<LogPart>,
    /// Lines were sent.
    has_begun: bool,
    _permit: LogPermit,
}

/// The client has gone, or reads nothing.
struct Gone;

impl FollowedLogs {
    fn permit(self: &Arc<Self>, tenant: &str) -> Option<LogPermit> {
        let mut counts = self.0.lock();
        let own = counts.get(tenant).copied().unwrap_or_default();
        if own >= MAX_CONCURRENT_PER_TENANT || counts.values().sum::<usize>() >= MAX_CONCURRENT {
            return None;
        }
        counts.insert(tenant.to_owned(), own + 1);
        Some(LogPermit {
            followed: self.clone(),
            tenant: tenant.to_owned(),
        })
    }
}

impl Drop for LogPermit {
    fn drop(&mut self) {
        let mut counts = self.followed.0.lock();
        if let Some(count) = counts.get_mut(&self.tenant) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.tenant);
            }
        }
    }
}

impl Builds {
    /// Follows the log of a build of the tenant. `None` if there is no such build.
    pub(crate) async fn follow_log(
        self: &Arc<Self>,
        tenant: &Tenant,
        id: &str,
    ) -> Result<Option<mpsc::Receiver<LogPart>>, BuildError> {
        self.synced().await?;
        let Some(build) = self.store.find_by_id(&tenant.name, id).await? else {
            return Ok(None);
        };
        let permit = self.logs.permit(&tenant.name);
        let (lines, receiver) = mpsc::channel(MAX_QUEUED_LINES);
        let follower = Follower {
            builds: self.clone(),
            lines,
            has_begun: false,
            _permit: permit.ok_or(BuildError::ManyLogs)?,
        };
        let (stopping, client) = (self.stopping.clone(), follower.lines.clone());
        self.running.spawn(async move {
            let follow = timeout(MAX_FOLLOWED, follower.run(build));
            tokio::select! {
                _ = stopping.run_until_cancelled(follow) => {}
                // A build may be silent for long, and the next client needs the permit.
                () = client.closed() => {}
            }
        });
        Ok(Some(receiver))
    }
}

impl Follower {
    async fn run(mut self, build: Arc<ImageBuild>) {
        let mut build = Some(build);
        while let Some(unfinished) = build.as_ref().filter(|build| !build.is_finished()).cloned() {
            if self.copy_pod_log(&unfinished.name_any()).await.is_err() {
                return;
            }
            build = self.builds.wait_finished(unfinished, POLL_INTERVAL).await;
        }
        if let Some(finished) = &build
            && !self.has_begun
            && self.copy_kept_log(finished).await.is_err()
        {
            return;
        }
        let _ = self.lines.send(LogPart::End(build)).await;
    }

    /// Copies the log of the Pod to its end, if the builder has begun and nothing was sent before.
    async fn copy_pod_log(&mut self, name: &str) -> Result<(), Gone> {
        if self.has_begun {
            return self.is_wanted();
        }
        let params = LogParams {
            container: Some(BUILD_CONTAINER.to_owned()),
            follow: true,
            ..LogParams::default()
        };
        let pods: Api<Pod> = self.api();
        // Before the builder begins, the API server refuses.
        let opened = with_timeout(pods.log_stream(name, &params)).await;
        match opened {
            Ok(log) => self.copy(log).await,
            Err(_) => self.is_wanted(),
        }
    }

    async fn copy_kept_log(&mut self, build: &ImageBuild) -> Result<(), Gone> {
        let kept: Api<ConfigMap> = self.api();
        let found = with_timeout(kept.get_opt(&build.name_any())).await;
        let found = found.ok().flatten();
        // Not that of an earlier build of the name.
        let is_own = |kept: &ConfigMap| kept.labels().get(BUILD_UID_LABEL) == build.uid().as_ref();
        let found = found.filter(is_own);
        let log = found.and_then(|found| found.data?.remove(LOG_KEY));
        self.copy(log.unwrap_or_default().as_bytes()).await
    }

    async fn copy(&mut self, mut log: impl AsyncBufRead + Unpin) -> Result<(), Gone> {
        loop {
            let mut line = Vec::new();
            let mut limited = (&mut log).take(MAX_LINE_BYTES);
            // The client learns the end from the build.
            if !matches!(limited.read_until(b'\n', &mut line).await, Ok(1..)) {
                return Ok(());
            }
            self.has_begun = true;
            let line = String::from_utf8_lossy(&line);
            // A carriage return is the end of a field in the client's stream.
            let line = line.trim_end().replace('\r', " ");
            let sent = self.lines.send_timeout(LogPart::Line(line), READ_TIMEOUT);
            sent.await.map_err(|_| Gone)?;
        }
    }

    fn is_wanted(&self) -> Result<(), Gone> {
        if self.lines.is_closed() {
            Err(Gone)
        } else {
            Ok(())
        }
    }

    fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        let namespace = &self.builds.config.settings.build_namespace;
        Api::namespaced(self.builds.store.client(), namespace)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use crds::image_build::ImageBuildSpec;
    use crds::names;
    use shared::kubernetes::watch::WatchSink as _;
    use shared::tenants::Tenants;
    use testing::FakeApi;
    use tokio::time::Instant;

    use super::*;
    use crate::Gateway;

    #[tokio::test(start_paused = true)]
    async fn permit_is_released_at_once_when_the_client_leaves() {
        let api = FakeApi::default();
        let gateway = Gateway::fixture(&api);
        let builds = &gateway.0.builds;
        builds.index.retain(&HashSet::new());
        let spec = ImageBuildSpec {
            tenant: "default".into(),
            target: "r:1".into(),
            ..ImageBuildSpec::default()
        };
        let id = names::image_build(&spec.tenant, &spec.target);
        builds.index.store(ImageBuild::new(&id, spec)).unwrap();
        let tenant = Tenants::fixed([("default", "key")]);
        let tenant = tenant.named("default").unwrap();
        // The log of the Pod is silent.
        api.set_silent(true);
        let log = builds.follow_log(&tenant, &id).await.unwrap();
        assert_eq!(builds.logs.0.lock()["default"], 1);
        let left = Instant::now();
        drop(log);
        builds.running.close();
        builds.running.wait().await;
        assert_eq!(left.elapsed(), Duration::ZERO);
        assert!(builds.logs.0.lock().is_empty());
    }

    #[test]
    fn one_tenant_leaves_logs_to_others() {
        let logs = Arc::<FollowedLogs>::default();
        let own: Vec<_> = std::iter::from_fn(|| logs.permit("a")).collect();
        assert_eq!(own.len(), MAX_CONCURRENT_PER_TENANT);
        let tenants = (0..MAX_CONCURRENT).map(|number| number.to_string());
        let others: Vec<_> = tenants.filter_map(|tenant| logs.permit(&tenant)).collect();
        assert_eq!(own.len() + others.len(), MAX_CONCURRENT);
        drop(own);
        assert!(logs.permit("a").is_some());
        drop(others);
        assert!(logs.0.lock().is_empty());
    }
}
