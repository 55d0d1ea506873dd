//! Events of status changes, and the publisher.

use crds::conditions::Reason;
use crds::contract::persistence::PersistenceLevel;
use crds::sandbox::{PauseReason, Phase, Restarts, RestoredState, SandboxStatus};
use crds::snapshot::{SandboxSnapshotStatus, SnapshotPhase};
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

fn running() -> SandboxStatus {
    status(Phase::Running, Some(Reason::Ready))
}

fn starting(reason: Reason) -> SandboxStatus {
    status(Phase::Starting, Some(reason))
}

/// Reasons of the Events of a sequence of statuses.
fn reasons<const N: usize>(statuses: [&SandboxStatus; N]) -> Vec<String> {
    let steps = statuses.windows(2);
    let all = steps.flat_map(|pair| transition::events_for_change(pair[0], pair[1]));
    all.map(|a| a.reason).collect()
}

#[test]
fn successful_start_is_one_event() {
    let (pending, running) = (status(Phase::Pending, None), running());
    let (created, detailed) = (
        starting(Reason::CreatingPod),
        starting(Reason::Initializing),
    );
    assert_eq!(
        reasons([&pending, &created, &detailed, &running]),
        ["Ready"]
    );
    assert_eq!(reasons([&pending, &running, &running]), ["Ready"]);
}

#[test]
fn pause_event_names_its_reason() {
    let pausing = status(Phase::Pausing, Some(Reason::Requested));
    let mut paused = status(Phase::Paused, Some(Reason::Requested));
    paused.pause_reason = Some(PauseReason::Idle);
    let (running, created) = (running(), starting(Reason::CreatingPod));
    let all = reasons([&running, &pausing, &paused, &paused, &created, &running]);
    assert_eq!(all, ["Paused", "Resumed", "Ready"]);
    let events = transition::events_for_change(&pausing, &paused);
    assert!(events[0].note.as_ref().unwrap().contains("idleTimeout"));
    let stopped = status(Phase::Stopped, None);
    assert_eq!(
        reasons([&status(Phase::Paused, None), &stopped, &stopped]),
        ["Stopped"]
    );
}

#[test]
fn start_after_a_pause_says_what_came_back() {
    let restored = |level, reason: Option<&str>| {
        let restored = RestoredState {
            level,
            at: None,
            reason: reason.map(Into::into),
        };
        SandboxStatus {
            restored: Some(restored),
            incarnation: 2,
            ..running()
        }
    };
    let starting = starting(Reason::Initializing);
    let all = restored(PersistenceLevel::Memory, None);
    let events = transition::events_for_change(&starting, &all);
    let note = "the sandbox is ready; all changed files came back, and the processes went on; \
        incarnation 2";
    assert_eq!(events[0].note.as_deref(), Some(note));
    assert_eq!(events.len(), 1);
    let less = restored(PersistenceLevel::Root, Some("the image differs"));
    assert_eq!(
        reasons([&starting, &less, &less]),
        ["Ready", "LessRestored"]
    );
    let events = transition::events_for_change(&starting, &less);
    let note = "all changed files came back; not more because the image differs";
    assert!(events[1].warning);
    assert_eq!(events[1].note.as_deref(), Some(note));
}

#[test]
fn snapshot_says_how_it_has_ended() {
    let status = |phase, message: Option<&str>| SandboxSnapshotStatus {
        phase,
        level: Some(PersistenceLevel::Root),
        message: message.map(Into::into),
        ..SandboxSnapshotStatus::default()
    };
    let pending = status(SnapshotPhase::Pending, Some("the sandbox starts"));
    let less = status(SnapshotPhase::Ready, Some("the processes cannot be saved"));
    let failed = status(SnapshotPhase::Failed, Some("no space is left"));
    let of = snapshot_transition::event_for_snapshot_change;
    let note = |event: Option<EventContent>| event.map(|it| (it.warning, it.note.unwrap()));
    let kept = "the snapshot has the state of level Root; the processes cannot be saved";
    assert_eq!(note(of(pending.phase, &less)), Some((false, kept.into())));
    assert_eq!(
        note(of(pending.phase, &failed)),
        Some((true, "no space is left".into()))
    );
    assert_eq!(
        (of(pending.phase, &pending), of(less.phase, &less)),
        (None, None)
    );
}

