//! What every request to the API server passes on its way: it is measured, it has an end, it is a
//! sign of life of its watch, and a write is only sent while this process may act.
//!
//! kube's watcher keeps bookmarks to itself and puts no limit on lists and on the beginning of a
//! watch; a server that accepts connections and says nothing would hang it for ever.

mod body;
mod request;
#[cfg(test)]
mod tests;

use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use tokio::time::{Instant, timeout};
use tower::BoxError;

use super::leader::Tenure;
use crate::metrics::requests::{Outcome, Verb};
use crate::vitals::Vitals;

use body::WireBody;
use request::Asked;

/// Longest time for an answer, and again for its body unless it is a watch. Calls with a limit of
/// their own end sooner; this one is for the pages of large lists.
const LONGEST: Duration = Duration::from_secs(30);

/// Why a request got no answer.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    #[error("this process does not lead: a write was not sent")]
    Fenced,
    #[error("no answer within {}s", LONGEST.as_secs())]
    Timeout,
}

/// The fixed name by which health and metrics know a resource: its plural, or `other`.
pub fn resource(plural: &str) -> &'static str {
    request::named(plural)
}

/// The client, with everything above. With a tenure, writes are only sent while that holds.
pub fn observed(client: &Client, vitals: &Arc<Vitals>, tenure: Option<Arc<Tenure>>) -> Client {
    let wire = Wire {
        client: client.clone(),
        vitals: vitals.clone(),
        tenure,
    };
    Client::new(wire, client.default_namespace())
}

#[derive(Clone)]
struct Wire {
    client: Client,
    vitals: Arc<Vitals>,
    tenure: Option<Arc<Tenure>>,
}

impl tower::Service<Request<Body>> for Wire {
    type Response = Response<WireBody>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        self.clone().send(request).boxed()
    }
}

impl Wire {
    async fn send(self, request: Request<Body>) -> Result<Response<WireBody>, BoxError> {
        let asked = Asked::read(&request);
        let mut note = Note::begin(&self.vitals, asked);
        if asked.verb.is_write() && self.tenure.as_ref().is_some_and(|t| !t.holds()) {
            note.outcome = Outcome::Fenced;
            return Err(WireError::Fenced.into());
        }
        if asked.follows() {
            self.vitals.health.tried(asked.resource);
        }
        let answer = match within(self.client.send(request), &mut note).await {
            Some(answer) => answer?,
            None => return Err(WireError::Timeout.into()),
        };
        note.outcome = Outcome::of(answer.status());
        if asked.follows() && answer.status().is_success() {
            self.vitals.health.heard(asked.resource);
        }
        let vitals = self.vitals.clone();
        Ok(answer.map(|body| WireBody::new(body, asked, vitals)))
    }
}

/// Waits within the limit. Whoever drops this no longer waits, which is worth knowing.
async fn within<T>(answer: impl Future<Output = T>, note: &mut Note) -> Option<T> {
    note.outcome = Outcome::Abandoned;
    let answer = timeout(LONGEST, answer).await.ok();
    note.outcome = Outcome::NoAnswer;
    answer
}

/// Notes a request in the metrics however it ends.
struct Note {
    vitals: Arc<Vitals>,
    asked: Asked,
    began: Instant,
    outcome: Outcome,
}

impl Note {
    fn begin(vitals: &Arc<Vitals>, asked: Asked) -> Self {
        Self {
            vitals: vitals.clone(),
            asked,
            began: Instant::now(),
            outcome: Outcome::NoAnswer,
        }
    }
}

impl Drop for Note {
    fn drop(&mut self) {
        let Asked { verb, resource } = self.asked;
        let requests = &self.vitals.metrics.requests;
        requests.note(verb, resource, self.outcome, self.began.elapsed());
    }
}
