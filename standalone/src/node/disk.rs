//! Disk limits: evicts Pods that use more of the disk than they may, as the kubelet does.
//!
//! Directories have no size limit on most file systems, so their contents are measured from time to
//! time. A program can exceed its limit for as long as a round takes.

mod limits;
mod measure;
mod shortage;
mod usage;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use self::measure::Measurement;
use self::shortage::shortage;
pub(crate) use self::usage::usage;
use super::Node;

/// Time between two looks at the free space, which cost next to nothing.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Pause after a round, as a multiple of its length: rounds take at most a fiftieth of the time.
const PAUSE_FACTOR: u32 = 49;

/// A Pod and where to send the message of its eviction.
type MeasuredPod = (Arc<Pod>, oneshot::Sender<String>);

/// Pods to measure, by uid.
#[derive(Debug, Default)]
pub(crate) struct MeasuredPods(Mutex<BTreeMap<String, MeasuredPod>>);

impl MeasuredPods {
    /// Measures a Pod until the receiver is dropped, which gets the message of an eviction.
    pub(crate) fn add(&self, uid: &str, pod: &Arc<Pod>) -> oneshot::Receiver<String> {
        let (evict, evicted) = oneshot::channel();
        let measured = (Arc::clone(pod), evict);
        self.0.lock().insert(uid.to_owned(), measured);
        evicted
    }

    fn current(&self) -> Vec<(String, Arc<Pod>)> {
        let mut pods = self.0.lock();
        pods.retain(|_, (_, evict)| !evict.is_closed());
        let pods = pods.iter();
        pods.map(|(uid, (pod, _))| (uid.clone(), Arc::clone(pod)))
            .collect()
    }

    fn evict(&self, uid: &str, message: String) {
        if let Some((pod, evict)) = self.0.lock().remove(uid) {
            let pod = pod.metadata.name.as_deref();
            tracing::warn!(pod, reason = message, "Pod evicted");
            // A Pod that has ended meanwhile needs no eviction.
            let _ = evict.send(message);
        }
    }
}

/// Measures and evicts Pods until `shutdown`, one round after the other.
pub(crate) async fn enforce(node: Arc<Node>, shutdown: CancellationToken) {
    let mut measurement = Measurement::new(shutdown.clone());
    while !shutdown.is_cancelled() {
        let (begin, measured) = (Instant::now(), Arc::clone(&node));
        let round = move || {
            let was_short = measurement.round(&measured);
            (measurement, was_short)
        };
        let Ok((next, was_short)) = tokio::task::spawn_blocking(round).await else {
            return tracing::error!("a round failed, disk limits are no longer enforced");
        };
        measurement = next;
        let interval = node.config.disk_interval;
        let pause = interval.max(begin.elapsed() * PAUSE_FACTOR);
        let filled = async {
            // After an eviction from a full disk, its space is awaited.
            let first_look = if was_short { interval } else { LOOK_INTERVAL };
            sleep(first_look).await;
            while shortage(&node.paths.pods()).is_none() {
                sleep(LOOK_INTERVAL).await;
            }
        };
        let pause = timeout(pause, filled);
        let _ = shutdown.run_until_cancelled(pause).await;
    }
}
