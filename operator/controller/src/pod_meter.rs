//! Meter of Pods and of the CPU and memory that they request, from which costs follow. It counts what
//! is on a node, while this process leads, so that the counters of all processes together are right.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use shared::kubernetes::slim::SlimPod;
use shared::metrics::ControllerMetrics;
use shared::quantity::whole;
use tokio::time::Instant;

/// Use of a Pod, a label of metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PodUse {
    /// A sandbox has it.
    Sandbox,
    /// It is warm.
    Warm,
}

const USES: [(PodUse, &str); 2] = [(PodUse::Sandbox, "sandbox"), (PodUse::Warm, "warm")];

/// Sums over all Pods on nodes.
#[derive(Debug)]
pub(crate) struct PodMeter {
    metrics: ControllerMetrics,
    state: Mutex<MeterState>,
}

#[derive(Debug, Default)]
struct MeterState {
    /// By use. All are whole numbers, so that sums are exact.
    present: [Amounts; USES.len()],
    /// Amounts times seconds that the metrics do not have yet.
    pending: [Amounts; USES.len()],
    /// End of the time that is counted; `None` while this process does not lead.
    counted_until: Option<Instant>,
}

/// Number of Pods and what they request.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Amounts {
    pods: f64,
    millicores: f64,
    bytes: f64,
}

/// A Pod that is counted until this is dropped.
#[derive(Debug)]
pub(crate) struct MeteredPod {
    meter: Arc<PodMeter>,
    usage: PodUse,
    amounts: Amounts,
}

impl PodMeter {
    pub(crate) fn new(metrics: ControllerMetrics) -> Arc<Self> {
        Arc::new(Self {
            metrics,
            state: Mutex::default(),
        })
    }

    /// Counts a Pod, if it is on a node and has not ended.
    pub(crate) fn track(self: &Arc<Self>, usage: PodUse, pod: &SlimPod) -> Option<MeteredPod> {
        let has_ended = matches!(pod.status.phase.as_deref(), Some("Succeeded" | "Failed"));
        if pod.spec.node_name.is_none() || has_ended {
            return None;
        }
        let amounts = Amounts::of(pod);
        self.state.lock().change(usage, amounts, 1.0);
        Some(MeteredPod {
            meter: self.clone(),
            usage,
            amounts,
        })
    }

    /// Counts from now on: this process leads.
    pub(crate) fn begin(&self) {
        self.state.lock().counted_until = Some(Instant::now());
    }

    /// Counts up to now, and no longer.
    pub(crate) fn end(&self) {
        self.publish();
        self.state.lock().counted_until = None;
    }

    /// Adds what is pending to the metrics.
    pub(crate) fn publish(&self) {
        let mut state = self.state.lock();
        if state.counted_until.is_none() {
            return;
        }
        state.settle();
        for ((_, name), pending) in USES.iter().zip(std::mem::take(&mut state.pending)) {
            let cores = pending.millicores / 1000.0;
            self.metrics
                .record_pod_time(name, pending.pods, cores, pending.bytes);
        }
    }
}

impl MeterState {
    fn change(&mut self, usage: PodUse, by: Amounts, factor: f64) {
        self.settle();
        self.present[usage as usize].add(by, factor);
    }

    /// Counts the time since the last change.
    fn settle(&mut self) {
        let Some(until) = &mut self.counted_until else {
            return;
        };
        let now = Instant::now();
        let passed: Duration = now.saturating_duration_since(*until);
        *until = now;
        for (pending, present) in self.pending.iter_mut().zip(self.present) {
            pending.add(present, passed.as_secs_f64());
        }
    }
}

impl Amounts {
    fn of(pod: &SlimPod) -> Self {
        let requests = || {
            let containers = pod.spec.containers.iter();
            containers.filter_map(|container| container.resources.requests.as_ref())
        };
        let sum = |name: &str, parts| {
            let amounts = requests().filter_map(|all| whole(&all.get(name)?.0, parts));
            // Below 2^53, as `whole` ensures for each.
            #[expect(
                clippy::cast_precision_loss,
                reason = "requests of one Pod are smaller"
            )]
            let sum = amounts.fold(0_u64, u64::saturating_add) as f64;
            sum
        };
        Self {
            pods: 1.0,
            millicores: sum("cpu", 1000.0),
            bytes: sum("memory", 1.0),
        }
    }

    fn add(&mut self, other: Self, factor: f64) {
        self.pods += other.pods * factor;
        self.millicores += other.millicores * factor;
        self.bytes += other.bytes * factor;
    }
}

impl Drop for MeteredPod {
    fn drop(&mut self) {
        self.meter
            .state
            .lock()
            .change(self.usage, self.amounts, -1.0);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use shared::metrics::Metrics;
    use tokio::time::advance;

    use super::*;

    const HOUR: Duration = Duration::from_hours(1);

    fn pod(node: Option<&str>, phase: &str) -> SlimPod {
        let container =
            |cpu, memory| json!({"resources": {"requests": {"cpu": cpu, "memory": memory}}});
        serde_json::from_value(json!({
            "spec": {"nodeName": node, "containers": [container("250m", "1Gi"), container("1", "1Gi")]},
            "status": {"phase": phase},
        }))
        .unwrap()
    }

    /// Lines of the metrics with this use.
    fn counted(meter: &PodMeter, usage: &str) -> Vec<f64> {
        meter.publish();
        let metrics = Metrics::default();
        metrics.add(|registry| meter.metrics.register(registry));
        let text = metrics.encode().unwrap();
        let label = format!("_total{{use=\"{usage}\"}} ");
        let numbers = text.lines().filter_map(|line| line.split_once(&label));
        numbers.map(|(_, number)| number.parse().unwrap()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn pods_are_counted_while_they_are_on_a_node_and_the_process_leads() {
        let meter = PodMeter::new(ControllerMetrics::default());
        let track = |usage, node, phase| meter.track(usage, &pod(node, phase));
        let sandbox = track(PodUse::Sandbox, Some("n"), "Running");
        assert!(track(PodUse::Sandbox, None, "Pending").is_none());
        assert!(track(PodUse::Sandbox, Some("n"), "Failed").is_none());
        advance(HOUR).await;
        assert_eq!(counted(&meter, "sandbox"), [0.0; 0], "it does not lead yet");
        meter.begin();
        let warm = [0; 2].map(|_| track(PodUse::Warm, Some("n"), "Running"));
        advance(HOUR).await;
        drop(warm);
        advance(HOUR).await;
        let gibibyte_hours = |hours: f64| hours * 3600.0 * f64::from(1 << 30);
        let of_sandbox = [7200.0, 1.25 * 7200.0, gibibyte_hours(4.0)];
        assert_eq!(counted(&meter, "sandbox"), of_sandbox);
        let of_warm = [7200.0, 1.25 * 7200.0, gibibyte_hours(4.0)];
        assert_eq!(counted(&meter, "warm"), of_warm);
        meter.end();
        advance(HOUR).await;
        drop(sandbox);
        assert_eq!(counted(&meter, "sandbox"), of_sandbox, "it leads no longer");
    }
}
