//! Connections to Pods: one client with a bounded pool, and for each Pod a token that closes its
//! connections when the index no longer has it.

use std::collections::HashMap;
use std::error::Error as _;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderValue, Request, Response, Uri};
use hyper::body::Incoming;
use hyper_util::client::legacy::{self, Client};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use jiff::Timestamp;
use parking_lot::Mutex;
use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::address_proof::ProvablePod;
use super::body::BodyAttempt;
use super::connector::{self, Connector, NumberedPods, PodId, UpstreamLimitError, UpstreamPod};
use super::pod_address::is_pod_address;
use super::{Proxy, ProxyError, Route};
use crate::GatewayConfig;
use crate::sandboxes::Sandboxes;
use crds::contract::header;
use crds::contract::identity::IdentityKey;
use crds::names;
use shared::index::{Entry, Index, Key};
use shared::keys::KeySet;
use shared::traffic::Traffic;
use shared::urls::RUNTIME;

/// Below the 5 seconds after which Python servers close idle connections.
const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(3);
/// Bytes that one read of a response takes, and that wait for a sandbox or client which does not read;
/// a head must fit as well. hyper's own maximum is 400 KiB, and each stalled transfer holds it twice.
const MAX_BUFFER_BYTES: usize = 64 << 10;
/// Maximum of idle connections for each port of a Pod.
const MAX_IDLE_CONNECTIONS: usize = 256;

#[derive(Debug)]
pub(crate) struct Upstreams {
    client: Client<Connector, BodyAttempt>,
    numbered: NumberedPods,
    /// Pods that requests have been sent to, and the number of the next one.
    pods: Mutex<(HashMap<Key, Arc<UpstreamPod>>, u64)>,
    started: Instant,
    started_at: Timestamp,
}

/// Key that the Pod of a sandbox proves its address with. A Pod that was warm has another name than
/// the Pod that is created for a sandbox, and a key of its own.
fn identity_key(keys: &KeySet, entry: &Entry) -> IdentityKey {
    let Entry {
        key, uid, status, ..
    } = entry;
    match &status.pod_name {
        Some(pod) if *pod != names::pod(&key.name) => keys.pod_identity_key(&key.namespace, pod),
        _ => keys.identity_key(uid),
    }
}

/// A port of a Pod, or a plugin behind the port of its server.
#[derive(Debug)]
pub(super) struct Upstream {
    authority: Authority,
    plugin: Option<String>,
    pub(super) pod: Arc<UpstreamPod>,
}

impl Proxy {
    pub(super) fn upstream(&self, route: &Route, entry: &Entry) -> Result<Upstream, ProxyError> {
        let own = entry.port(&route.port);
        let is_plugin = own.is_none() && entry.has_plugin(&route.port);
        let server = || entry.port(RUNTIME).filter(|_| is_plugin);
        let port = own.or_else(server).ok_or(ProxyError::UnknownPort)?;
        let ip = self.pod_address(entry)?;
        let mut upstream = self.upstreams.upstream(&self.sandboxes, entry, ip, port)?;
        upstream.plugin = is_plugin.then(|| route.port.clone());
        Ok(upstream)
    }

    pub(super) fn pod_address(&self, entry: &Entry) -> Result<IpAddr, ProxyError> {
        let ip = entry.status.pod_ip.as_deref();
        let ip: IpAddr = ip
            .ok_or(ProxyError::NotReady)?
            .parse()
            .map_err(|_| ProxyError::Unreachable)?;
        if !is_pod_address(ip, self.sandboxes.config.loopback_pods) {
            tracing::warn!(key = %entry.key, %ip, "status.podIP is not an address of a Pod");
            return Err(ProxyError::Unreachable);
        }
        Ok(ip)
    }
}

impl Upstreams {
    /// Creates a client; `open` counts its connections.
    pub(super) fn new(config: &GatewayConfig, open: Gauge) -> Self {
        let numbered = NumberedPods::default();
        let client = Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(POOL_IDLE_TIMEOUT)
            .pool_max_idle_per_host(MAX_IDLE_CONNECTIONS)
            .http1_max_buf_size(MAX_BUFFER_BYTES)
            .build(connector::new(numbered.clone(), config, open));
        Self {
            client,
            numbered,
            pods: Mutex::default(),
            started: Instant::now(),
            started_at: Timestamp::now(),
        }
    }

    pub(crate) fn traffic(&self, key: &Key) -> Traffic {
        let (pods, _) = &*self.pods.lock();
        let idle = pods.get(key).and_then(|pod| pod.activity.idle());
        Traffic {
            idle: idle.unwrap_or_else(|| self.started.elapsed()),
            has_seen_request: idle.is_some(),
        }
    }

    /// End of the last request to a sandbox, or else the start of this replica. `None` while a
    /// request is open.
    pub(crate) fn idle_since(&self, key: &Key) -> Option<Timestamp> {
        let (pods, _) = &*self.pods.lock();
        let begin = self.started_at;
        pods.get(key)
            .map_or(Some(begin), |pod| pod.activity.idle_since(begin))
    }

