//! One sandbox: calls of the server in it (`docs/specs/executor.md`), which are repeated where that is
//! safe and wait for a sandbox that is paused or restarts.

pub(crate) mod actions;
mod archive;
mod files;
mod health;
pub(crate) mod server_info;
pub(crate) mod urls;

use std::sync::Arc;

use http::header::HeaderValue;
use http::{Method, StatusCode};
use reqwest::{RequestBuilder, Response, Url};

use crate::api::{Repeat, below};
use crate::backoff::Backoff;
use crate::http_client::{self, Failure};
use crate::progress::Progress;
use crate::runtime_info::{RuntimeInfo, Status};
use crate::{Client, Error};

const KEY_HEADER: &str = "X-Session-API-Key";

/// Report of a wait that a call of a sandbox causes.
type Report = Arc<dyn Fn(&Progress) + Send + Sync>;

/// Handle of a sandbox. Clones are independent and share connections.
#[derive(Clone, derive_more::Debug)]
pub struct Sandbox {
    client: Client,
    info: RuntimeInfo,
    #[debug(skip)]
    report: Option<Report>,
}

impl Sandbox {
    pub(crate) fn new(client: Client, info: RuntimeInfo) -> Self {
        Self {
            client,
            info,
            report: None,
        }
    }

    /// Reports each step when a call has to wait for the sandbox, such as that of a paused one.
    #[must_use]
    pub fn on_progress(mut self, report: impl Fn(&Progress) + Send + Sync + 'static) -> Self {
        self.report = Some(Arc::new(report));
        self
    }

    /// State when the handle was made.
    pub fn info(&self) -> &RuntimeInfo {
        &self.info
    }

    /// Client of the runtime API.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// A request to the server in the sandbox, with its key.
    pub(crate) fn request(
        &self,
        method: Method,
        path: &[&str],
        query: &[(&str, &str)],
    ) -> Result<RequestBuilder, Error> {
        let url = self.address(path, query)?;
        let key = HeaderValue::from_str(&self.info.session_api_key);
        let mut key =
            key.map_err(|_| self.misunderstood("session_api_key is not a header value"))?;
        key.set_sensitive(true);
        Ok(self
            .client
            .http()
            .request(method, url)
            .header(KEY_HEADER, key))
    }

    /// URL of a path of the server in the sandbox.
    fn address(&self, path: &[&str], query: &[(&str, &str)]) -> Result<Url, Error> {
        let url = match self.client.sandbox_url(&self.info.runtime_id) {
            Some(url) => url,
            None => Url::parse(&self.info.url)
                .map_err(|error| self.misunderstood(&format!("url: {error}")))?,
        };
        Ok(below(url, path, query))
    }

    /// Sends a request, and again if that is safe. After 503, which the gateway answers for requests that
    /// it did not forward, the sandbox is waited for, and resumed if it was paused on request.
    pub(crate) async fn send(
        &self,
        repeat: Repeat,
        request: impl Fn() -> Result<RequestBuilder, Error>,
    ) -> Result<Response, Error> {
        let mut backoff = Backoff::new(self.client.settings().recovery_timeout);
        loop {
            let failure = match http_client::attempt(request()?).await {
                Ok(response) => return Ok(response),
                Err(failure) => failure,
            };
            let again =
                failure.is_unprocessed() || (repeat == Repeat::Temporary && failure.is_temporary());
            if !again {
                return Err(self.explain(failure).await);
            }
            if failure.status() == Some(StatusCode::SERVICE_UNAVAILABLE) {
                self.wake().await?;
            }
            if !backoff.wait().await {
                return Err(failure.into());
            }
        }
    }

    /// Waits for a sandbox that does not answer, and resumes it if it was paused.
    async fn wake(&self) -> Result<(), Error> {
        let id = &self.info.runtime_id;
        let info = self.client.runtime(id).await?;
        let mut report = |step: &Progress| {
            if let Some(report) = &self.report {
                report(step);
            }
        };
        match info.status {
            Status::Running | Status::Unknown => Ok(()),
            Status::Paused if !self.client.settings().resume_paused => {
                Err(Error::Paused(id.clone()))
            }
            // Boxed: the wait for a start calls the sandbox.
            Status::Paused => Box::pin(self.client.resume_and_wait(id, &mut report))
                .await
                .map(drop),
            _ => Box::pin(self.client.wait_ready(info, &mut report))
                .await
                .map(drop),
        }
    }

    /// Tells a sandbox that is gone from a path that its server does not have.
    async fn explain(&self, failure: Failure) -> Error {
        if failure.status() != Some(StatusCode::NOT_FOUND) {
            return failure.into();
        }
        match self.client.runtime(&self.info.runtime_id).await {
            Ok(info) if info.status != Status::Stopped => failure.into(),
            Ok(_) => Error::NotFound(format!("sandbox {}", self.info.runtime_id)),
            Err(error) => error,
        }
    }

    fn misunderstood(&self, text: &str) -> Error {
        Error::Protocol(self.client.url().into(), text.into())
    }
}
