//! Keeps the tenants as the Secret has them, by a watch of this one object.

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::watch_object;
use tokio_util::sync::CancellationToken;

use super::{SECRET, SECRET_KEY, Tenants};

/// Follows the Secret in `namespace` until `shutdown`. While the API server is away, the keys stay
/// as they were last seen.
pub async fn follow(
    tenants: Tenants,
    client: kube::Client,
    namespace: &str,
    shutdown: CancellationToken,
) {
    let secrets: Api<Secret> = Api::namespaced(client, namespace);
    let versions = watch_object(secrets, SECRET)
        .inspect_err(|error| tracing::warn!(%error, "the API keys cannot be watched"))
        .default_backoff()
        .filter_map(|version| async { version.ok() })
        .for_each(|secret| {
            take(&tenants, secret.as_ref());
            std::future::ready(())
        });
    shutdown.run_until_cancelled(versions).await;
}

fn take(tenants: &Tenants, secret: Option<&Secret>) {
    let json = secret
        .and_then(|s| s.data.as_ref())
        .and_then(|data| data.get(SECRET_KEY));
    match json {
        None => tenants.clear(),
        Some(json) => match tenants.replace(&json.0) {
            Ok(()) => tracing::info!("API keys loaded"),
            Err(error) => tracing::error!(%error, "the API keys stay as they were"),
        },
    }
}
