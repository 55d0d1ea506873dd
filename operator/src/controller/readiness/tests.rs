//! Questions to a scripted supervisor, in virtual time.

use std::collections::VecDeque;

use crds::contract::control::{Init, Probe, ReadyReport};
use crds::contract::token::Verifier;
use tokio::time::{Instant, timeout};

use super::*;

/// Gives one answer after the other; the last one for ever.
#[derive(Debug, Default)]
struct Script {
    answers: Mutex<VecDeque<Option<SupervisorState>>>,
    tokens: Mutex<Vec<String>>,
    asked: Mutex<u32>,
}

impl Supervisors for Script {
    fn init<'a>(&'a self, _: &'a str, token: String) -> BoxFuture<'a, Result<(), SupervisorError>> {
        self.tokens.lock().push(token);
        Box::pin(std::future::ready(Ok(())))
    }

    fn ready<'a>(
        &'a self,
        _: &'a str,
        _: String,
        _: Duration,
    ) -> BoxFuture<'a, Result<ReadyReport, SupervisorError>> {
        *self.asked.lock() += 1;
        let mut answers = self.answers.lock();
        let next = match answers.len() {
            1 => answers.front().copied().flatten(),
            _ => answers.pop_front().flatten(),
        };
        let unreachable = || SupervisorError::Unreachable("refused".into());
        let report = next.map(|state| ReadyReport {
            state,
            detail: None,
        });
        Box::pin(std::future::ready(report.ok_or_else(unreachable)))
    }

    fn accepts<'a>(&'a self, _: &'a str, port: u16) -> BoxFuture<'a, bool> {
        Box::pin(std::future::ready(port == 80))
    }

    fn idle<'a>(&'a self, _: &'a str, _: u16) -> BoxFuture<'a, Option<Duration>> {
        Box::pin(std::future::ready(None))
    }
}

struct Stage {
    script: Arc<Script>,
    readiness: Arc<Readiness>,
    queue: Arc<Queue<Key>>,
    keys: Arc<Keys>,
}

fn stage(answers: &[Option<SupervisorState>]) -> Stage {
    let keys = Arc::new(Keys::derive(&[1; 32]).unwrap());
    let queue = Arc::new(Queue::default());
    queue.open();
    let script = Arc::new(Script::default());
    script.answers.lock().extend(answers);
    let readiness = Readiness::new(script.clone(), keys.clone(), Clock::wall(), queue.clone());
    Stage {
        script,
        readiness: Arc::new(readiness),
        queue,
        keys,
    }
}

fn key() -> Key {
    Key {
        namespace: "ns".into(),
        name: "a".into(),
    }
}

fn run(restarts: u32) -> Run {
    Run {
        pod_uid: "pod".into(),
        restarts,
    }
}

fn supervisor() -> Question {
    let init = || {
        let init = Init {
            command: vec!["true".into()],
            working_dir: "/".into(),
            environment: std::collections::BTreeMap::new(),
            probe: Probe {
                port: None,
                path: None,
            },
        };
        Some(Grant::Init(Box::new(init)))
    };
    Question::Supervisor(Arc::new(init))
}

impl Stage {
    fn ask(&self, restarts: u32) {
        let ip = "10.0.0.1";
        self.readiness.ask(&key(), run(restarts), ip, supervisor());
    }

    /// The next answer that reconciliation is woken for.
    async fn news(&self, restarts: u32) -> Option<Answer> {
        timeout(Duration::from_mins(10), self.queue.next())
            .await
            .ok()?;
        self.queue.done(&key());
        self.readiness.answer(&key(), &run(restarts))
    }
}

#[tokio::test(start_paused = true)]
async fn a_dormant_supervisor_is_initialised_once_it_listens() {
    use SupervisorState::{Dormant, Ready};
    let stage = stage(&[None, None, Some(Dormant), Some(Ready)]);
    stage.ask(0);
    assert_eq!(stage.news(0).await, Some(Answer::Ready));
    let tokens = stage.script.tokens.lock().clone();
    assert_eq!(tokens.len(), 1);
    let verifier = Verifier::new(&stage.keys.signer().public_key()).unwrap();
    let claim = Claim::recall(&tokens[0], &verifier, "pod").unwrap();
    assert!(matches!(claim.grant, Grant::Init(_)));
}

#[tokio::test(start_paused = true)]
async fn one_that_runs_already_is_not_initialised() {
    let stage = stage(&[Some(SupervisorState::Ready)]);
    stage.ask(0);
    assert_eq!(stage.news(0).await, Some(Answer::Ready));
    assert!(stage.script.tokens.lock().is_empty());
}

#[tokio::test(start_paused = true)]
async fn that_it_is_not_ready_is_news_once() {
    let stage = stage(&[Some(SupervisorState::Starting)]);
    stage.ask(0);
    assert_eq!(stage.news(0).await, Some(Answer::NotReady(None)));
    assert_eq!(stage.news(0).await, None);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_listens_soon_is_noticed_soon() {
    use SupervisorState::Ready;
    let mut answers = vec![None; 6];
    answers.push(Some(Ready));
    let stage = stage(&answers);
    let start = Instant::now();
    stage.ask(0);
    assert_eq!(stage.news(0).await, Some(Answer::Ready));
    assert!(start.elapsed() < Duration::from_millis(150));
}

#[tokio::test(start_paused = true)]
async fn a_supervisor_that_answers_too_fast_is_not_asked_too_often() {
    let stage = stage(&[Some(SupervisorState::Starting)]);
    stage.ask(0);
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert!(*stage.script.asked.lock() <= 300);
}

#[tokio::test(start_paused = true)]
async fn another_run_is_asked_anew() {
    let stage = stage(&[Some(SupervisorState::Ready)]);
    stage.ask(0);
    assert_eq!(stage.news(0).await, Some(Answer::Ready));
    assert_eq!(stage.readiness.answer(&key(), &run(1)), None);
    stage.ask(1);
    assert_eq!(stage.news(1).await, Some(Answer::Ready));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_asked_any_more_once_forgotten() {
    let stage = stage(&[None]);
    stage.ask(0);
    tokio::time::sleep(Duration::from_secs(1)).await;
    stage.readiness.forget(&key());
    let asked = *stage.script.asked.lock();
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(*stage.script.asked.lock(), asked);
}

#[tokio::test(start_paused = true)]
async fn a_port_is_asked_by_connecting() {
    let stage = stage(&[]);
    stage
        .readiness
        .ask(&key(), run(0), "10.0.0.1", Question::Port(80));
    assert_eq!(stage.news(0).await, Some(Answer::Ready));
}
