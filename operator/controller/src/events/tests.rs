//! Events of status changes, and the publisher.

use crds::conditions::Reason;
use crds::sandbox::{PauseReason, Phase, Restarts, SandboxStatus};
use k8s_openapi::api::events::v1::Event;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio::time::{advance, timeout};

use super::queue::MAX_PENDING_EVENTS;
use super::*;
use crate::tests::{entry_in, key};
use testing::FakeApi;

fn status(phase: Phase, reason: Option<Reason>) -> SandboxStatus {
    SandboxStatus {
        phase,
        reason,
        ..SandboxStatus::default()
    }
}

/// Reasons of the Events of a sequence of statuses.
fn reasons(statuses: &[SandboxStatus]) -> Vec<String> {
    let steps = statuses.windows(2);
    let all = steps.flat_map(|pair| transition::events_for_change(&pair[0], &pair[1]));
    all.map(|a| a.reason).collect()
}

#[test]
fn successful_start_is_one_event() {
    let starting = status(Phase::Starting, Some(Reason::CreatingPod));
    let running = status(Phase::Running, Some(Reason::Ready));
    let detailed = status(Phase::Starting, Some(Reason::Initializing));
    let pending = status(Phase::Pending, None);
    assert_eq!(
        reasons(&[pending.clone(), starting.clone(), detailed, running.clone()]),
        ["Ready"]
    );
    assert_eq!(reasons(&[pending, running.clone(), running]), ["Ready"]);
}

#[test]
fn pause_event_names_its_reason() {
    let running = status(Phase::Running, Some(Reason::Ready));
    let pausing = status(Phase::Pausing, Some(Reason::Requested));
    let mut paused = status(Phase::Paused, Some(Reason::Requested));
    paused.pause_reason = Some(PauseReason::Idle);
    let starting = status(Phase::Starting, Some(Reason::CreatingPod));
    let all = [
        running.clone(),
        pausing.clone(),
        paused.clone(),
        starting,
        running,
    ];
    assert_eq!(reasons(&all), ["Paused", "Resumed", "Ready"]);
    let note = transition::events_for_change(&pausing, &paused)[0]
        .note
        .clone();
    assert!(note.unwrap().contains("idleTimeout"));
}

#[test]
fn start_problem_is_reported_once() {
    let starting = status(Phase::Starting, Some(Reason::CreatingPod));
    let mut pull = status(Phase::Starting, Some(Reason::ImagePullBackOff));
    pull.message = Some("ErrImagePull: no such image".into());
    let mut again = pull.clone();
    again.message = Some("ImagePullBackOff: back-off".into());
    let mut failed = status(Phase::Failed, Some(Reason::ImagePullBackOff));
    failed.message.clone_from(&again.message);
    let all = [
        starting.clone(),
        pull.clone(),
        again.clone(),
        pull.clone(),
        again,
        failed.clone(),
    ];
    assert_eq!(reasons(&all), ["ImagePullBackOff", "Failed"]);
    let events = transition::events_for_change(&starting, &failed);
    assert!(events[0].warning);
    assert_eq!(
        events[0].note.as_deref(),
        Some("ImagePullBackOff: back-off")
    );
}

#[test]
fn restart_and_pod_replacement_have_distinct_events() {
    let running = status(Phase::Running, Some(Reason::Ready));
    let restarts = |count, reason: &str| Restarts {
        count,
        reasons: vec![reason.into()],
    };
    let mut oom = status(Phase::Starting, Some(Reason::Restarting));
    oom.restarts = restarts(1, "OOMKilled");
    let mut running_again = running.clone();
    running_again.restarts = restarts(1, "OOMKilled");
    assert_eq!(
        reasons(&[running.clone(), oom, running_again.clone()]),
        ["Restarted", "Ready"]
    );
    // No status in between said that it was down.
    assert_eq!(reasons(&[running.clone(), running_again]), ["Restarted"]);

    let mut lost = status(Phase::Starting, Some(Reason::PodReplaced));
    lost.message = Some("the Pod was deleted".into());
    let mut replaced = lost.clone();
    replaced.restarts = restarts(1, "Deleted");
    let mut ready = running.clone();
    ready.restarts = restarts(1, "Deleted");
    assert_eq!(
        reasons(&[running, lost, replaced, ready]),
        ["PodReplaced", "Ready"]
    );
}

#[test]
fn unchanged_status_has_no_event() {
    for phase in [
        Phase::Pending,
        Phase::Starting,
        Phase::Running,
        Phase::Paused,
        Phase::Stopped,
    ] {
        let same = status(phase, Some(Reason::Ready));
        assert!(reasons(&[same.clone(), same]).is_empty());
    }
    assert_eq!(
        reasons(&[status(Phase::Paused, None), status(Phase::Stopped, None)]),
        ["Stopped"]
    );
}

