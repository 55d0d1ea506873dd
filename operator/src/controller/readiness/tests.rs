//! Questions to a scripted supervisor, in virtual time.

use std::collections::VecDeque;

use crds::contract::control::{Init, Probe};
use crds::contract::token::Verifier;
use tokio::time::timeout;

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
        silent: false,
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

/// Thousands of sandboxes that start and are never ready, but for some.
#[derive(Debug, Default)]
struct Crowd {
    /// Addresses whose command is ready.
    ready: Mutex<Vec<String>>,
    waiting: Mutex<u32>,
    short: Mutex<u32>,
}

/// Counts a long question for as long as it lasts.
struct Counted<'a>(&'a Crowd);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        *self.0.waiting.lock() -= 1;
    }
}

impl Crowd {
    fn report(&self, ip: &str) -> ReadyReport {
        let ready = self.ready.lock().iter().any(|r| r == ip);
        ReadyReport {
            state: if ready {
                SupervisorState::Ready
            } else {
                SupervisorState::Starting
            },
            detail: None,
        }
    }

    fn count(&self) -> Counted<'_> {
        *self.waiting.lock() += 1;
        Counted(self)
    }
}

impl Supervisors for Crowd {
    fn init<'a>(&'a self, _: &'a str, _: String) -> BoxFuture<'a, Result<(), SupervisorError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn ready<'a>(
        &'a self,
        ip: &'a str,
        _: String,
        wait: Duration,
    ) -> BoxFuture<'a, Result<ReadyReport, SupervisorError>> {
        Box::pin(async move {
            if wait.is_zero() {
                *self.short.lock() += 1;
            } else {
                let _counted = self.count();
                sleep(wait).await;
            }
            Ok(self.report(ip))
        })
    }

    fn idle<'a>(&'a self, _: &'a str, _: u16) -> BoxFuture<'a, Option<Duration>> {
        Box::pin(std::future::ready(None))
    }

    fn accepts<'a>(&'a self, _: &'a str, _: u16) -> BoxFuture<'a, bool> {
        Box::pin(std::future::ready(false))
    }
}

#[tokio::test(start_paused = true)]
async fn sandboxes_that_are_never_ready_do_not_hold_up_the_others() {
    let (crowd, queue) = (Arc::new(Crowd::default()), Arc::new(Queue::default()));
    let keys = Arc::new(Keys::derive(&[1; 32]).unwrap());
    let readiness = Readiness::new(crowd.clone(), keys, Clock::wall(), queue.clone());
    let readiness = Arc::new(readiness);
    let named = |name: String| Key {
        namespace: "ns".into(),
        name,
    };
    for n in 0..1200 {
        let (key, ip) = (named(format!("never-{n}")), format!("never-{n}"));
        readiness.ask(&key, run(0), &ip, supervisor());
    }
    for n in 0..12 {
        // At any moment of the others' long questions.
        sleep(Duration::from_millis(1700)).await;
        let name = format!("soon-{n}");
        crowd.ready.lock().push(name.clone());
        let began = Instant::now();
        readiness.ask(&named(name.clone()), run(0), &name, supervisor());
        while readiness.answer(&named(name.clone()), &run(0)).is_none() {
            sleep(Duration::from_millis(1)).await;
        }
        assert!(*crowd.waiting.lock() <= 1024);
        assert!(
            began.elapsed() <= Duration::from_millis(5),
            "{n}: {:?}",
            began.elapsed()
        );
    }
    assert!(*crowd.waiting.lock() <= 1024);
    // What has no place to wait in is asked seldom.
    let before = *crowd.short.lock();
    sleep(Duration::from_secs(30)).await;
    let asked = *crowd.short.lock() - before;
    assert!(asked <= 1200 * 30 / 2, "{asked}");
}

#[tokio::test(start_paused = true)]
async fn one_that_lost_its_place_is_noticed_nevertheless() {
    let (crowd, queue) = (Arc::new(Crowd::default()), Arc::new(Queue::default()));
    let keys = Arc::new(Keys::derive(&[1; 32]).unwrap());
    let readiness = Readiness::new(crowd.clone(), keys, Clock::wall(), queue.clone());
    let readiness = Arc::new(readiness);
    readiness.ask(&key(), run(0), "first", supervisor());
    sleep(Duration::from_secs(1)).await;
    for n in 0..1200 {
        let key = Key {
            namespace: "ns".into(),
            name: n.to_string(),
        };
        readiness.ask(&key, run(0), "never", supervisor());
    }
    sleep(Duration::from_secs(30)).await;
    crowd.ready.lock().push("first".into());
    let began = Instant::now();
    while readiness.answer(&key(), &run(0)) != Some(Answer::Ready) {
        sleep(Duration::from_millis(10)).await;
    }
    assert!(began.elapsed() <= WAIT, "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn who_fell_silent_with_the_node_is_said_not_to_be_ready_and_asked_on() {
    let mut script = vec![None; 60];
    script.push(Some(SupervisorState::Ready));
    let stage = stage(&script);
    let silent = Run {
        silent: true,
        ..run(0)
    };
    let ip = "10.0.0.1";
    let readiness = &stage.readiness;
    readiness.ask(&key(), silent.clone(), ip, supervisor());
    let mut answers = Vec::new();
    for _ in 0..2 {
        stage.news(0).await;
        answers.push(stage.readiness.answer(&key(), &silent).unwrap());
    }
    assert!(matches!(&answers[0], Answer::NotReady(Some(_))));
    assert_eq!(answers[1], Answer::Ready);
    assert_eq!(stage.readiness.answer(&key(), &run(0)), None);
}
