//! Connections to Pods: one client with a bounded pool for all, and for each Pod a token by which
//! everything open to it ends when the index says that it is gone.

use std::collections::HashMap;
use std::error::Error as _;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Request, Response, Uri};
use hyper::body::Incoming;
use hyper_util::client::legacy::{self, Client};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use parking_lot::Mutex;
use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::body::Offer;
use super::connector::{Connector, Lives};
use super::passage::{Activity, Passage, is_probe};
use super::{Proxy, ProxyError, Route};
use crate::index::{Entry, Index, Key};
use crate::traffic::Traffic;

/// Below the 5 seconds after which Python servers close idle connections.
const IDLE_LIMIT: Duration = Duration::from_secs(3);
/// Idle connections kept for each port of a Pod.
const IDLE_CONNECTIONS: usize = 256;

/// All connections to Pods.
#[derive(Debug)]
pub(super) struct Upstreams {
    client: Client<Connector, Offer>,
    lives: Lives,
    /// Pods that requests have gone to.
    pods: Mutex<HashMap<Key, Pod>>,
    started: Instant,
}

/// A port of a Pod.
#[derive(Debug)]
pub(super) struct Upstream {
    authority: Authority,
    /// Cancelled when the Pod is gone.
    pub(super) gone: CancellationToken,
    activity: Arc<Activity>,
}

#[derive(Debug)]
struct Pod {
    /// Uid of the Sandbox and address of its Pod.
    identity: (String, Option<String>),
    gone: CancellationToken,
    activity: Arc<Activity>,
}

impl Proxy {
    /// Where a request for this sandbox goes.
    pub(super) fn upstream(&self, route: &Route, entry: &Entry) -> Result<Upstream, ProxyError> {
        let port = entry.port(&route.port).ok_or(ProxyError::UnknownPort)?;
        let ip = entry.status.pod_ip.as_deref();
        let ip = ip.ok_or(ProxyError::NotReady)?;
        let authority = if ip.contains(':') {
            format!("[{ip}]:{port}")
        } else {
            format!("{ip}:{port}")
        };
        let authority = authority.parse().map_err(|_| ProxyError::Unreachable)?;
        let index = &self.sandboxes.index;
        Ok(self.upstreams.upstream(index, entry, authority))
    }
}

impl Upstream {
    /// Notes that a request is under way until the passage is dropped.
    pub(super) fn pass(&self, parts: &Parts) -> Passage {
        self.activity.clone().begin(is_probe(parts))
    }
}

impl Upstreams {
    /// `open` counts the connections.
    pub(super) fn new(open: Gauge) -> Self {
        let lives = Lives::default();
        let client = Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_LIMIT)
            .pool_max_idle_per_host(IDLE_CONNECTIONS)
            .build(Connector::new(lives.clone(), open));
        Self {
            client,
            lives,
            pods: Mutex::default(),
            started: Instant::now(),
        }
    }

    /// What is known of the requests to a sandbox.
    pub(super) fn traffic(&self, key: &Key) -> Traffic {
        let pods = self.pods.lock();
        let idle = pods.get(key).and_then(|pod| pod.activity.idle());
        Traffic {
            idle: idle.unwrap_or_else(|| self.started.elapsed()),
            seen: idle.is_some(),
        }
    }

    /// Sends a request and waits for the head of the answer, for as long as the Pod lives.
    pub(super) async fn send(
        &self,
        upstream: &Upstream,
        parts: &Parts,
        body: Offer,
    ) -> Result<Response<Incoming>, ProxyError> {
        let mut parts = parts.clone();
        parts.uri = to(&upstream.authority, &parts.uri)?;
        let answer = self.client.request(Request::from_parts(parts, body));
        match upstream.gone.run_until_cancelled(answer).await {
            None => Err(ProxyError::WentAway),
            Some(Ok(response)) => Ok(response),
            Some(Err(error)) if error.is_connect() => Err(ProxyError::Unreachable),
            Some(Err(error)) if is_nonsense(&error) => Err(ProxyError::Malformed),
            Some(Err(_)) => Err(ProxyError::Broken),
        }
    }

    /// The Pod that `entry` names.
    fn upstream(&self, index: &Index, entry: &Entry, authority: Authority) -> Upstream {
        let (gone, activity) = {
            let mut pods = self.pods.lock();
            match pods.get(&entry.key) {
                Some(pod) if pod.is(entry) => pod.watched(),
                before => {
                    if let Some(before) = before {
                        before.end(&self.lives);
                    }
                    let pod = Pod::of(entry, &self.lives);
                    let watched = pod.watched();
                    pods.insert(entry.key.clone(), pod);
                    watched
                }
            }
        };
        // The Pod may have gone since `entry` was read, and nobody would say it again.
        self.check(index, &entry.key);
        Upstream {
            authority,
            gone,
            activity,
        }
    }

    /// Cancels what is open to Pods that are gone, as changes of the index tell of them.
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
        let keys: Vec<_> = self.pods.lock().keys().cloned().collect();
        for key in &keys {
            self.check(index, key);
        }
    }

    fn check(&self, index: &Index, key: &Key) {
        let mut pods = self.pods.lock();
        let Some(pod) = pods.get(key) else {
            return;
        };
        if !index.get(key).is_some_and(|entry| pod.is(&entry)) {
            pod.end(&self.lives);
            pods.remove(key);
        }
    }
}

impl Pod {
    fn of(entry: &Entry, lives: &Lives) -> Self {
        let pod = Self {
            identity: (entry.uid.clone(), entry.status.pod_ip.clone()),
            gone: CancellationToken::new(),
            activity: Arc::default(),
        };
        if let Some(ip) = pod.ip() {
            lives.begin(ip, &pod.identity.0, &pod.gone);
        }
        pod
    }

    /// Breaks everything that is open to it.
    fn end(&self, lives: &Lives) {
        self.gone.cancel();
        if let Some(ip) = self.ip() {
            lives.end(ip, &self.identity.0);
        }
    }

    /// By what its end is seen, and its requests.
    fn watched(&self) -> (CancellationToken, Arc<Activity>) {
        (self.gone.clone(), self.activity.clone())
    }

    fn ip(&self) -> Option<IpAddr> {
        self.identity.1.as_deref()?.parse().ok()
    }

    fn is(&self, entry: &Entry) -> bool {
        self.identity.0 == entry.uid && self.identity.1 == entry.status.pod_ip
    }
}

fn is_nonsense(error: &legacy::Error) -> bool {
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
