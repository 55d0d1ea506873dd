//! Connects to Pods. A connection belongs to one Pod of one sandbox and closes with it: an idle one
//! in the pool would otherwise survive it and carry requests of a successor at the same address.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::Future as _;
use http::Uri;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tower::util::BoxCloneSyncService;
use tower::{BoxError, ServiceExt as _, service_fn};

use super::activity::Activity;
use super::address_proof::{AddressProver, ProvablePod};
use super::pod_network::{self, PodNetwork, PodStream};
use crate::GatewayConfig;
use crate::observed::{ObservedStream, StreamObserver};
use shared::index::Entry;
use shared::metrics::GaugeGuard;

/// Connector of the client; the host of a URI is that of a numbered Pod.
pub(super) type Connector = BoxCloneSyncService<Uri, PodIo, BoxError>;
type PodIo = TokioIo<ObservedStream<Box<dyn PodStream>, PodConnection>>;

#[derive(Debug, Clone)]
struct ConnectorParts {
    network: PodNetwork,
    pods: NumberedPods,
    prover: AddressProver,
    slots: Arc<Semaphore>,
    open: Gauge,
}

/// All connections to sandboxes are in use.
#[derive(Debug, thiserror::Error)]
#[error("too many connections to sandboxes")]
pub(super) struct UpstreamLimitError;

/// Pods that connections can be made to, by number. Two sandboxes may seem to have one address
/// while the index is behind, so connections are pooled by number and not by address.
#[derive(Debug, Clone, Default)]
pub(super) struct NumberedPods(Arc<Mutex<HashMap<u64, Arc<UpstreamPod>>>>);

#[derive(Debug)]
pub(super) struct UpstreamPod {
    pub(super) id: PodId,
    /// Unique in the process, and the host name of its connections.
    pub(super) number: u64,
    pub(super) ip: IpAddr,
    /// Cancelled when the Pod is gone.
    pub(super) gone: CancellationToken,
    pub(super) activity: Arc<Activity>,
    /// `None` if the Pod cannot prove its address: no supervisor, or an earlier version.
    pub(super) provable: Option<ProvablePod>,
}

/// Pod of a sandbox as its status describes it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PodId {
    sandbox_uid: String,
    pod_name: Option<String>,
    ip: Option<String>,
    pub(super) proves_address: bool,
}

/// Failure before a connection.
#[derive(Debug, thiserror::Error)]
#[error("the Pod is gone")]
struct PodGoneError;

/// Observer of a connection, which fails when its Pod is deleted.
#[derive(Debug)]
pub(super) struct PodConnection {
    gone: Pin<Box<WaitForCancellationFutureOwned>>,
    _slot: OwnedSemaphorePermit,
    _open: GaugeGuard,
}

impl PodId {
    pub(super) fn of(entry: &Entry) -> Self {
        Self {
            sandbox_uid: entry.uid.clone(),
            pod_name: entry.status.pod_name.clone(),
            ip: entry.status.pod_ip.clone(),
            proves_address: entry.status.proves_address,
        }
    }
}

impl UpstreamPod {
    /// Host and port that stand for a port of the Pod in URIs of the client.
    pub(super) fn host(&self, port: u16) -> String {
        format!("pod-{}:{port}", self.number)
    }
}

impl NumberedPods {
    pub(super) fn insert(&self, pod: Arc<UpstreamPod>) {
        self.0.lock().insert(pod.number, pod);
    }

    /// Removes a Pod and closes all connections to it.
    pub(super) fn end(&self, pod: &UpstreamPod) {
        pod.gone.cancel();
        self.0.lock().remove(&pod.number);
    }

    fn find(&self, uri: &Uri) -> Option<Arc<UpstreamPod>> {
        let number = uri.host()?.strip_prefix("pod-")?.parse().ok()?;
        self.0.lock().get(&number).cloned()
    }
}

/// Creates a connector; `open` counts its connections.
pub(super) fn new(pods: NumberedPods, config: &GatewayConfig, open: Gauge) -> Connector {
    let network = config.pod_network.clone().unwrap_or_else(pod_network::tcp);
    let parts = ConnectorParts {
        prover: AddressProver::new(network.clone()),
        network,
        pods,
        slots: Arc::new(Semaphore::new(config.max_upstream_connections)),
        open,
    };
    BoxCloneSyncService::new(service_fn(move |uri| parts.clone().connect(uri)))
}

impl ConnectorParts {
    async fn connect(self, uri: Uri) -> Result<PodIo, BoxError> {
        let pod = self.pods.find(&uri).ok_or(PodGoneError)?;
        let address = SocketAddr::new(pod.ip, uri.port_u16().unwrap_or_default());
        let target = Uri::try_from(format!("http://{address}/"))?;
        let slot = self.slots.try_acquire_owned();
        let slot = slot.map_err(|_| UpstreamLimitError)?;
        let stream = self.network.oneshot(target).await?.into_inner();
        if let Some(provable) = &pod.provable {
            let proof = self.prover.prove(provable, pod.ip, Instant::now());
            proof.await.inspect_err(|error| {
                tracing::warn!(ip = %pod.ip, %error, "the address of a Pod is not proven");
            })?;
        }
        let connection = PodConnection {
            gone: Box::pin(pod.gone.clone().cancelled_owned()),
            _slot: slot,
            _open: GaugeGuard::new(&self.open),
        };
        Ok(TokioIo::new(ObservedStream::new(stream, connection)))
    }
}

impl StreamObserver for PodConnection {
    fn on_read(
        &mut self,
        cx: &mut Context<'_>,
        read: Poll<io::Result<()>>,
        _: &[u8],
    ) -> Poll<io::Result<()>> {
        // Received data is read first: the end of a response may come with the end of its Pod.
        if read.is_pending() && self.gone.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        read
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_are_found_by_number_and_not_by_address() {
        let pods = NumberedPods::default();
        let insert = |number: u64| {
            let pod = Arc::new(UpstreamPod {
                id: PodId {
                    pod_name: None,
                    sandbox_uid: number.to_string(),
                    ip: Some("::1".into()),
                    proves_address: false,
                },
                number,
                ip: "::1".parse().unwrap(),
                gone: CancellationToken::new(),
                activity: Arc::default(),
                provable: None,
            });
            pods.insert(pod.clone());
            pod
        };
        let find = |host: String| pods.find(&Uri::try_from(format!("http://{host}/")).unwrap());
        let (first, second) = (insert(0), insert(1));
        assert_eq!(find(first.host(80)).unwrap().number, 0);
        pods.end(&first);
        assert!(first.gone.is_cancelled() && !second.gone.is_cancelled());
        assert!(find(first.host(80)).is_none() && find(second.host(80)).is_some());
        assert!(find("[::1]:80".into()).is_none());
    }
}
