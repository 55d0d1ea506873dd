//! Asks starting sandboxes whether they are ready: one bounded task per sandbox, from the moment
//! its Pod has an address. An answer wakes reconciliation, which alone decides what it means.
//!
//! Answers live only in this process. After a restart of the controller they are asked for again;
//! until then the status stands.

mod places;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crds::contract::control::{Claim, Grant, MAX_READY_WAIT_SECONDS, ReadyReport, SupervisorState};
use futures::future::BoxFuture;
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};
use tokio_util::task::AbortOnDropHandle;

use super::facts::{Answer, Run};
use super::supervisor::{SupervisorError, Supervisors};
use crate::clock::Clock;
use crate::index::Key;
use crate::keys::Keys;
use crate::kubernetes::queue::Queue;
use places::Places;

/// First pause before a Pod that does not listen yet is asked again.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
/// Longest such pause while the sandbox is young: what it adds to a start, at worst.
const LONGEST_PAUSE: Duration = Duration::from_millis(250);
/// Pause after an answer that it is not ready: the question itself waits, unless it is answered
/// by somebody who does not keep to the contract, or there was no place to wait in.
const ANSWERED_PAUSE: Duration = Duration::from_millis(500);
/// Longest pause of all. A sandbox that has been asked for long is asked less often: pauses grow
/// to a sixteenth of the time it has taken so far.
const PATIENT_PAUSE: Duration = Duration::from_secs(5);
/// A sandbox whose node has stopped reporting is gone with it if it says nothing for so long.
const SILENCE: Duration = Duration::from_secs(5);
/// How long one question waits for readiness, so that others get their turn.
const WAIT: Duration = Duration::from_secs(if MAX_READY_WAIT_SECONDS < 20 {
    MAX_READY_WAIT_SECONDS
} else {
    20
});

/// Makes the initialisation of a sandbox when its Pod turns out to be dormant; `None` if it
/// cannot be made, which reconciliation reports by itself.
pub(crate) type MakeInit = Arc<dyn Fn() -> Option<Grant> + Send + Sync>;

/// What to ask.
#[derive(Clone)]
pub(crate) enum Question {
    /// A supervisor, which may have to be initialised first.
    Supervisor(MakeInit),
    /// A port.
    Port(u16),
}

/// All questions under way, and their answers.
pub(crate) struct Readiness {
    supervisors: Arc<dyn Supervisors>,
    keys: Arc<Keys>,
    clock: Clock,
    queue: Arc<Queue<Key>>,
    places: Places,
    asked: Mutex<HashMap<Key, Asked>>,
}

struct Asked {
    run: Run,
    answer: Option<Answer>,
    /// Ends the question when it is no longer of interest.
    _task: AbortOnDropHandle<()>,
}

/// One sandbox that is being asked.
struct Asking {
    readiness: Arc<Readiness>,
    key: Key,
    run: Run,
    ip: String,
    question: Question,
    since: Instant,
}

impl Readiness {
    pub(crate) fn new(
        supervisors: Arc<dyn Supervisors>,
        keys: Arc<Keys>,
        clock: Clock,
        queue: Arc<Queue<Key>>,
    ) -> Self {
        Self {
            supervisors,
            keys,
            clock,
            queue,
            places: Places::default(),
            asked: Mutex::default(),
        }
    }

    /// What the sandbox said in this run of its container.
    pub(crate) fn answer(&self, key: &Key, run: &Run) -> Option<Answer> {
        let asked = self.asked.lock();
        asked.get(key).filter(|a| a.run == *run)?.answer.clone()
    }

    /// Asks, unless this run is being asked already or has answered.
    pub(crate) fn ask(self: &Arc<Self>, key: &Key, run: Run, ip: &str, question: Question) {
        let mut asked = self.asked.lock();
        if asked.get(key).is_some_and(|a| a.run == run) {
            return;
        }
        let asking = Asking {
            readiness: self.clone(),
            key: key.clone(),
            run: run.clone(),
            ip: ip.to_owned(),
            question,
            since: Instant::now(),
        };
        let task = AbortOnDropHandle::new(tokio::spawn(asking.ask()));
        asked.insert(
            key.clone(),
            Asked {
                run,
                answer: None,
                _task: task,
            },
        );
    }

    /// Forgets a sandbox that is not to be asked any more.
    pub(crate) fn forget(&self, key: &Key) {
        self.asked.lock().remove(key);
    }

