//! Progress notifications of a tool call, for clients that ask for them.

use std::future::Future;
use std::time::Duration;

use rmcp::model::{ProgressNotificationParam, ProgressToken};
use rmcp::service::{Peer, RoleServer};
use tokio::time::{Instant, MissedTickBehavior, interval_at};

/// Interval of notifications while a call is in progress. It also keeps the connection in use.
pub(super) const INTERVAL: Duration = Duration::from_secs(5);

#[derive(Debug, Clone)]
pub(super) struct Progress {
    peer: Peer<RoleServer>,
    /// `None`: the client does not want any.
    token: Option<ProgressToken>,
}

impl Progress {
    pub(super) fn new(peer: Peer<RoleServer>, token: Option<ProgressToken>) -> Self {
        Self { peer, token }
    }

    /// Does the work and reports `text` until it is done. A client that does not read its
    /// notifications does not delay the work.
    pub(super) async fn during<T>(
        &self,
        text: impl Fn() -> String,
        work: impl Future<Output = T>,
    ) -> T {
        tokio::select! {
            done = work => done,
            never = self.report(text) => match never {},
        }
    }

    async fn report(&self, text: impl Fn() -> String) -> std::convert::Infallible {
        let Some(token) = &self.token else {
            return std::future::pending().await;
        };
        let start = Instant::now();
        let mut ticks = interval_at(start, INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            // Seconds: progress must grow, and the total is unknown.
            let seconds = start.elapsed().as_secs_f64();
            let progress = ProgressNotificationParam::new(token.clone(), seconds);
            let progress = progress.with_message(text());
            // A client that has left ends the call by itself.
            let _ = self.peer.notify_progress(progress).await;
        }
    }
}
