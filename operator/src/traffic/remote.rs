//! The gateways of a cluster, asked over HTTP on their administration ports. Each replica sees only
//! its own requests, so all have to answer: one that is missing may be the one with the open stream.

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

use super::desk::{self, Report};
use super::{Gateways, GatewaysError, Traffic};
use crate::clock::Clock;
use crate::index::Key;
use crate::keys::Keys;

/// Longest wait for a name, and for the answer of one gateway.
const LIMIT: Duration = Duration::from_secs(2);
/// Gateways asked at once for one sandbox.
const CONCURRENT: usize = 16;
/// Longest answer in bytes.
const MAX_ANSWER: usize = 1024;

/// All addresses behind some names.
#[derive(Debug)]
pub struct HttpGateways {
    /// Hosts and ports; the name of a headless Service in a cluster.
    places: Vec<String>,
    keys: Arc<Keys>,
    clock: Clock,
}

/// Why one gateway gave no answer.
#[derive(Debug, thiserror::Error)]
enum Silence {
    #[error("it cannot be reached: {0}")]
    Connect(#[from] std::io::Error),
    #[error("no answer within {} s", LIMIT.as_secs())]
    Timeout,
    #[error("the connection broke: {0}")]
    Broken(#[from] hyper::Error),
    #[error("it answers with status {0}")]
    Status(StatusCode),
    #[error("its answer cannot be read")]
    Malformed,
    #[error("the question cannot be written")]
    Question,
}

impl HttpGateways {
    /// Gateways at `places`, each a `HOST:PORT`. Questions are signed with the keys of the
    /// installation.
    pub fn new(places: Vec<String>, keys: Arc<Keys>, clock: Clock) -> Self {
        Self {
            places,
            keys,
            clock,
        }
    }

    async fn ask_all(&self, sandbox: &Key) -> Result<Option<Traffic>, GatewaysError> {
        let addresses = self.addresses().await?;
        let token = desk::question(&self.keys, sandbox, self.clock.now());
        let token = token.map_err(|error| GatewaysError(error.to_string()))?;
        let ask = |address| {
            let asked = timeout(LIMIT, ask(address, sandbox, &token));
            asked.map(move |answer| match answer {
                Ok(answer) => answer.map_err(|silence| about(address, &silence)),
                Err(_) => Err(about(address, &Silence::Timeout)),
            })
        };
        let asked: Vec<_> = addresses.into_iter().map(ask).collect();
        let mut answers = stream::iter(asked).buffer_unordered(CONCURRENT);
        let mut all: Option<Traffic> = None;
        while let Some(answer) = answers.next().await {
            let one = answer?;
            all = Some(all.map_or(one, |all| all.and(one)));
        }
        Ok(all)
    }

    /// Where the gateways are now.
    async fn addresses(&self) -> Result<BTreeSet<SocketAddr>, GatewaysError> {
        let mut addresses = BTreeSet::new();
        for place in &self.places {
            addresses.extend(resolve(place).await?);
        }
        Ok(addresses)
    }
}

/// All addresses of a place. That there are none is no reason to think that nothing happens.
async fn resolve(place: &str) -> Result<BTreeSet<SocketAddr>, GatewaysError> {
    let found = timeout(LIMIT, lookup_host(place)).await;
    let found = found.map_err(|_| GatewaysError(format!("{place} is not resolved in time")))?;
    let found = found.map_err(|error| GatewaysError(format!("{place}: {error}")))?;
    let addresses: BTreeSet<_> = found.collect();
    if addresses.is_empty() {
        return Err(GatewaysError(format!("{place} has no address")));
    }
    Ok(addresses)
}

impl Gateways for HttpGateways {
    fn traffic<'a>(
        &'a self,
        sandbox: &'a Key,
    ) -> BoxFuture<'a, Result<Option<Traffic>, GatewaysError>> {
        self.ask_all(sandbox).boxed()
    }
}

fn about(address: SocketAddr, silence: &Silence) -> GatewaysError {
    GatewaysError(format!("{address}: {silence}"))
}

async fn ask(address: SocketAddr, sandbox: &Key, token: &str) -> Result<Traffic, Silence> {
    let stream = TcpStream::connect(address).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let _connection = AbortOnDropHandle::new(tokio::spawn(connection));
    let request = Request::get(desk::path(sandbox))
        .header(HOST, address.to_string())
        .header(AUTHORIZATION, format!("Bearer {token}"))
        .body(Body::empty())
        .map_err(|_| Silence::Question)?;
    let response = sender.send_request(request).await?;
    if response.status() != StatusCode::OK {
        return Err(Silence::Status(response.status()));
    }
    let body = Limited::new(response.into_body(), MAX_ANSWER).collect();
    let body = body.await.map_err(|_| Silence::Malformed)?.to_bytes();
    let report: Report = serde_json::from_slice(&body).map_err(|_| Silence::Malformed)?;
    report.read().ok_or(Silence::Malformed)
}
