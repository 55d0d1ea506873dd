//! Queries the gateways of a cluster over HTTP on their admin ports. Each replica sees only its own
//! requests, so all must respond: a missing one may have the open stream.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _, stream};
use http::header::{AUTHORIZATION, HOST};
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use super::endpoint::{self, TrafficReport};
use super::{Gateways, GatewaysError, Traffic};
use crate::clock::Clock;
use crate::index::Key;
use crate::keys::Keys;

/// Timeout of a DNS lookup and of the response of one gateway.
const CALL_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum of concurrent calls for one sandbox.
const MAX_CONCURRENT_CALLS: usize = 16;
const MAX_RESPONSE_BYTES: usize = 1024;

/// Gateways behind host names.
#[derive(Debug)]
pub struct HttpGateways {
    /// Each a `HOST:PORT`; in a cluster the name of a headless Service.
    endpoints: Vec<String>,
    keys: Arc<Keys>,
    clock: Clock,
}

impl HttpGateways {
    /// Endpoints are `HOST:PORT`. Queries are signed with the keys of the installation.
    pub fn new(endpoints: Vec<String>, keys: Arc<Keys>, clock: Clock) -> Self {
        Self {
            endpoints,
            keys,
            clock,
        }
    }

    async fn query_all(&self, sandbox: &Key) -> Result<Option<Traffic>, GatewaysError> {
        let mut addresses = BTreeSet::new();
        for endpoint_name in &self.endpoints {
            addresses.extend(resolve(endpoint_name).await?);
        }
        let token = endpoint::sign_query(&self.keys, sandbox, self.clock.now());
        let token = token.map_err(|error| GatewaysError(error.to_string()))?;
        let token = token.as_str();
        let call = |address| async move {
            let report = timeout(CALL_TIMEOUT, query(address, sandbox, token)).await;
            let late = || format!("no response within {} s", CALL_TIMEOUT.as_secs());
            let report = report.unwrap_or_else(|_| Err(late()));
            report.map_err(|error| GatewaysError(format!("{address}: {error}")))
        };
        let calls: Vec<_> = addresses.into_iter().map(call).collect();
        let mut reports = stream::iter(calls).buffer_unordered(MAX_CONCURRENT_CALLS);
        let mut all: Option<Traffic> = None;
        while let Some(report) = reports.next().await {
            let one = report?;
            all = Some(all.map_or(one, |all| all.merge(one)));
        }
        Ok(all)
    }
}

/// All addresses of an endpoint. Without addresses the traffic is unknown, not zero.
async fn resolve(endpoint_name: &str) -> Result<BTreeSet<SocketAddr>, GatewaysError> {
    let found = timeout(CALL_TIMEOUT, lookup_host(endpoint_name)).await;
    let found =
        found.map_err(|_| GatewaysError(format!("{endpoint_name}: DNS lookup timed out")))?;
    let found = found.map_err(|error| GatewaysError(format!("{endpoint_name}: {error}")))?;
    let addresses: BTreeSet<_> = found.collect();
    if addresses.is_empty() {
        return Err(GatewaysError(format!("{endpoint_name} has no address")));
    }
    Ok(addresses)
}

impl Gateways for HttpGateways {
    fn traffic<'a>(
        &'a self,
        sandbox: &'a Key,
    ) -> BoxFuture<'a, Result<Option<Traffic>, GatewaysError>> {
        self.query_all(sandbox).boxed()
    }
}

/// Queries one gateway. An error is the reason why it gave no report.
async fn query(address: SocketAddr, sandbox: &Key, token: &str) -> Result<Traffic, String> {
    let lost = |error: hyper::Error| format!("connection lost: {error}");
    let stream = TcpStream::connect(address).await;
    let stream = stream.map_err(|error| format!("connection failed: {error}"))?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(lost)?;
    let _connection = AbortOnDropHandle::new(tokio::spawn(connection));
    let request = Request::get(endpoint::path(sandbox))
        .header(HOST, address.to_string())
        .header(AUTHORIZATION, format!("Bearer {token}"))
        .body(Body::empty())
        .map_err(|_| "cannot build the request")?;
    let response = sender.send_request(request).await.map_err(lost)?;
    if response.status() != StatusCode::OK {
        return Err(format!("response with status {}", response.status()));
    }
    let body = Limited::new(response.into_body(), MAX_RESPONSE_BYTES);
    let body = body.collect().await.ok();
    let report = body.and_then(|body| {
        let report: TrafficReport = serde_json::from_slice(&body.to_bytes()).ok()?;
        report.read()
    });
    report.ok_or_else(|| "invalid response".into())
}