#[test]
fn start_problem_is_reported_once() {
    let with_message = |phase, message: &str| SandboxStatus {
        message: Some(message.into()),
        ..status(phase, Some(Reason::ImagePullBackOff))
    };
    let created = starting(Reason::CreatingPod);
    let pull = with_message(Phase::Starting, "ErrImagePull: no such image");
    let again = with_message(Phase::Starting, "ImagePullBackOff: back-off");
    let failed = with_message(Phase::Failed, "ImagePullBackOff: back-off");
    let all = reasons([&created, &pull, &again, &pull, &again, &failed]);
    assert_eq!(all, ["ImagePullBackOff", "Failed"]);
    let events = transition::events_for_change(&created, &failed);
    assert!(events[0].warning);
    assert_eq!(events[0].note, failed.message);
}

#[test]
fn restart_and_pod_replacement_have_distinct_events() {
    let restarted = |status: &SandboxStatus, reason: &str| SandboxStatus {
        restarts: Restarts {
            count: 1,
            reasons: vec![reason.into()],
        },
        ..status.clone()
    };
    let running = running();
    let oom = restarted(&starting(Reason::Restarting), "OOMKilled");
    let again = restarted(&running, "OOMKilled");
    assert_eq!(reasons([&running, &oom, &again]), ["Restarted", "Ready"]);
    // No status in between said that it was down.
    assert_eq!(reasons([&running, &again]), ["Restarted"]);

    let mut lost = starting(Reason::PodReplaced);
    lost.message = Some("the Pod was deleted".into());
    let replaced = restarted(&lost, "Deleted");
    let ready = restarted(&running, "Deleted");
    let all = reasons([&running, &lost, &replaced, &ready]);
    assert_eq!(all, ["PodReplaced", "Ready"]);
}

/// A publisher, and the API server that it writes to from `write` on.
struct EventFixture {
    api: FakeApi,
    publisher: Arc<EventPublisher>,
    metrics: ControllerMetrics,
    task: Option<JoinHandle<()>>,
}

fn silent_publisher() -> EventFixture {
    let metrics = ControllerMetrics::default();
    let clock = Clock::starting_at(Timestamp::UNIX_EPOCH);
    EventFixture {
        publisher: Arc::new(EventPublisher::new(clock, metrics.clone())),
        api: FakeApi::default(),
        metrics,
        task: None,
    }
}

fn writing_publisher() -> EventFixture {
    let mut fixture = silent_publisher();
    fixture.write();
    fixture
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
        let objects = self.api.objects().into_iter();
        objects
            .map(|o| serde_json::from_value(o).unwrap())
            .collect()
    }
}

#[tokio::test(start_paused = true)]
async fn event_has_required_fields() {
    let fixture = writing_publisher();
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
    let fixture = writing_publisher();
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
    let fixture = writing_publisher();
    for _ in 0..1000 {
        fixture.ready("a");
    }
    fixture.written().await;
    assert_eq!(fixture.metrics.events("written"), 10);
    assert_eq!(fixture.metrics.events("dropped_object_rate"), 990);
}

#[tokio::test(start_paused = true)]
async fn full_queue_drops_oldest_normal_event() {
    let mut fixture = silent_publisher();
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
    let fixture = writing_publisher();
    let began = Instant::now();
    for n in 0..125 {
        fixture.ready(&n.to_string());
    }
    assert_eq!(fixture.written().await.len(), 125);
    let took = began.elapsed().as_secs_f64();
    assert!((19.9..=20.3).contains(&took), "{took}");
}

#[tokio::test(start_paused = true)]
async fn event_is_dropped_after_failed_attempts() {
    let fixture = writing_publisher();
    fixture.api.set_unavailable(true);
    fixture.ready("a");
    let flushed = timeout(Duration::from_secs(5), fixture.publisher.wait_flushed());
    flushed.await.unwrap();
    assert_eq!(fixture.metrics.events("dropped_failed"), 1);
    fixture.api.set_unavailable(false);
    fixture.ready("a");
    assert_eq!(fixture.written().await.len(), 1);
}
