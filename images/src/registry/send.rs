//! Requests to registries, with authorization and bounded attempts.

use http::StatusCode;
use reqwest::{RequestBuilder, Response};
use tokio::time::sleep;

use super::response::{causes, failure, retry_after};
use super::token::Authorization;
use super::{ATTEMPTS, MAX_PAUSE, Origin, Registry, RegistryError};

impl Registry {
    /// Sends a request below `/v2/REPOSITORY/`, with a token if the registry asks for one. A
    /// success is the only result without an error.
    pub(super) async fn get(
        &self,
        origin: &Origin<'_>,
        path: &str,
        what: &str,
        prepare: impl Fn(RequestBuilder) -> RequestBuilder,
    ) -> Result<Response, RegistryError> {
        let url = self.url(origin, path);
        let request = || prepare(self.0.client.get(&url));
        self.send(origin, what, request).await
    }

    pub(super) fn url(&self, origin: &Origin<'_>, path: &str) -> String {
        let scheme = self.scheme(&origin.host);
        format!("{scheme}://{}/v2/{}/{path}", origin.host, origin.repository)
    }

    /// Sends a request to the host of `origin`, as often as it takes.
    pub(super) async fn send(
        &self,
        origin: &Origin<'_>,
        what: &str,
        request: impl Fn() -> RequestBuilder,
    ) -> Result<Response, RegistryError> {
        let mut authorization = self.0.tokens.known(origin);
        let mut is_authorized_anew = false;
        let mut attempt = 0;
        loop {
            let request = match &authorization {
                Some(authorization) => authorization.apply(request()),
                None => request(),
            };
            attempt += 1;
            let response = match request.send().await {
                Ok(response) => response,
                Err(error) if attempt < ATTEMPTS && !error.is_connect() => {
                    sleep(self.0.pause * attempt).await;
                    continue;
                }
                Err(error) => {
                    let (what, cause) = (what.to_owned(), causes(&error));
                    return Err(RegistryError::Unreachable { what, cause });
                }
            };
            match response.status() {
                status if status.is_success() => return Ok(response),
                StatusCode::UNAUTHORIZED if !is_authorized_anew => {
                    is_authorized_anew = true;
                    authorization = self.authorize(origin, &response, what).await?;
                    if authorization.is_none() {
                        return Err(failure(response, what).await);
                    }
                }
                status if is_temporary(status) && attempt < ATTEMPTS => {
                    let pause = retry_after(&response).unwrap_or(self.0.pause * attempt);
                    sleep(pause.min(MAX_PAUSE)).await;
                }
                _ => return Err(failure(response, what).await),
            }
        }
    }

    pub(super) fn scheme(&self, host: &str) -> &'static str {
        if self.0.settings.insecure.contains(host) {
            "http"
        } else {
            "https"
        }
    }

    /// Answers the challenge of a registry; `None` if there is no way.
    async fn authorize(
        &self,
        origin: &Origin<'_>,
        response: &Response,
        what: &str,
    ) -> Result<Option<Authorization>, RegistryError> {
        let is_insecure = self.scheme(&origin.host) == "http";
        let tokens = &self.0.tokens;
        tokens
            .authorize(&self.0.client, origin, response, is_insecure, what)
            .await
    }
}

fn is_temporary(status: StatusCode) -> bool {
    status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error()
}