    /// Sends a request and waits for the response head, for as long as the Pod exists.
    pub(super) async fn send(
        &self,
        upstream: &Upstream,
        parts: &Parts,
        body: BodyAttempt,
    ) -> Result<Response<Incoming>, ProxyError> {
        let mut parts = parts.clone();
        if let Some(plugin) = &upstream.plugin {
            to_plugin(plugin, &mut parts)?;
        }
        parts.uri = to(&upstream.authority, &parts.uri)?;
        let response = self.client.request(Request::from_parts(parts, body));
        match upstream.pod.gone.run_until_cancelled(response).await {
            None => Err(ProxyError::PodGone),
            Some(Ok(response)) => Ok(response),
            Some(Err(error)) if has_cause::<UpstreamLimitError>(&error) => {
                Err(ProxyError::Overloaded)
            }
            Some(Err(error)) if error.is_connect() => Err(ProxyError::Unreachable),
            Some(Err(error)) if is_protocol_error(&error) => Err(ProxyError::Malformed),
            Some(Err(_)) => Err(ProxyError::ConnectionBroken),
        }
    }

    pub(super) fn upstream(
        &self,
        sandboxes: &Sandboxes,
        entry: &Entry,
        ip: IpAddr,
        port: u16,
    ) -> Result<Upstream, ProxyError> {
        let pod = {
            let (pods, next) = &mut *self.pods.lock();
            match pods.get(&entry.key) {
                Some(pod) if pod.id == PodId::of(entry) => pod.clone(),
                before => {
                    if let Some(before) = before {
                        self.numbered.end(before);
                    }
                    let id = PodId::of(entry);
                    let keys = sandboxes.keys.of(entry.created_at);
                    let identity = || identity_key(keys, entry);
                    let provable = id.proves_address.then(|| ProvablePod::new(identity()));
                    let pod = Arc::new(UpstreamPod {
                        id,
                        number: *next,
                        ip,
                        gone: CancellationToken::new(),
                        activity: Arc::default(),
                        provable,
                    });
                    *next += 1;
                    self.numbered.insert(pod.clone());
                    pods.insert(entry.key.clone(), pod.clone());
                    pod
                }
            }
        };
        // The Pod may be gone since `entry` was read, with no further event.
        self.check(&sandboxes.index, &entry.key);
        let authority = pod.host(port).parse();
        Ok(Upstream {
            authority: authority.map_err(|_| ProxyError::Unreachable)?,
            plugin: None,
            pod,
        })
    }

    /// Closes the connections to deleted Pods, following the index.
    pub(super) async fn follow(&self, index: &Index) {
        let mut changes = index.changes();
        loop {
            match changes.recv().await {
                Ok(key) => self.check(index, &key),
                Err(RecvError::Lagged(_)) => self.check_all(index),
                Err(RecvError::Closed) => return,
            }
        }
    }

    fn check_all(&self, index: &Index) {
        let keys: Vec<_> = self.pods.lock().0.keys().cloned().collect();
        for key in &keys {
            self.check(index, key);
        }
    }

    fn check(&self, index: &Index, key: &Key) {
        let (pods, _) = &mut *self.pods.lock();
        let Some(pod) = pods.get(key) else {
            return;
        };
        let now = index.get(key).map(|entry| PodId::of(&entry));
        if now.as_ref() != Some(&pod.id) {
            self.numbered.end(pod);
            pods.remove(key);
        }
    }
}

/// Addresses a plugin at its server, which is told that the client does not see that path.
fn to_plugin(plugin: &str, parts: &mut Parts) -> Result<(), ProxyError> {
    let malformed = ProxyError::BadRequest("the path is malformed");
    let tail = parts.uri.path_and_query().map_or("/", PathAndQuery::as_str);
    // `*` is the target of OPTIONS for a whole server.
    let slash = if tail.starts_with('/') { "" } else { "/" };
    let path = PathAndQuery::try_from(format!("/plugins/{plugin}{slash}{tail}"));
    parts.uri = path.map_err(|_| malformed)?.into();
    let name = HeaderValue::try_from(plugin).map_err(|_| malformed)?;
    parts.headers.insert(header::PLUGIN, name);
    Ok(())
}

fn has_cause<E: std::error::Error + 'static>(error: &legacy::Error) -> bool {
    error.source().is_some_and(<dyn std::error::Error>::is::<E>)
}

fn is_protocol_error(error: &legacy::Error) -> bool {
    let cause = error.source().and_then(|cause| cause.downcast_ref());
    cause.is_some_and(hyper::Error::is_parse)
}

fn to(authority: &Authority, uri: &Uri) -> Result<Uri, ProxyError> {
    let path = uri.path_and_query().cloned();
    Uri::builder()
        .scheme(Scheme::HTTP)
        .authority(authority.clone())
        .path_and_query(path.unwrap_or_else(|| PathAndQuery::from_static("/")))
        .build()
        .map_err(|_| ProxyError::BadRequest("the path is malformed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plugin_is_addressed_below_a_path_of_the_server() {
        for (target, expected) in [
            ("/", "/plugins/p/"),
            ("/a//../b?c=/", "/plugins/p/a//../b?c=/"),
            ("*", "/plugins/p/*"),
        ] {
            let (mut parts, ()) = Request::options(target).body(()).unwrap().into_parts();
            to_plugin("p", &mut parts).unwrap();
            assert_eq!(parts.uri, expected);
            assert_eq!(parts.headers[header::PLUGIN], "p");
        }
    }
}
