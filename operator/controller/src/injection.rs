//! Injection of the executor into new Pods. With `Auto`, the leader probes once whether Pods can
//! mount its image, and until then Pods copy it, so that no start waits for the probe
//! (`docs/decisions/110-probe-image-volumes.md`).

use std::sync::atomic::{AtomicBool, Ordering};

use crate::config::Injection;
use crate::facts::PodFacts;

/// The choice between image volume and init container. It holds as long as the process.
#[derive(Debug)]
pub(crate) struct ExecutorInjection {
    configured: Injection,
    /// The probe has run the executor from an image volume.
    is_proven: AtomicBool,
    /// A node could not mount the image into a Pod of a sandbox.
    has_failed: AtomicBool,
}

impl ExecutorInjection {
    pub(crate) fn new(configured: Injection) -> Self {
        Self {
            configured,
            is_proven: AtomicBool::new(false),
            has_failed: AtomicBool::new(false),
        }
    }

    /// Injection into a new Pod; `Auto`: image volumes are known to work.
    pub(crate) fn current(&self) -> Injection {
        let works =
            self.is_proven.load(Ordering::Relaxed) && !self.has_failed.load(Ordering::Relaxed);
        match self.configured {
            Injection::Auto if !works => Injection::InitContainer,
            configured => configured,
        }
    }

    /// Begins the use of image volumes.
    pub(crate) fn record_proof(&self) {
        self.is_proven.store(true, Ordering::Relaxed);
    }

    /// Ends the use of image volumes after a Pod that could not mount the image: a Pod is built
    /// before its node is known, so one node without them is enough.
    pub(crate) fn record_pod(&self, pod: &PodFacts) {
        let Some(message) = pod.mount_failure() else {
            return;
        };
        if !self.has_failed.swap(true, Ordering::Relaxed) {
            let (pod, node) = (&pod.name, pod.node.as_deref());
            tracing::warn!(
                pod,
                node,
                message,
                "a node cannot mount the executor image; new Pods copy the executor"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::NOT_MOUNTED;

    #[test]
    fn image_volumes_need_a_proof_and_no_failure() {
        let injection = ExecutorInjection::new(Injection::Auto);
        assert_eq!(injection.current(), Injection::InitContainer);
        injection.record_proof();
        assert_eq!(injection.current(), Injection::Auto);
        injection.record_pod(&PodFacts::default());
        assert_eq!(injection.current(), Injection::Auto);
        injection.record_pod(&PodFacts {
            reason: Some(NOT_MOUNTED.into()),
            message: Some("no such file".into()),
            ..PodFacts::default()
        });
        assert_eq!(injection.current(), Injection::InitContainer);
    }
}
