//! The probe for image volumes, once for each leader: creates a Pod, waits for its verdict and deletes
//! it in any case. A Pod that a dead leader left is replaced.

mod probe_pod;

use std::time::Duration;

use crds::names;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use self::probe_pod::NAME;
use crate::config::Injection;
use crate::context::Context;
use shared::kubernetes::client::with_timeout;
use shared::runtime_class;

/// Time for the verdict. It includes a pull of the image, and a node that has yet to be started.
const TIME_LIMIT: Duration = Duration::from_mins(5);
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Time for the deletion, within that of a shutdown.
const DELETION_TIMEOUT: Duration = Duration::from_secs(10);

/// Finds out once whether Pods can mount the executor image.
pub(crate) async fn probe(context: &Context, shutdown: &CancellationToken) {
    if context.config.pods.injection != Injection::Auto {
        return;
    }
    match answer(context, shutdown).await {
        None => {}
        Some(Ok(())) => {
            context.injection.record_proof();
            tracing::info!("new Pods mount the executor image as a volume");
        }
        Some(Err(reason)) => {
            tracing::info!(reason, "new Pods copy the executor in an init container");
        }
    }
}

/// The answer, unless the process ends before.
async fn answer(context: &Context, shutdown: &CancellationToken) -> Option<Result<(), String>> {
    let class = context.config.defaults.runtime_class_name.as_deref();
    if let Some(class) = class.filter(|class| !runtime_class::shares_kernel(class)) {
        return Some(Err(format!("the default runtime class is {class}")));
    }
    let pods = Api::<Pod>::namespaced(context.client.clone(), namespace(context));
    let mut last = None;
    let ask = timeout(TIME_LIMIT, Box::pin(run_pod(&pods, context, &mut last)));
    let answer = shutdown.run_until_cancelled(ask).await;
    delete(&pods).await;
    let answer = answer?;
    let late = || format!("no answer within {} s", TIME_LIMIT.as_secs());
    Some(answer.unwrap_or_else(|_| Err(last.unwrap_or_else(late))))
}

/// Namespace of the sandboxes; if they are in all, that of the controller.
fn namespace(context: &Context) -> &str {
    let config = &context.config;
    let own = config.leader.as_ref().map(|lease| lease.namespace.as_str());
    config.namespace.as_deref().or(own).unwrap_or("default")
}

/// Runs the Pod until it has a verdict. `last` is what keeps it from one.
async fn run_pod(
    pods: &Api<Pod>,
    context: &Context,
    last: &mut Option<String>,
) -> Result<(), String> {
    let mut pod = create(pods, &probe_pod::build(&context.config), last).await?;
    loop {
        if let Some(verdict) = probe_pod::verdict(&pod) {
            return verdict;
        }
        *last = probe_pod::problem(&pod);
        sleep(POLL_INTERVAL).await;
        match with_timeout(pods.get_opt(NAME)).await {
            Ok(Some(found)) => pod = found,
            Ok(None) => return Err("the probe Pod was deleted".into()),
            Err(error) => *last = Some(error.to_string()),
        }
    }
}

/// Creates the Pod in place of one that was left. Gives up if the API server rejects it.
async fn create(pods: &Api<Pod>, pod: &Pod, last: &mut Option<String>) -> Result<Pod, String> {
    let params = PostParams {
        field_manager: Some(names::CONTROLLER_FIELD_MANAGER.into()),
        ..PostParams::default()
    };
    loop {
        delete(pods).await;
        match with_timeout(pods.create(&params, pod)).await {
            Ok(created) => return Ok(created),
            Err(error) if error.is_server_error() || error.is_not_found() => {
                *last = Some(error.to_string());
            }
            Err(error) => return Err(error.to_string()),
        }
        sleep(POLL_INTERVAL).await;
    }
}

/// Deletes the Pod, if it exists. The next leader finds it otherwise, and its deadline ends it.
async fn delete(pods: &Api<Pod>) {
    let now = DeleteParams::default().grace_period(0);
    let deletion = async {
        while let Err(error) = with_timeout(pods.delete(NAME, &now)).await {
            if error.is_not_found() {
                return;
            }
            sleep(POLL_INTERVAL).await;
        }
    };
    if timeout(DELETION_TIMEOUT, deletion).await.is_err() {
        tracing::warn!(pod = NAME, "cannot delete the probe Pod");
    }
}
