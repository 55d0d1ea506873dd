//! Knowledge that a new leader needs before it acts: the claims of the one before it, which a watch may
//! show later. Without them, a claimed sandbox would get a second Pod.

use std::collections::HashSet;
use std::time::Duration;

use crds::names;
use kube::ResourceExt as _;
use kube::api::ListParams;
use tokio::time::sleep;

use crate::context::Context;
use shared::index::Key;
use shared::kubernetes::client::{CallError, with_timeout};
use shared::kubernetes::slim::SlimPod;
use shared::kubernetes::watch;

/// Pods per page of the list.
const PAGE_SIZE: u32 = 500;
/// Delay after a list that failed. The leader does nothing before one has succeeded.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Reads all Pods of pools, warm and claimed, as etcd has them now. The lease has ended every write
/// of the leader before.
pub(crate) async fn read_pods_of_pools(context: &Context) {
    while let Err(error) = read(context).await {
        tracing::warn!(%error, "cannot list the Pods of pools; retrying");
        sleep(RETRY_INTERVAL).await;
    }
}

async fn read(context: &Context) -> Result<(), CallError> {
    let api = watch::api::<SlimPod>(&context.client, context.config.namespace.as_deref());
    // Without a resource version, the API server answers from etcd.
    let mut params = ListParams::default()
        .labels(names::POOL_LABEL)
        .limit(PAGE_SIZE);
    let mut seen = HashSet::new();
    loop {
        let page = with_timeout(api.list(&params)).await?;
        for pod in &page.items {
            context.pods.observe(pod);
            seen.extend(pod.namespace().map(|namespace| Key {
                namespace,
                name: pod.name_any(),
            }));
        }
        params.continue_token = page.metadata.continue_.filter(|token| !token.is_empty());
        if params.continue_token.is_none() {
            break;
        }
    }
    context.warm_pods.retain(&seen);
    Ok(())
}
