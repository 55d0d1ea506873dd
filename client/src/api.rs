//! The runtime API: one client for all sandboxes of an API key.

pub(crate) mod builds;
mod changes;
pub(crate) mod pools;
mod runtimes;
pub(crate) mod snapshots;
pub(crate) mod start;
mod waits;

use std::sync::Arc;
use std::time::Duration;

use http::header::HeaderValue;
use http::{Method, StatusCode};
use reqwest::{RequestBuilder, Response, Url};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::backoff::Backoff;
use crate::http_client::{self, Failure};
use crate::{Error, Settings};

const KEY_HEADER: &str = "X-API-Key";
/// Name of the port of the server in a sandbox.
const RUNTIME_PORT: &str = "runtime";
/// The gateway answers within ten seconds.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// Client of the runtime API. Clones share their connections.
#[derive(Debug, Clone)]
pub struct Client(Arc<Inner>);

#[derive(derive_more::Debug)]
struct Inner {
    settings: Settings,
    http: reqwest::Client,
    #[debug(skip)]
    key: HeaderValue,
}

/// Failures after which a call is sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// All that may pass: the call can be carried out twice.
    Temporary,
    /// Only if the call was not carried out.
    Unsent,
}

impl Client {
    pub fn new(settings: Settings) -> Result<Self, Error> {
        let mut key = HeaderValue::from_str(&settings.key)
            .map_err(|_| Error::Settings("the API key is not a header value".into()))?;
        key.set_sensitive(true);
        Ok(Self(Arc::new(Inner {
            http: http_client::build(&settings)?,
            key,
            settings,
        })))
    }

    /// Settings that the client was made with.
    pub fn settings(&self) -> &Settings {
        &self.0.settings
    }

    /// Base URL of the gateway, without a trailing slash.
    pub fn url(&self) -> &str {
        self.0.settings.url.as_str().trim_end_matches('/')
    }

    /// `GET /health`: fails unless the gateway can serve.
    pub async fn health(&self) -> Result<(), Error> {
        let request = self
            .request(Method::GET, &["health"], &[])
            .timeout(CALL_TIMEOUT);
        http_client::attempt(request).await?;
        Ok(())
    }

    pub(crate) fn http(&self) -> &reqwest::Client {
        &self.0.http
    }

    /// Builds the URL of a path; each segment is encoded.
    fn address(&self, path: &[&str], query: &[(&str, &str)]) -> Url {
        below(self.0.settings.url.clone(), path, query)
    }

    /// URL of the server in a sandbox in the form `path`, if it is not called by its own one.
    pub(crate) fn sandbox_url(&self, runtime_id: &str) -> Option<Url> {
        self.settings().connect_to?;
        Some(self.address(&[runtime_id, RUNTIME_PORT], &[]))
    }

    /// A request with the API key.
    pub(crate) fn request(
        &self,
        method: Method,
        path: &[&str],
        query: &[(&str, &str)],
    ) -> RequestBuilder {
        let request = self.http().request(method, self.address(path, query));
        request.header(KEY_HEADER, self.0.key.clone())
    }

    async fn get<T: DeserializeOwned>(
        &self,
        path: &[&str],
        query: &[(&str, &str)],
    ) -> Result<T, Error> {
        let request = || self.request(Method::GET, path, query).timeout(CALL_TIMEOUT);
        http_client::json(self.send(Repeat::Temporary, request).await?).await
    }

    async fn post<B: Serialize, T: DeserializeOwned>(
        &self,
        path: &[&str],
        repeat: Repeat,
        body: &B,
    ) -> Result<T, Error> {
        let body = encode(body)?;
        let request = || {
            let request = self.request(Method::POST, path, &[]).timeout(CALL_TIMEOUT);
            request
                .header(http::header::CONTENT_TYPE, "application/json")
                .body(body.clone())
        };
        http_client::json(self.send(repeat, request).await?).await
    }

    /// Sends a request, and again after failures that may pass.
    pub(crate) async fn send(
        &self,
        repeat: Repeat,
        request: impl Fn() -> RequestBuilder,
    ) -> Result<Response, Error> {
        let mut backoff = Backoff::new(self.settings().retry_timeout);
        loop {
            let failure = match http_client::attempt(request()).await {
                Ok(response) => return Ok(response),
                Err(failure) => failure,
            };
            let again = match repeat {
                Repeat::Temporary => failure.is_temporary(),
                // 503 of the API does not say that nothing was written.
                Repeat::Unsent => matches!(failure, Failure::Connection { sent: false, .. }),
            };
            if !again || !backoff.wait().await {
                return Err(failure.into());
            }
        }
    }
}

/// Adds a path, whose segments are encoded, and a query.
pub(crate) fn below(mut url: Url, path: &[&str], query: &[(&str, &str)]) -> Url {
    if let Ok(mut segments) = url.path_segments_mut() {
        segments.pop_if_empty().extend(path);
    }
    if !query.is_empty() {
        url.query_pairs_mut().extend_pairs(query);
    }
    url
}

/// Encodes a body.
pub(crate) fn encode(body: &impl Serialize) -> Result<Vec<u8>, Error> {
    serde_json::to_vec(body)
        .map_err(|error| Error::Settings(format!("the body cannot be encoded: {error}")))
}

/// Names what a 404 is about.
fn missing(error: Error, thing: impl FnOnce() -> String) -> Error {
    match error {
        Error::Rejected {
            status: StatusCode::NOT_FOUND,
            ..
        } => Error::NotFound(thing()),
        error => error,
    }
}
