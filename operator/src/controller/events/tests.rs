//! Which events there are, and how they are written.

use crds::conditions::Reason;
use crds::sandbox::{PauseReason, Phase, Restarts, SandboxStatus};
use k8s_openapi::api::events::v1::Event;
use serde_json::json;
use tokio::task::JoinHandle;
use tokio::time::{advance, timeout};

use super::*;
use crate::keys::Keys;
use crate::kubernetes::fake::FakeApi;

fn status(phase: Phase, reason: Option<Reason>) -> SandboxStatus {
    SandboxStatus {
        phase,
        reason,
        ..SandboxStatus::default()
    }
}

/// Reasons of the events of a life.
fn life(statuses: &[SandboxStatus]) -> Vec<&'static str> {
    let steps = statuses.windows(2);
    let all = steps.flat_map(|pair| transition::announcements(&pair[0], &pair[1]));
    all.map(|a| a.reason).collect()
}

#[test]
fn a_start_that_goes_well_is_one_event() {
    let starting = status(Phase::Starting, Some(Reason::CreatingPod));
    let running = status(Phase::Running, Some(Reason::Ready));
    let detailed = status(Phase::Starting, Some(Reason::Initializing));
    let pending = status(Phase::Pending, None);
    assert_eq!(
        life(&[pending.clone(), starting.clone(), detailed, running.clone()]),
        ["Ready"]
    );
    assert_eq!(life(&[pending, running.clone(), running]), ["Ready"]);
}

#[test]
fn pause_and_resume_say_why() {
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
    assert_eq!(life(&all), ["Paused", "Resumed", "Ready"]);
    let note = transition::announcements(&pausing, &paused)[0].note.clone();
    assert!(note.unwrap().contains("idle timeout"));
}

#[test]
fn trouble_is_said_when_it_begins_and_not_again() {
    let starting = status(Phase::Starting, Some(Reason::CreatingPod));
    let mut pull = status(Phase::Starting, Some(Reason::ImagePull));
    pull.message = Some("ErrImagePull: no such image".into());
    let mut again = pull.clone();
    again.message = Some("ImagePullBackOff: back-off".into());
    let mut failed = status(Phase::Failed, Some(Reason::ImagePull));
    failed.message.clone_from(&again.message);
    let all = [
        starting.clone(),
        pull.clone(),
        again.clone(),
        pull.clone(),
        again,
        failed.clone(),
    ];
    assert_eq!(life(&all), ["ImagePull", "Failed"]);
    let said = transition::announcements(&starting, &failed);
    assert!(said[0].warning);
    assert_eq!(
        said[0].note.as_deref(),
        Some("ImagePull: ImagePullBackOff: back-off")
    );
}

#[test]
fn restarts_and_lost_pods_are_told_apart() {
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
        life(&[running.clone(), oom, running_again.clone()]),
        ["Restarted", "Ready"]
    );
    // So quick that no status said it was down.
    assert_eq!(life(&[running.clone(), running_again]), ["Restarted"]);

    let mut lost = status(Phase::Starting, Some(Reason::PodReplaced));
    lost.message = Some("the Pod was deleted".into());
    let mut replaced = lost.clone();
    replaced.restarts = restarts(1, "Deleted");
    let mut ready = running.clone();
    ready.restarts = restarts(1, "Deleted");
    assert_eq!(
        life(&[running, lost, replaced, ready]),
        ["PodReplaced", "Ready"]
    );
}

#[test]
fn nothing_is_said_when_nothing_changes() {
    for phase in [
        Phase::Pending,
        Phase::Starting,
        Phase::Running,
        Phase::Paused,
        Phase::Stopped,
    ] {
        let same = status(phase, Some(Reason::Ready));
        assert!(life(&[same.clone(), same]).is_empty());
    }
    assert_eq!(
        life(&[status(Phase::Paused, None), status(Phase::Stopped, None)]),
        ["Stopped"]
    );
}

struct Stage {
    api: FakeApi,
    announcer: Arc<Announcer>,
    metrics: PassMetrics,
    task: Option<JoinHandle<()>>,
}

