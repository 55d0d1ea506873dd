//! Thread for write requests of a stored API. A commit waits for the disk, which must not block
//! the threads of the runtime that also serve the proxy.

use std::{io, thread};

use tokio::sync::{mpsc, oneshot};

use super::error::ApiError;

type Job = Box<dyn FnOnce() + Send>;

/// Queued requests; further ones wait.
const QUEUE: usize = 256;

/// Handle of the thread, which ends with it. Without a thread, jobs run on the caller's.
#[derive(Debug)]
pub(super) struct Writer(Option<mpsc::Sender<Job>>);

impl Writer {
    /// For an API in memory, whose writes do not wait for anything.
    pub(super) fn inline() -> Self {
        Self(None)
    }

    pub(super) fn start() -> io::Result<Self> {
        let (jobs, mut queue) = mpsc::channel::<Job>(QUEUE);
        let serve = move || {
            while let Some(job) = queue.blocking_recv() {
                job();
            }
        };
        thread::Builder::new()
            .name("api-writer".into())
            .spawn(serve)?;
        Ok(Self(Some(jobs)))
    }

    pub(super) async fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let Some(jobs) = &self.0 else {
            return job();
        };
        let stopped = || ApiError::Internal("the writer thread has stopped".to_owned());
        let (result, received) = oneshot::channel();
        let job = Box::new(move || drop(result.send(job())));
        jobs.send(job).await.map_err(|_| stopped())?;
        received.await.map_err(|_| stopped())?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn jobs_of_a_stored_api_run_on_the_writer_thread() {
        let name = || Ok(thread::current().name().map(str::to_owned));
        let writer = Writer::start().unwrap();
        assert_eq!(
            writer.run(name).await.unwrap().as_deref(),
            Some("api-writer")
        );
        assert_ne!(
            Writer::inline().run(name).await.unwrap().as_deref(),
            Some("api-writer")
        );
    }
}
