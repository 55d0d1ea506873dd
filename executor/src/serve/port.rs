//! Port of the API. That of a dormant server is open, and answers 503 until there is a router.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use axum::{Json, Router};
use http::StatusCode;
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::SetOnce;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::cli::ServeOptions;
use crate::http_server::{self, Limits};

const LIMITS: Limits = Limits {
    connections: 512,
    // Clients pool connections. A shorter limit would make their next call on an idle one fail.
    header_timeout: Duration::from_mins(5),
    grace: Duration::from_secs(2),
};

/// Time that a request waits for the router: the supervisor asks right after the init message.
const HOLD: Duration = Duration::from_millis(50);

type Gate = Arc<SetOnce<Router>>;

#[derive(Debug)]
pub(super) struct Port {
    /// Address of the settings; its port may be 0.
    requested: SocketAddr,
    pub(super) number: u16,
    pub(super) stop: CancellationToken,
    state: PortState,
}

#[derive(Debug)]
enum PortState {
    Bound(TcpListener),
    Dormant(Gate, JoinHandle<()>),
}

impl Port {
    /// Binds the port of the settings. No request is accepted yet.
    pub(super) async fn bind(options: &ServeOptions) -> anyhow::Result<Self> {
        let requested = address(options);
        let listener = http_server::bind(requested).await?;
        Ok(Self {
            requested,
            number: listener.local_addr()?.port(),
            stop: CancellationToken::new(),
            state: PortState::Bound(listener),
        })
    }

    /// As [`Self::bind`]; all requests are answered with 503.
    pub(super) async fn bind_dormant(options: &ServeOptions) -> anyhow::Result<Self> {
        let mut port = Self::bind(options).await?;
        if let PortState::Bound(listener) = port.state {
            let gate = Gate::default();
            let router = Router::new().fallback(pass).with_state(Arc::clone(&gate));
            let serving = serve(listener, router, &port.stop)?;
            port.state = PortState::Dormant(gate, serving);
        }
        Ok(port)
    }

    /// The port of other settings: this one if it is the same.
    pub(super) async fn resume(self, options: &ServeOptions) -> anyhow::Result<Self> {
        if self.requested == address(options) {
            return Ok(self);
        }
        self.stop.cancel();
        if let PortState::Dormant(_, serving) = self.state {
            serving.await?;
        }
        Self::bind(options).await
    }

    /// Serves until `stop` is cancelled.
    pub(super) fn serve(self, router: Router) -> io::Result<JoinHandle<()>> {
        match self.state {
            PortState::Bound(listener) => serve(listener, router, &self.stop),
            PortState::Dormant(gate, serving) => {
                // Set once: the port is consumed.
                let _ = gate.set(router);
                Ok(serving)
            }
        }
    }
}

fn address(options: &ServeOptions) -> SocketAddr {
    let all = Ipv4Addr::UNSPECIFIED.into();
    SocketAddr::new(options.bind_address.unwrap_or(all), options.port)
}

fn serve(
    listener: TcpListener,
    router: Router,
    stop: &CancellationToken,
) -> io::Result<JoinHandle<()>> {
    http_server::announce(&listener)?;
    let serving = http_server::serve(listener, router, LIMITS, stop.clone());
    Ok(tokio::spawn(serving))
}

/// Passes requests to the router once there is one.
async fn pass(State(gate): State<Gate>, request: Request) -> Response {
    let Ok(router) = timeout(HOLD, gate.wait()).await else {
        let body = Json(json!({"detail": "The server is not initialized"}));
        return (StatusCode::SERVICE_UNAVAILABLE, body).into_response();
    };
    let answered = TowerToHyperService::new(router.clone()).call(request).await;
    answered.unwrap_or_else(|never| match never {})
}
