//! Pulls of one process, shared by those who ask for the same image with the same credentials.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Weak};

use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use super::PullError;
use crate::{Image, Progress};

type Key = (String, String);
type Outcome = Result<Arc<Image>, Arc<PullError>>;

/// Running pulls by reference and credentials.
#[derive(Debug, Default)]
pub(super) struct SharedPulls(Mutex<HashMap<Key, Weak<Task>>>);

#[derive(Debug)]
struct Task {
    outcome: Shared<BoxFuture<'static, Outcome>>,
    progress: watch::Receiver<Progress>,
}

/// Handle of a running pull, which ends with its last handle.
#[derive(Debug, Clone)]
pub struct Pull(Arc<Task>);

impl SharedPulls {
    pub(super) fn join<F>(&self, key: Key, begin: impl FnOnce(watch::Sender<Progress>) -> F) -> Pull
    where
        F: Future<Output = Result<Image, PullError>> + Send + 'static,
    {
        let mut running = self.0.lock();
        running.retain(|_, task| task.strong_count() > 0);
        let known = running.get(&key).and_then(Weak::upgrade);
        if let Some(task) = known.filter(|task| task.outcome.peek().is_none()) {
            return Pull(task);
        }
        let (sender, progress) = watch::channel(Progress::default());
        let work = AbortOnDropHandle::new(tokio::spawn(begin(sender)));
        let outcome = work.map(|done| match done {
            Ok(Ok(image)) => Ok(Arc::new(image)),
            Ok(Err(error)) => Err(Arc::new(error)),
            Err(_) => Err(Arc::new(PullError::Interrupted)),
        });
        let task = Arc::new(Task {
            outcome: outcome.boxed().shared(),
            progress,
        });
        running.insert(key, Arc::downgrade(&task));
        Pull(task)
    }
}

impl Pull {
    /// Latest progress; the sender is gone when the pull has ended.
    pub fn progress(&self) -> watch::Receiver<Progress> {
        self.0.progress.clone()
    }

    /// Waits for the outcome.
    pub async fn finish(&self) -> Outcome {
        self.0.outcome.clone().await
    }
}