    /// Keeps an answer and, if it is news, has it acted upon.
    fn record(&self, key: &Key, run: &Run, answer: Answer) {
        let mut asked = self.asked.lock();
        let Some(asked) = asked.get_mut(key).filter(|a| a.run == *run) else {
            return;
        };
        if asked.answer.as_ref() != Some(&answer) {
            asked.answer = Some(answer);
            self.queue.add(key.clone());
        }
    }
}

impl Asking {
    async fn ask(self) {
        let mut pause = FIRST_PAUSE;
        loop {
            match self.once().await {
                Ok(Answer::Ready) => {
                    self.readiness.record(&self.key, &self.run, Answer::Ready);
                    return;
                }
                Ok(answer) => {
                    self.readiness.record(&self.key, &self.run, answer);
                    sleep(self.pause(ANSWERED_PAUSE)).await;
                }
                Err(error) => {
                    tracing::trace!(key = %self.key, %error, "no answer");
                    if self.run.silent && self.since.elapsed() >= SILENCE {
                        let answer = Answer::NotReady(Some(error.to_string()));
                        self.readiness.record(&self.key, &self.run, answer);
                    }
                    sleep(self.pause(pause)).await;
                    pause = (pause * 3 / 2).min(LONGEST_PAUSE);
                }
            }
        }
    }

    /// At least this pause, longer if the sandbox has taken long already.
    fn pause(&self, least: Duration) -> Duration {
        (self.since.elapsed() / 16).min(PATIENT_PAUSE).max(least)
    }

    async fn once(&self) -> Result<Answer, SupervisorError> {
        let answer = match &self.question {
            Question::Port(port) => self.port(*port).await,
            Question::Supervisor(init) => self.supervisor(init).await,
        };
        match answer {
            // Somebody listens and does not do as told: worth knowing for the user.
            Err(error @ (SupervisorError::Refused(_) | SupervisorError::Malformed)) => {
                Ok(Answer::NotReady(Some(format!("the supervisor: {error}"))))
            }
            answer => answer,
        }
    }

    async fn port(&self, port: u16) -> Result<Answer, SupervisorError> {
        let _permit = self.readiness.places.permit(self.since.elapsed()).await;
        if self.readiness.supervisors.accepts(&self.ip, port).await {
            return Ok(Answer::Ready);
        }
        Err(SupervisorError::Unreachable(format!("port {port}")))
    }

    /// Asks where the supervisor is, and goes on from there.
    async fn supervisor(&self, init: &MakeInit) -> Result<Answer, SupervisorError> {
        let answer = self.begin(init).await?;
        if answer == Answer::Ready {
            return Ok(answer);
        }
        let Some(mut place) = self.readiness.places.place(self.since.elapsed()) else {
            return Ok(answer);
        };
        tokio::select! {
            report = self.report(WAIT) => Ok(answer_of(report?)),
            () = place.lost() => Ok(answer),
        }
    }

    /// A short question. The supervisor may be dormant, or have been initialised before this
    /// process began.
    async fn begin(&self, init: &MakeInit) -> Result<Answer, SupervisorError> {
        let _permit = self.readiness.places.permit(self.since.elapsed()).await;
        let report = self.report(Duration::ZERO).await?;
        if report.state == SupervisorState::Dormant {
            let Some(grant) = init() else {
                return Err(SupervisorError::Malformed);
            };
            let token = self.token(grant)?;
            self.readiness.supervisors.init(&self.ip, token).await?;
            return Ok(Answer::NotReady(None));
        }
        let answer = answer_of(report);
        if answer != Answer::Ready {
            // A status of before a restart of this process may say otherwise: correct it now.
            self.readiness.record(&self.key, &self.run, answer.clone());
        }
        Ok(answer)
    }

    fn report(&self, wait: Duration) -> BoxFuture<'_, Result<ReadyReport, SupervisorError>> {
        match self.token(Grant::Ready) {
            Ok(token) => self.readiness.supervisors.ready(&self.ip, token, wait),
            Err(error) => Box::pin(std::future::ready(Err(error))),
        }
    }

    fn token(&self, grant: Grant) -> Result<String, SupervisorError> {
        // Our clock stands still while the machine sleeps; the Pod's does not.
        let now = self.readiness.clock.now().max(Timestamp::now());
        Claim::new(&self.run.pod_uid, now.as_second(), grant)
            .sign(self.readiness.keys.signer())
            .map_err(|_| SupervisorError::Malformed)
    }
}

fn answer_of(report: ReadyReport) -> Answer {
    match report.state {
        SupervisorState::Ready => Answer::Ready,
        _ => Answer::NotReady(report.detail),
    }
}

impl std::fmt::Debug for Readiness {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Readiness")
            .field("asked", &self.asked.lock().len())
            .finish_non_exhaustive()
    }
}