fn stage() -> Stage {
    let (api, metrics) = (FakeApi::default(), PassMetrics::default());
    let clock = Clock::starting_at(Timestamp::UNIX_EPOCH);
    Stage {
        announcer: Arc::new(Announcer::new(clock, metrics.clone())),
        api,
        metrics,
        task: None,
    }
}

fn entry(name: &str, phase: Phase) -> Entry {
    let sandbox = json!({
        "apiVersion": "openhands.dev/v1alpha1", "kind": "Sandbox", "spec": {},
        "metadata": {"namespace": "ns", "name": name, "uid": format!("uid-{name}"),
            "resourceVersion": "1"},
        "status": {"phase": phase},
    });
    let keys = Keys::derive(&[1; 32]).unwrap();
    Entry::read(&serde_json::from_value(sandbox).unwrap(), &keys).unwrap()
}

impl Stage {
    fn write(&mut self) {
        let run = self.announcer.clone().run(self.api.client(), "me".into());
        self.task = Some(tokio::spawn(run));
    }

    /// Announces that a sandbox has become ready.
    fn ready(&self, name: &str) {
        let (before, after) = (entry(name, Phase::Starting), entry(name, Phase::Running));
        self.announcer.announce(&before, &after);
    }

    async fn written(&self) -> Vec<Event> {
        self.announcer.flushed().await;
        let objects = self.api.objects();
        let events = objects
            .into_iter()
            .map(|o| serde_json::from_value(o).unwrap());
        events.collect()
    }
}

#[tokio::test(start_paused = true)]
async fn an_event_has_what_the_api_server_asks_for() {
    let mut stage = stage();
    stage.write();
    stage.ready("a");
    let events = stage.written().await;
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
async fn the_same_within_ten_minutes_is_counted_and_not_repeated() {
    let mut stage = stage();
    stage.write();
    for _ in 0..3 {
        stage.ready("a");
        stage.written().await;
        advance(Duration::from_mins(2)).await;
    }
    let events = stage.written().await;
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].series.as_ref().map(|s| s.count), Some(3));
    stage.ready("b");
    advance(Duration::from_mins(11)).await;
    stage.ready("a");
    assert_eq!(stage.written().await.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_that_flaps_gets_few_events() {
    let mut stage = stage();
    stage.write();
    for _ in 0..1000 {
        stage.ready("a");
    }
    stage.written().await;
    assert_eq!(stage.metrics.events("written"), 10);
    assert_eq!(stage.metrics.events("dropped_object_rate"), 990);
}

#[tokio::test(start_paused = true)]
async fn the_oldest_makes_room_but_warnings_stay() {
    let mut stage = stage();
    let (before, after) = (entry("w", Phase::Starting), entry("w", Phase::Failed));
    stage.announcer.announce(&before, &after);
    for n in 0..WAITING + 5 {
        stage.ready(&n.to_string());
    }
    assert_eq!(stage.metrics.events("dropped_queue_full"), 6);
    stage.write();
    let events = stage.written().await;
    assert_eq!(events.len(), WAITING);
    assert!(events.iter().any(|e| e.reason.as_deref() == Some("Failed")));
}

#[tokio::test(start_paused = true)]
async fn events_are_written_at_a_steady_pace() {
    let mut stage = stage();
    stage.write();
    let began = Instant::now();
    for n in 0..450 {
        stage.ready(&n.to_string());
    }
    assert_eq!(stage.written().await.len(), 450);
    let took = began.elapsed().as_secs_f64();
    assert!((19.9..=20.2).contains(&took), "{took}");
}

#[tokio::test(start_paused = true)]
async fn an_event_that_cannot_be_written_is_dropped_after_a_while() {
    let mut stage = stage();
    stage.write();
    stage.api.set_away(true);
    stage.ready("a");
    let limit = Duration::from_secs(5);
    timeout(limit, stage.announcer.flushed()).await.unwrap();
    assert_eq!(stage.metrics.events("dropped_failed"), 1);
    stage.api.set_away(false);
    stage.ready("a");
    assert_eq!(stage.written().await.len(), 1);
}
