//! Startup probes over HTTP, as the kubelet makes them: a container is ready once one has passed.

use std::net::Ipv4Addr;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, header};
use http_body_util::Empty;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::Container;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

const DEFAULT_PERIOD: i32 = 10;
const DEFAULT_TIMEOUT: i32 = 1;
const DEFAULT_FAILURES: i32 = 3;

#[derive(Debug)]
pub(super) struct StartupProbe {
    port: u16,
    path: String,
    delay: Duration,
    period: Duration,
    timeout: Duration,
    failures: i32,
}

impl StartupProbe {
    /// The probe of a container, if it has one by HTTP. Others are not made.
    pub(super) fn of(container: &Container) -> Option<Self> {
        let probe = container.startup_probe.as_ref()?;
        let get = probe.http_get.as_ref()?;
        let port = match &get.port {
            IntOrString::Int(port) => *port,
            IntOrString::String(name) => {
                let mut ports = container.ports.iter().flatten();
                ports
                    .find(|port| port.name.as_ref() == Some(name))?
                    .container_port
            }
        };
        Some(Self {
            port: u16::try_from(port).ok()?,
            path: get.path.clone().unwrap_or_else(|| "/".to_owned()),
            delay: seconds(probe.initial_delay_seconds, 0),
            period: seconds(probe.period_seconds, DEFAULT_PERIOD),
            timeout: seconds(probe.timeout_seconds, DEFAULT_TIMEOUT),
            failures: probe.failure_threshold.unwrap_or(DEFAULT_FAILURES),
        })
    }

    /// Asks until one attempt passes. Returns false if too many in a row have failed.
    pub(super) async fn passes(&self, address: Ipv4Addr) -> bool {
        sleep(self.delay).await;
        for _ in 0..self.failures {
            let attempt = timeout(self.timeout, self.attempt(address)).await;
            if matches!(attempt, Ok(Some(true))) {
                return true;
            }
            sleep(self.period).await;
        }
        false
    }

    async fn attempt(&self, address: Ipv4Addr) -> Option<bool> {
        let stream = TcpStream::connect((address, self.port)).await.ok()?;
        let handshake = http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = handshake.ok()?;
        let request = Request::get(&*self.path)
            .header(header::HOST, format!("{address}:{}", self.port))
            .body(Empty::<Bytes>::new());
        let response = sender.send_request(request.ok()?);
        let passes = tokio::select! {
            response = response => response.ok()?.status(),
            _ = connection => return None,
        };
        Some(passes.is_success() || passes.is_redirection())
    }
}

fn seconds(value: Option<i32>, default: i32) -> Duration {
    let seconds = value.unwrap_or(default);
    Duration::from_secs(u64::try_from(seconds).unwrap_or_default())
}
