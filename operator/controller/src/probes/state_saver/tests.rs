//! Saves by fake supervisors, in virtual time.

use std::collections::VecDeque;

use crds::contract::control::ReadyReport;
use crds::contract::persistence::{MAX_REASON_BYTES, SaveLimits, SnapshotReport};
use futures::future::BoxFuture;

use super::*;
use crate::tests::{key, keys};

type Report = Result<SaveReport, SupervisorError>;

/// Supervisor that gives one scripted response after the other, and none after the last.
#[derive(Debug, Default)]
struct ScriptedSaves(Mutex<VecDeque<Report>>);

impl Supervisors for ScriptedSaves {
    fn init<'a>(
        &'a self,
        _: &'a SupervisorAddress,
        _: String,
    ) -> BoxFuture<'a, Result<(), SupervisorError>> {
        Box::pin(std::future::ready(Err(SupervisorError::Timeout)))
    }

    fn ready<'a>(
        &'a self,
        _: &'a SupervisorAddress,
        _: String,
        _: Duration,
    ) -> BoxFuture<'a, Result<ReadyReport, SupervisorError>> {
        Box::pin(std::future::ready(Err(SupervisorError::Timeout)))
    }

    fn save<'a>(
        &'a self,
        _: &'a SupervisorAddress,
        _: String,
        wait: Duration,
    ) -> BoxFuture<'a, Report> {
        Box::pin(async move {
            let scripted = self.0.lock().pop_front();
            if let Some(report) = scripted {
                return report;
            }
            sleep(wait).await;
            Err(SupervisorError::Timeout)
        })
    }

    fn snapshot<'a>(
        &'a self,
        _: &'a SupervisorAddress,
        _: String,
        _: Duration,
    ) -> BoxFuture<'a, Result<SnapshotReport, SupervisorError>> {
        Box::pin(std::future::ready(Err(SupervisorError::Timeout)))
    }

    fn accepts_connections<'a>(&'a self, _: &'a str, _: u16) -> BoxFuture<'a, bool> {
        Box::pin(std::future::ready(false))
    }

    fn server_idle_time<'a>(&'a self, _: &'a str, _: u16) -> BoxFuture<'a, Option<Duration>> {
        Box::pin(std::future::ready(None))
    }
}

fn target(level: PersistenceLevel, root: RootMechanism) -> SaveTarget {
    SaveTarget {
        run: ContainerRun {
            pod_uid: "pod".into(),
            restarts: 0,
            node_silent: false,
        },
        address: SupervisorAddress {
            ip: "10.0.0.1".into(),
            identity: None,
        },
        created_at: None,
        persistence: PodPersistence {
            level,
            root,
            limits: SaveLimits {
                bytes: 1,
                files: 1,
                seconds: 30,
            },
            withheld: Vec::new(),
        },
        request: SaveRequest {
            image: "sha256:1".into(),
            stop_seconds: 10,
        },
    }
}

fn done(kept: KeptState) -> SaveReport {
    SaveReport {
        state: SaveState::Done,
        kept: Some(kept),
    }
}

/// Result of a save with these responses, and the time that it took.
async fn result_of(
    script: impl IntoIterator<Item = Report>,
    target: SaveTarget,
) -> (Option<KeptState>, Duration) {
    let (supervisors, queue) = (Arc::new(ScriptedSaves::default()), Arc::default());
    supervisors.0.lock().extend(script);
    let queue: Arc<WorkQueue<Key>> = queue;
    queue.open();
    let metrics = ControllerMetrics::default();
    let (keys, clock) = (Arc::new(keys()), Clock::wall());
    let saver = StateSaver::new(supervisors, keys, clock, queue.clone(), metrics);
    let saver = Arc::new(saver);
    let (begin, run) = (Instant::now(), target.run.clone());
    saver.ensure_saving(&key("a"), target.clone());
    assert_eq!(saver.progress(&key("a"), &run), Some(SaveProgress::Saving));
    queue.next().await;
    // A second call begins no second save.
    saver.ensure_saving(&key("a"), target);
    let Some(SaveProgress::Done(kept, _)) = saver.progress(&key("a"), &run) else {
        panic!("not done");
    };
    saver.forget(&key("a"));
    assert_eq!(saver.progress(&key("a"), &run), None);
    (kept, begin.elapsed())
}

#[tokio::test(start_paused = true)]
async fn save_waits_for_its_end_and_repeats_failed_calls() {
    let saving = Ok(SaveReport {
        state: SaveState::Saving,
        kept: None,
    });
    let kept = KeptState {
        bytes: Some(5),
        ..KeptState::of(PersistenceLevel::Root)
    };
    let script = [
        Err(SupervisorError::Timeout),
        saving,
        Ok(done(kept.clone())),
    ];
    let target = target(PersistenceLevel::Root, RootMechanism::Archive);
    let (result, took) = result_of(script, target).await;
    assert_eq!(result, Some(kept));
    assert!(took < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn dormant_supervisor_has_nothing_to_save() {
    let target = target(PersistenceLevel::Root, RootMechanism::Archive);
    let (result, _) = result_of([Err(SupervisorError::Refused(409))], target).await;
    assert_eq!(result, None);
}

#[tokio::test(start_paused = true)]
async fn supervisor_of_an_earlier_version_is_asked_once() {
    let target = target(PersistenceLevel::Root, RootMechanism::Archive);
    let (result, took) = result_of([Err(SupervisorError::Refused(404))], target).await;
    assert_eq!(result.unwrap().level, PersistenceLevel::Workspace);
    assert!(took < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn silent_supervisor_ends_the_save_after_its_limits() {
    use PersistenceLevel::{Memory, Root, Workspace};
    for (level, root, expected) in [
        (Root, RootMechanism::Archive, Workspace),
        (Root, RootMechanism::Overlay, Root),
        (Memory, RootMechanism::Node, Root),
    ] {
        let (result, took) = result_of([], target(level, root)).await;
        assert_eq!(took.as_secs(), 50, "30 s, 10 s to stop, 10 s of grace");
        let kept = result.unwrap();
        assert_eq!(kept.level, expected, "{root:?}");
        assert_eq!(kept.reason.is_some(), expected < level, "{root:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn reason_of_the_sandbox_is_bounded() {
    let kept = KeptState {
        reason: Some("line\nline".repeat(1000)),
        ..KeptState::of(PersistenceLevel::Workspace)
    };
    let target = target(PersistenceLevel::Root, RootMechanism::Archive);
    let reason = result_of([Ok(done(kept))], target)
        .await
        .0
        .unwrap()
        .reason
        .unwrap();
    assert!(reason.starts_with("lineline") && reason.len() <= MAX_REASON_BYTES);
}
