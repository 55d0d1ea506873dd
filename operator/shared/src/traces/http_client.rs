//! HTTP client of the exporter. The exporter runs on a thread of its own and the client needs the
//! sockets and timers of the runtime, so each request is a task there.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::future::BoxFuture;
use http::{Request, Response};
use opentelemetry_http::{HttpClient, HttpError, ResponseBodyTooLarge};
use reqwest::{Certificate, Client, redirect};
use tokio::runtime::Handle;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

/// Time of one attempt, with its response.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(3);
/// Bytes of a response. It has a short text at most.
const MAX_RESPONSE_BYTES: usize = 64 << 10;

/// Client for the collector.
#[derive(Debug)]
pub(super) struct CollectorClient {
    client: Client,
    runtime: Handle,
}

impl CollectorClient {
    pub(super) fn new() -> Result<Self, String> {
        // Another part of the process may have done it.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let builder = || Client::builder().redirect(redirect::Policy::none());
        // An image of one program has no certificates of authorities: those of Mozilla are used there.
        let client = builder().build().or_else(|_| {
            let authorities = webpki_root_certs::TLS_SERVER_ROOT_CERTS.iter();
            let authorities = authorities.map(|authority| Certificate::from_der(authority));
            let authorities: Vec<_> = authorities.collect::<Result<_, _>>()?;
            builder().tls_certs_only(authorities).build()
        });
        Ok(Self {
            client: client.map_err(|error| error.to_string())?,
            runtime: Handle::try_current().map_err(|error| error.to_string())?,
        })
    }
}

impl HttpClient for CollectorClient {
    fn send_bytes<'me, 'run>(
        &'me self,
        request: Request<Bytes>,
    ) -> BoxFuture<'run, Result<Response<Bytes>, HttpError>>
    where
        'me: 'run,
        Self: 'run,
    {
        let sending = send(self.client.clone(), request);
        // The timer is made in the task as well.
        let sending = async move { timeout(ATTEMPT_TIMEOUT, sending).await };
        let task = AbortOnDropHandle::new(self.runtime.spawn(sending));
        Box::pin(async move { task.await?? })
    }
}

async fn send(client: Client, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
    let mut response = client.execute(request.try_into()?).await?;
    let mut body = BytesMut::new();
    while let Some(part) = response.chunk().await? {
        if body.len() + part.len() > MAX_RESPONSE_BYTES {
            return Err(Box::new(ResponseBodyTooLarge::new()));
        }
        body.extend_from_slice(&part);
    }
    let mut answer = Response::new(body.freeze());
    *answer.status_mut() = response.status();
    std::mem::swap(answer.headers_mut(), response.headers_mut());
    Ok(answer)
}
