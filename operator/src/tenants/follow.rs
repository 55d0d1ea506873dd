//! Keeps the tenants as the Secret has them, by a watch of this one object.

use std::time::Duration;

use futures::{Stream, StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::watch_object;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::{SECRET, SECRET_KEY, Tenants};
use crate::kubernetes::words;

/// How long the keys of a Secret that is gone stay valid. `kubectl replace --force` deletes it and
/// makes it anew; that must not send everybody away. Who wants to revoke a key takes it out.
const GRACE: Duration = Duration::from_mins(1);

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
        .inspect_err(|error| {
            let error = words::of_watch(error);
            tracing::warn!(error, "the API keys cannot be watched");
        })
        .default_backoff()
        .filter_map(|version| async { version.ok() });
    let keep = Box::pin(keep(&tenants, versions));
    shutdown.run_until_cancelled(keep).await;
}

/// Takes in every version of the Secret; `None` is its absence.
async fn keep(tenants: &Tenants, versions: impl Stream<Item = Option<Secret>>) {
    let mut versions = std::pin::pin!(versions);
    let mut gone: Option<Instant> = None;
    let mut seen = false;
    loop {
        let over = async {
            match gone {
                Some(since) => sleep_until(since + GRACE).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            version = versions.next() => match version {
                None => return,
                Some(Some(secret)) => {
                    take(tenants, &secret);
                    (gone, seen) = (None, true);
                }
                Some(None) if seen => gone = Some(gone.unwrap_or_else(lost)),
                Some(None) => tenants.clear(),
            },
            () = over => {
                tracing::error!("Secret {SECRET} is gone: its API keys are no longer valid");
                tenants.clear();
                (gone, seen) = (None, false);
            }
        }
    }
}

fn lost() -> Instant {
    let seconds = GRACE.as_secs();
    tracing::warn!("Secret {SECRET} is gone: its API keys stay valid for {seconds} s");
    Instant::now()
}

fn take(tenants: &Tenants, secret: &Secret) {
    let json = secret.data.as_ref().and_then(|data| data.get(SECRET_KEY));
    let Some(json) = json else {
        tracing::error!("Secret {SECRET} lacks {SECRET_KEY}: the API keys stay as they were");
        return;
    };
    match tenants.replace(&json.0) {
        Ok(()) => tracing::info!("API keys loaded"),
        Err(error) => tracing::error!(%error, "the API keys stay as they were"),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use futures::channel::mpsc;
    use k8s_openapi::ByteString;
    use tokio::task::yield_now;
    use tokio::time::advance;

    use super::*;

    fn secret(hash: char) -> Secret {
        let hash = hash.to_string().repeat(64);
        let json = format!(r#"[{{"name":"{}","sha256":"{hash}"}}]"#, &hash[..1]);
        let data = BTreeMap::from([(SECRET_KEY.to_owned(), ByteString(json.into_bytes()))]);
        Secret {
            data: Some(data),
            ..Secret::default()
        }
    }

    async fn settle() {
        for _ in 0..10 {
            yield_now().await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_secret_that_is_made_anew_locks_nobody_out() {
        let tenants = Tenants::pending();
        let (send, versions) = mpsc::unbounded();
        let kept = tenants.clone();
        let task = tokio::spawn(async move { keep(&kept, versions).await });
        let names = || {
            let all = tenants.all();
            all.iter().map(|t| t.name.clone()).collect::<Vec<_>>()
        };
        send.unbounded_send(None).unwrap();
        settle().await;
        assert!(tenants.is_loaded() && names().is_empty());

        send.unbounded_send(Some(secret('a'))).unwrap();
        settle().await;
        send.unbounded_send(None).unwrap();
        settle().await;
        advance(GRACE / 2).await;
        // A watch that begins anew says it again; the first loss counts.
        send.unbounded_send(None).unwrap();
        settle().await;
        assert_eq!(names(), ["a"]);
        send.unbounded_send(Some(secret('b'))).unwrap();
        settle().await;
        advance(GRACE * 2).await;
        settle().await;
        assert_eq!(names(), ["b"]);

        send.unbounded_send(Some(Secret::default())).unwrap();
        settle().await;
        assert_eq!(names(), ["b"]);
        send.unbounded_send(None).unwrap();
        settle().await;
        advance(GRACE * 2).await;
        settle().await;
        assert!(names().is_empty());
        drop(send);
        task.await.unwrap();
    }
}
