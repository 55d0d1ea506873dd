//! Loads the tenants from their Secret by a watch of this one object.

use std::time::Duration;

use futures::{Stream, StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::ListParams;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::watch_object;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::{SECRET_KEY, SECRET_NAME, Tenants};
use crate::kubernetes::client::with_timeout;
use crate::kubernetes::error_text;

/// Interval of reads beside the watch. They bound the validity of a revoked key while it is silent.
const POLL_INTERVAL: Duration = Duration::from_mins(1);
/// Time for which the keys of a deleted Secret stay valid: `kubectl replace --force` deletes and
/// recreates it, which must not reject all callers. Removing a record revokes a key at once.
const SECRET_DELETED_GRACE: Duration = Duration::from_mins(1);

/// Watches the Secret in `namespace` until `shutdown`. While it cannot be read, the last known keys
/// stay valid for [`MAX_UNCONFIRMED`](super::MAX_UNCONFIRMED).
pub async fn watch_secret(
    tenants: Tenants,
    client: kube::Client,
    namespace: &str,
    shutdown: CancellationToken,
) {
    let secrets: Api<Secret> = Api::namespaced(client, namespace);
    let polled = poll(secrets.clone());
    let watched = watch_object(secrets, SECRET_NAME)
        .inspect_err(|error| {
            let error = error_text::watch_error_text(error);
            tracing::warn!(error, "cannot watch the API keys");
        })
        .default_backoff()
        .filter_map(|version| async { version.ok() });
    let versions = futures::stream::select(watched, polled);
    let keep = Box::pin(apply_versions(&tenants, versions));
    shutdown.run_until_cancelled(keep).await;
}

/// Reads the Secret at intervals. A list, because gateways have no permission for a get.
fn poll(secrets: Api<Secret>) -> impl Stream<Item = Option<Secret>> {
    let params = ListParams::default().fields(&format!("metadata.name={SECRET_NAME}"));
    let ticks = futures::stream::repeat_with(|| sleep(POLL_INTERVAL)).then(|tick| tick);
    ticks.filter_map(move |()| {
        let (secrets, params) = (secrets.clone(), params.clone());
        async move {
            let found = with_timeout(secrets.list(&params)).await.ok()?;
            Some(found.items.into_iter().next())
        }
    })
}

/// Applies every version of the Secret; `None` is its absence.
async fn apply_versions(tenants: &Tenants, versions: impl Stream<Item = Option<Secret>>) {
    let mut versions = std::pin::pin!(versions);
    let mut deleted_at: Option<Instant> = None;
    let mut seen = false;
    let mut version = None;
    loop {
        let expiry = deleted_at.map(|since| since + SECRET_DELETED_GRACE);
        tokio::select! {
            next = versions.next() => match next {
                None => return,
                Some(Some(secret)) => {
                    tenants.confirm();
                    // A poll mostly finds the known version, and at times an older one.
                    if is_newer(version.as_deref(), secret.metadata.resource_version.as_deref()) {
                        load(tenants, &secret);
                        version = secret.metadata.resource_version;
                    }
                    (deleted_at, seen) = (None, true);
                }
                Some(None) if seen => {
                    deleted_at = Some(deleted_at.unwrap_or_else(record_deletion));
                }
                Some(None) => {
                    tenants.confirm();
                    tenants.clear();
                }
            },
            () = sleep_until(expiry.unwrap_or_else(Instant::now)), if expiry.is_some() => {
                tracing::error!("Secret {SECRET_NAME} was deleted: its API keys have expired");
                tenants.clear();
                (deleted_at, seen, version) = (None, false, None);
            }
        }
    }
}

fn is_newer(known: Option<&str>, found: Option<&str>) -> bool {
    let number = |version: Option<&str>| version?.parse::<u64>().ok();
    match (number(known), number(found)) {
        (Some(known), Some(found)) => found > known,
        _ => known.is_none() || known != found,
    }
}

fn record_deletion() -> Instant {
    let seconds = SECRET_DELETED_GRACE.as_secs();
    tracing::warn!("Secret {SECRET_NAME} was deleted: its API keys expire in {seconds} s");
    Instant::now()
}

fn load(tenants: &Tenants, secret: &Secret) {
    let json = secret.data.as_ref().and_then(|data| data.get(SECRET_KEY));
    let Some(json) = json else {
        tracing::error!("Secret {SECRET_NAME} lacks {SECRET_KEY}; keeping the last API keys");
        return;
    };
    match tenants.replace(&json.0) {
        Ok(()) => tracing::info!("API keys loaded"),
        Err(error) => tracing::error!(%error, "cannot load the API keys; keeping the last ones"),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use futures::channel::mpsc;
    use jiff::Timestamp;
    use k8s_openapi::ByteString;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
    use serde_json::json;
    use tokio::task::yield_now;
    use tokio::time::advance;

    use super::*;
    use crate::tenants::MAX_UNCONFIRMED;
    use testing::FakeApi;

    fn secret(hash: char) -> Secret {
        let version = u32::from(hash).to_string();
        let hash = hash.to_string().repeat(64);
        let json = format!(r#"[{{"name":"{}","sha256":"{hash}"}}]"#, &hash[..1]);
        let data = BTreeMap::from([(SECRET_KEY.to_owned(), ByteString(json.into_bytes()))]);
        Secret {
            data: Some(data),
            metadata: ObjectMeta {
                resource_version: Some(version),
                ..ObjectMeta::default()
            },
            ..Secret::default()
        }
    }

    async fn settle() {
        for _ in 0..10 {
            yield_now().await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn poll_keeps_keys_valid_and_an_outage_ends_them() {
        let (tenants, api) = (Tenants::pending(), FakeApi::default());
        let hash = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";
        let keys = json!([{"name": "a", "sha256": hash}]).to_string();
        let secret = json!({"metadata": {}, "data": {(SECRET_KEY): ByteString(keys.into())}});
        api.put("/api/v1/namespaces/ns/secrets/keys", secret);
        let (kept, polled) = (tenants.clone(), poll(Api::namespaced(api.client(), "ns")));
        let task = tokio::spawn(async move { apply_versions(&kept, polled).await });
        let is_valid_after = async |time| {
            sleep(time).await;
            let key = tenants.authenticate(Some("secret"), Timestamp::UNIX_EPOCH);
            key.is_ok()
        };
        assert!(is_valid_after(MAX_UNCONFIRMED * 2).await);
        api.set_unavailable(true);
        assert!(is_valid_after(MAX_UNCONFIRMED.saturating_sub(POLL_INTERVAL * 2)).await);
        assert!(!is_valid_after(POLL_INTERVAL * 3).await);
        task.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn keys_stay_valid_when_secret_is_recreated() {
        let tenants = Tenants::pending();
        let (send, versions) = mpsc::unbounded();
        let kept = tenants.clone();
        let task = tokio::spawn(async move { apply_versions(&kept, versions).await });
        let names = || {
            let all = tenants.all();
            all.iter().map(|t| t.name.clone()).collect::<Vec<_>>()
        };
        let deliver = async |version| {
            send.unbounded_send(version).unwrap();
            settle().await;
        };
        deliver(None).await;
        assert!(tenants.is_loaded() && names().is_empty());

        deliver(Some(secret('a'))).await;
        deliver(None).await;
        advance(SECRET_DELETED_GRACE / 2).await;
        // A restarted watch reports the absence again; the first report counts.
        deliver(None).await;
        assert_eq!(names(), ["a"]);
        for version in ['b', 'a'] {
            // The older one is the late result of a poll.
            send.unbounded_send(Some(secret(version))).unwrap();
        }
        settle().await;
        advance(SECRET_DELETED_GRACE * 2).await;
        settle().await;
        assert_eq!(names(), ["b"]);

        deliver(Some(Secret::default())).await;
        assert_eq!(names(), ["b"]);
        deliver(None).await;
        advance(SECRET_DELETED_GRACE * 2).await;
        settle().await;
        assert!(names().is_empty());
        drop(send);
        task.await.unwrap();
    }
}