struct EventFixture {
    api: FakeApi,
    publisher: Arc<EventPublisher>,
    metrics: ControllerMetrics,
    task: Option<JoinHandle<()>>,
}

fn event_fixture() -> EventFixture {
    let (api, metrics) = (FakeApi::default(), ControllerMetrics::default());
    let clock = Clock::starting_at(Timestamp::UNIX_EPOCH);
    EventFixture {
        publisher: Arc::new(EventPublisher::new(clock, metrics.clone())),
        api,
        metrics,
        task: None,
    }
}

fn entry(name: &str, phase: Phase) -> Entry {
    Entry {
        key: key(name),
        uid: format!("uid-{name}"),
        ..entry_in(phase)
    }
}

impl EventFixture {
    fn write(&mut self) {
        let run = self.publisher.clone().run(self.api.client(), "me".into());
        self.task = Some(tokio::spawn(run));
    }

    /// Publishes that a sandbox has become ready.
    fn ready(&self, name: &str) {
        let (before, after) = (entry(name, Phase::Starting), entry(name, Phase::Running));
        self.publisher.publish_changes(&before, &after);
    }

    async fn written(&self) -> Vec<Event> {
        self.publisher.wait_flushed().await;
        let objects = self.api.objects();
        let events = objects
            .into_iter()
            .map(|o| serde_json::from_value(o).unwrap());
        events.collect()
    }
}

#[tokio::test(start_paused = true)]
async fn event_has_required_fields() {
    let mut fixture = event_fixture();
    fixture.write();
    fixture.ready("a");
    let events = fixture.written().await;
    let event = &events[0];
    let regarding = event.regarding.clone().unwrap();
    assert_eq!(regarding.kind.as_deref(), Some("Sandbox"));
    assert_eq!(regarding.uid.as_deref(), Some("uid-a"));
    assert_eq!(event.metadata.namespace.as_deref(), Some("ns"));
    assert_eq!(event.reason.as_deref(), Some("Ready"));
    assert_eq!(event.type_.as_deref(), Some("Normal"));
    assert_eq!(event.reporting_instance.as_deref(), Some("me"));
    assert!(event.event_time.is_some() && event.action.is_some() && event.series.is_none());
}

#[tokio::test(start_paused = true)]
async fn equal_events_within_ten_minutes_form_a_series() {
    let mut fixture = event_fixture();
    fixture.write();
    for _ in 0..3 {
        fixture.ready("a");
        fixture.written().await;
        advance(Duration::from_mins(2)).await;
    }
    let events = fixture.written().await;
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].series.as_ref().map(|s| s.count), Some(3));
    fixture.ready("b");
    advance(Duration::from_mins(11)).await;
    fixture.ready("a");
    assert_eq!(fixture.written().await.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn flapping_sandbox_is_rate_limited() {
    let mut fixture = event_fixture();
    fixture.write();
    for _ in 0..1000 {
        fixture.ready("a");
    }
    fixture.written().await;
    assert_eq!(fixture.metrics.events("written"), 10);
    assert_eq!(fixture.metrics.events("dropped_object_rate"), 990);
}

#[tokio::test(start_paused = true)]
async fn full_queue_drops_oldest_normal_event() {
    let mut fixture = event_fixture();
    let (before, after) = (entry("w", Phase::Starting), entry("w", Phase::Failed));
    fixture.publisher.publish_changes(&before, &after);
    for n in 0..MAX_PENDING_EVENTS + 5 {
        fixture.ready(&n.to_string());
    }
    assert_eq!(fixture.metrics.events("dropped_queue_full"), 6);
    fixture.write();
    let events = fixture.written().await;
    assert_eq!(events.len(), MAX_PENDING_EVENTS);
    assert!(events.iter().any(|e| e.reason.as_deref() == Some("Failed")));
}

#[tokio::test(start_paused = true)]
async fn event_writes_are_rate_limited() {
    let mut fixture = event_fixture();
    fixture.write();
    let began = Instant::now();
    for n in 0..450 {
        fixture.ready(&n.to_string());
    }
    assert_eq!(fixture.written().await.len(), 450);
    let took = began.elapsed().as_secs_f64();
    assert!((19.9..=20.2).contains(&took), "{took}");
}

#[tokio::test(start_paused = true)]
async fn event_is_dropped_after_failed_attempts() {
    let mut fixture = event_fixture();
    fixture.write();
    fixture.api.set_unavailable(true);
    fixture.ready("a");
    let limit = Duration::from_secs(5);
    timeout(limit, fixture.publisher.wait_flushed())
        .await
        .unwrap();
    assert_eq!(fixture.metrics.events("dropped_failed"), 1);
    fixture.api.set_unavailable(false);
    fixture.ready("a");
    assert_eq!(fixture.written().await.len(), 1);
}
