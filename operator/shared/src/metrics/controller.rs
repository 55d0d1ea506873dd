//! Metrics of the controller: reconciles, starts and the length of its queue.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use crds::conditions::Reason;
use jiff::Timestamp;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;

use super::{DurationFamily, Labels, SECONDS, durations};

/// Sum of fractions.
type FloatCounter = Counter<f64, AtomicU64>;

/// Name of a cluster probe and the runtime class of its Pod.
type ProbeLabels = [(&'static str, String); 2];

/// Reason of a termination that Kubernetes has fixed.
const OOM_KILLED: &str = "OOMKilled";

/// Reasons for which sandboxes fail.
const FAILURES: [Reason; 9] = [
    Reason::CrashLoop,
    Reason::CreateContainerConfigError,
    Reason::ImagePullBackOff,
    Reason::InvalidImageName,
    Reason::InvalidSpec,
    Reason::PoolExhausted,
    Reason::QuotaExceeded,
    Reason::SnapshotUnusable,
    Reason::StartTimeout,
];

role_metrics! {
    /// Metrics of the controller.
    ControllerMetrics:
    reconciles: Family<Labels<1>, Counter> = Family::default(),
        "reconciles", "Reconciles by outcome";
    seconds: Histogram = Histogram::new(SECONDS),
        "reconcile_duration_seconds", "Duration of a reconcile";
    errors: Family<Labels<1>, Counter> = Family::default(),
        "reconcile_errors", "Failed reconciles by error category";
    starts: DurationFamily<1> = durations(),
        "start_duration_seconds",
        "Time from the first event of a created or resumed sandbox until it is ready";
    events: Family<Labels<1>, Counter> = Family::default(),
        "events", "Kubernetes Events by outcome";
    pub sandboxes: Family<Labels<1>, Gauge> = Family::default(),
        "sandboxes", "Sandboxes by phase";
    /// By `reason`.
    pub sandboxes_starting: Family<Labels<1>, Gauge> = Family::default(),
        "sandboxes_starting", "Sandboxes that are not ready yet by reason";
    failures: Family<Labels<1>, Counter> = Family::default(),
        "sandbox_failures", "Sandboxes that failed by reason";
    restarts: Family<Labels<1>, Counter> = Family::default(),
        "sandbox_restarts", "Restarts of commands and replacements of Pods by reason";
    /// Those that no sandbox has claimed.
    pub warm_pods: Family<Labels<1>, Gauge> = Family::default(),
        "warm_pods", "Warm Pods by state";
    claims: Family<Labels<1>, Counter> = Family::default(),
        "claims", "Claims of warm Pods by outcome";
    saves: DurationFamily<2> = durations(),
        "save_duration_seconds",
        "Time from the request of a save before a pause to its end, by what was kept";
    restores: Family<Labels<1>, Counter> = Family::default(),
        "restores", "Starts that restored state, by level";
    /// By `use`: `sandbox` or `warm`.
    pod_seconds: Family<Labels<1>, FloatCounter> = Family::default(),
        "pod_seconds", "Time of Pods on nodes, by use; of the leader";
    cpu_seconds: Family<Labels<1>, FloatCounter> = Family::default(),
        "pod_cpu_core_seconds", "Time times CPU cores that Pods on nodes request, by use; of the leader";
    memory_seconds: Family<Labels<1>, FloatCounter> = Family::default(),
        "pod_memory_byte_seconds", "Time times memory that Pods on nodes request, by use; of the leader";
    snapshots: Family<Labels<1>, Counter> = Family::default(),
        "snapshots", "Snapshots by result";
    image_builds: DurationFamily<1> = durations(),
        "image_build_duration_seconds",
        "Time from the request of a full image build to its end, by result";
    builds_unfinished: Family<Labels<1>, Gauge> = Family::default(),
        "image_builds_unfinished", "Full image builds that have not ended, by state";
    pub queued: Gauge = Gauge::default(),
        "queue_depth", "Keys due in the work queue";
    pub in_progress: Gauge = Gauge::default(),
        "passes_under_way", "Reconciles in progress";
    pub leader: Gauge = Gauge::default(),
        "leader", "1 while this process is the leader";
    /// By `probe` and `runtime_class`.
    cluster_probes: Family<ProbeLabels, Gauge> = Family::default(),
        "cluster_probe_works",
        "1 if a probe has shown that the cluster runs Pods of this kind, 0 if not";
    cluster_probe_times: Family<ProbeLabels, Gauge> = Family::default(),
        "cluster_probe_timestamp_seconds", "Unix time of the last run of a cluster probe";
    /// By `resource`.
    pub watch_age: Family<Labels<1>, Gauge> = Family::default(),
        "watch_age_seconds", "Time since the last response of the API server on a watch";
}

impl ControllerMetrics {
    /// Metrics with the series at 0 whose increase is an alert: Prometheus does not count the first
    /// value of a series as one.
    pub fn with_series() -> Self {
        let metrics = Self::default();
        for reason in FAILURES {
            let label = [("reason", reason.as_str())];
            drop(metrics.failures.get_or_create(&label));
        }
        for outcome in ["dropped_queue_full", "dropped_failed"] {
            drop(metrics.events.get_or_create(&[("outcome", outcome)]));
        }
        drop(metrics.snapshots.get_or_create(&[("result", "failed")]));
        for result in ["succeeded", "failed"] {
            drop(metrics.image_builds.get_or_create(&[("result", result)]));
        }
        metrics
    }

    pub fn record_success(&self, took: Duration) {
        self.record("ok", took);
    }

    /// Records a failed reconcile with the category of its error.
    pub fn record_failure(&self, category: &'static str, took: Duration) {
        self.record("error", took);
        let errors = self.errors.get_or_create(&[("category", category)]);
        errors.inc();
    }

    fn record(&self, outcome: &'static str, took: Duration) {
        let reconciles = self.reconciles.get_or_create(&[("outcome", outcome)]);
        reconciles.inc();
        self.seconds.observe(took.as_secs_f64());
    }

    /// Records a claim: `claimed`, `conflict` for each Pod that was changed or gone, `none_left` if
    /// others were faster, `missed` if a fitting sandbox gets a Pod of its own, `waiting` or `refused`;
    /// and a claimed Pod that is replaced: `other_owner` or `silent`; and whether its prestarted program
    /// serves the sandbox: `prestarted` or `started_anew`.
    pub fn record_claim(&self, outcome: &'static str) {
        self.claims.get_or_create(&[("outcome", outcome)]).inc();
    }

    /// Records a sandbox that became ready: `kind` is `created`, `resumed` or `claimed`.
    pub fn started(&self, kind: &'static str, took: Duration) {
        let starts = self.starts.get_or_create(&[("kind", kind)]);
        starts.observe(took.as_secs_f64());
    }

    /// Records a sandbox that failed for this reason.
    pub fn record_sandbox_failure(&self, reason: Option<Reason>) {
        let reason = reason.map_or("unknown", Reason::as_str);
        self.failures.get_or_create(&[("reason", reason)]).inc();
    }

    /// Records restarts of a sandbox, the last of which had this reason.
    pub fn record_restarts(&self, count: u32, reason: Option<&str>) {
        // Nodes make up the others.
        let reason = match reason {
            Some(OOM_KILLED) => OOM_KILLED,
            _ => "other",
        };
        let restarts = self.restarts.get_or_create(&[("reason", reason)]);
        restarts.inc_by(count.into());
    }

    /// Records a save: the levels of [`PersistenceLevel`](crds::contract::persistence) that were
    /// asked for and kept.
    pub fn record_save(&self, asked: &'static str, kept: &'static str, took: Duration) {
        let saves = self
            .saves
            .get_or_create(&[("asked", asked), ("kept", kept)]);
        saves.observe(took.as_secs_f64());
    }

    /// Records a start that restored state of this level.
    pub fn record_restore(&self, level: &'static str) {
        self.restores.get_or_create(&[("level", level)]).inc();
    }

    /// Adds time of Pods, in seconds, times their number, CPU cores and bytes of memory.
    pub fn record_pod_time(&self, usage: &'static str, pods: f64, cores: f64, bytes: f64) {
        let label = [("use", usage)];
        self.pod_seconds.get_or_create(&label).inc_by(pods);
        self.cpu_seconds.get_or_create(&label).inc_by(cores);
        self.memory_seconds.get_or_create(&label).inc_by(bytes);
    }

    /// Records the end of a snapshot: `ready` or `failed`.
    pub fn record_snapshot(&self, result: &'static str) {
        self.snapshots.get_or_create(&[("result", result)]).inc();
    }

    /// Records the end of a full image build: `succeeded` or `failed`.
    pub fn record_image_build(&self, result: &'static str, took: Duration) {
        let builds = self.image_builds.get_or_create(&[("result", result)]);
        builds.observe(took.as_secs_f64());
    }

    pub fn record_build_queue(&self, waiting: usize, running: usize) {
        for (state, count) in [("waiting", waiting), ("running", running)] {
            let gauge = self.builds_unfinished.get_or_create(&[("state", state)]);
            gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }

    /// Records the result of a cluster probe for Pods of a runtime class.
    pub fn record_cluster_probe(
        &self,
        probe: &'static str,
        runtime_class: Option<&str>,
        works: bool,
        at: Timestamp,
    ) {
        let class = runtime_class.unwrap_or_default().to_owned();
        let labels = [("probe", probe.to_owned()), ("runtime_class", class)];
        let gauge = self.cluster_probes.get_or_create(&labels);
        gauge.set(works.into());
        let gauge = self.cluster_probe_times.get_or_create(&labels);
        gauge.set(at.as_second());
    }

    pub fn event(&self, outcome: &'static str) {
        self.events.get_or_create(&[("outcome", outcome)]).inc();
    }

    pub fn events(&self, outcome: &'static str) -> u64 {
        self.events.get_or_create(&[("outcome", outcome)]).get()
    }
}
