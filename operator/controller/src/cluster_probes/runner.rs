//! Runs the Pod of a probe: creates it, waits for its verdict and deletes it in any case. A Pod that
//! a dead leader left is replaced.

use std::time::Duration;

use crds::names;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, PostParams};
use kube::{Api, ResourceExt as _};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::verdict::{self, Verdict};
use crate::config::ControllerConfig;
use crate::context::Context;
use shared::kubernetes::api_messages;
use shared::kubernetes::client::{CallError, with_timeout};

/// Time for the verdict. It includes a pull of the image, and a node that has yet to be started.
const TIME_LIMIT: Duration = Duration::from_mins(5);
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Time for the deletion, within that of a shutdown.
const DELETION_TIMEOUT: Duration = Duration::from_secs(10);

/// A question about the cluster that one Pod answers by success or failure.
#[derive(Debug)]
pub(super) struct Probe {
    pub(super) pod: Pod,
    /// Reason if the API server created the Pod without the fields in question.
    pub(super) dropped: fn(&Pod) -> Option<&'static str>,
}

impl Probe {
    /// The probe for Pods of a runtime class.
    pub(super) fn of_class(mut self, class: Option<&str>, config: &ControllerConfig) -> Self {
        if class != config.defaults.runtime_class_name.as_deref()
            && let (Some(class), Some(spec)) = (class, &mut self.pod.spec)
        {
            spec.runtime_class_name = Some(class.to_owned());
            self.pod.metadata.name = Some(format!("{}-{class}", self.pod.name_any()));
        }
        self
    }
}

/// The verdict, unless the process ends before.
pub(super) async fn run(
    context: &Context,
    probe: &Probe,
    shutdown: &CancellationToken,
) -> Option<Verdict> {
    let pods = Api::<Pod>::namespaced(context.client.clone(), namespace(context));
    let mut last = None;
    let ask = Box::pin(run_pod(&pods, context, probe, &mut last));
    let answer = shutdown.run_until_cancelled(timeout(TIME_LIMIT, ask)).await;
    delete(&pods, &probe.pod.name_any()).await;
    let late = || format!("no answer within {} s", TIME_LIMIT.as_secs());
    Some(answer?.unwrap_or_else(|_| Verdict::Unknown(last.unwrap_or_else(late))))
}

/// Namespace of the sandboxes; if they are in all, that of the controller.
pub(super) fn namespace(context: &Context) -> &str {
    let config = &context.config;
    let own = config.leader.as_ref().map(|lease| lease.namespace.as_str());
    config.namespace.as_deref().or(own).unwrap_or("default")
}

/// Runs the Pod until it has a verdict. `last` is what keeps it from one.
async fn run_pod(
    pods: &Api<Pod>,
    context: &Context,
    probe: &Probe,
    last: &mut Option<String>,
) -> Verdict {
    let mut pod = match create(pods, &probe.pod, last).await {
        Ok(pod) => pod,
        Err(verdict) => return verdict,
    };
    if let Some(reason) = (probe.dropped)(&pod) {
        return Verdict::Fails(reason.into());
    }
    loop {
        if let Some(verdict) = verdict::read(&pod, context.clock.now()) {
            return verdict;
        }
        *last = verdict::problem(&pod);
        sleep(POLL_INTERVAL).await;
        match with_timeout(pods.get_opt(&probe.pod.name_any())).await {
            Ok(Some(found)) => pod = found,
            Ok(None) => return Verdict::Unknown("the probe Pod was deleted".into()),
            Err(error) => *last = Some(error.to_string()),
        }
    }
}

/// Creates the Pod in place of one that was left. Gives up if the API server rejects it.
async fn create(pods: &Api<Pod>, pod: &Pod, last: &mut Option<String>) -> Result<Pod, Verdict> {
    let params = PostParams {
        field_manager: Some(names::CONTROLLER_FIELD_MANAGER.into()),
        ..PostParams::default()
    };
    loop {
        delete(pods, &pod.name_any()).await;
        match with_timeout(pods.create(&params, pod)).await {
            Ok(created) => return Ok(created),
            Err(error) if error.is_server_error() || error.is_not_found() => {
                *last = Some(error.to_string());
            }
            Err(error) => return Err(rejection(&error)),
        }
        sleep(POLL_INTERVAL).await;
    }
}

/// Verdict if the API server rejects the Pod. A quota, a missing runtime class or a webhook that
/// names no privilege says nothing about what Pods can do.
fn rejection(error: &CallError) -> Verdict {
    let reason = error.to_string();
    if error.code() == Some(422) || api_messages::is_policy_rejection(&reason) {
        Verdict::Fails(reason)
    } else {
        Verdict::Unknown(reason)
    }
}

/// Deletes the Pod, if it exists. The next leader finds it otherwise, and its deadline ends it.
async fn delete(pods: &Api<Pod>, name: &str) {
    let now = DeleteParams::default().grace_period(0);
    let deletion = async {
        while let Err(error) = with_timeout(pods.delete(name, &now)).await {
            if error.is_not_found() {
                return;
            }
            sleep(POLL_INTERVAL).await;
        }
    };
    if timeout(DELETION_TIMEOUT, deletion).await.is_err() {
        tracing::warn!(pod = name, "cannot delete the probe Pod");
    }
}
