//! Protocols between TCP and HTTP on a client connection: the PROXY protocol of trusted proxies, and
//! TLS. Both are optional.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use rustix::net::sockopt;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;

use super::proxy_protocol;
use crate::GatewayConfig;
use crate::client_address::is_trusted;

/// The stream of a client below HTTP: plain TCP, or TLS.
pub(super) type Transport = Either<TcpStream, Box<TlsStream<TcpStream>>>;

/// Timeout of PROXY header and TLS handshake together.
const OPEN_TIMEOUT: Duration = Duration::from_secs(10);
/// TCP keepalive: a client that vanished is noticed after two minutes.
const KEEPALIVE_IDLE: Duration = Duration::from_mins(1);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
const KEEPALIVE_PROBES: u32 = 4;

/// Reads a PROXY header where one is due (`peer` becomes a client that `admit` accepts), then TLS.
pub(super) async fn open(
    config: &GatewayConfig,
    mut stream: TcpStream,
    peer: &mut SocketAddr,
    admit: impl FnOnce(IpAddr) -> bool,
) -> io::Result<Transport> {
    set_options(&stream);
    let is_proxy = is_trusted(peer.ip().to_canonical(), &config.trusted_proxies);
    let open = async {
        if config.proxy_protocol && is_proxy {
            let reported = proxy_protocol::read_header(&mut stream).await?;
            if let Some(client) = reported {
                *peer = client;
                if !admit(client.ip()) {
                    return Err(io::ErrorKind::QuotaExceeded.into());
                }
            }
        }
        Ok(match &config.certificate {
            Some(certificate) => Either::Right(Box::new(certificate.accept(stream).await?)),
            None => Either::Left(stream),
        })
    };
    timeout(OPEN_TIMEOUT, open).await?
}

/// Sets socket options; the connection works without them.
fn set_options(stream: &TcpStream) {
    // Without it, small responses wait for the acknowledgement of the client.
    let _ = stream.set_nodelay(true);
    let _ = sockopt::set_socket_keepalive(stream, true);
    let _ = sockopt::set_tcp_keepidle(stream, KEEPALIVE_IDLE);
    let _ = sockopt::set_tcp_keepintvl(stream, KEEPALIVE_INTERVAL);
    let _ = sockopt::set_tcp_keepcnt(stream, KEEPALIVE_PROBES);
}
