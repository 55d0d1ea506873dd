//! Proxies of the sandbox whose URL has a user name and password, which Chromium ignores
//! (`docs/specs/browser.md`, 6.5). It gets the address of a forwarder on loopback instead, which adds them
//! to each request.

use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use hyper_util::client::proxy::matcher::Matcher;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;

use self::head::HeadError;
use crate::serve::shell::LaunchContext;

mod head;

/// Variables that Chromium reads, in either case.
const VARIABLES: [&str; 6] = [
    "http_proxy",
    "HTTP_PROXY",
    "https_proxy",
    "HTTPS_PROXY",
    "all_proxy",
    "ALL_PROXY",
];
const MAX_CONNECTIONS: usize = 256;
/// Time to receive the head of a request, after Chromium has connected.
const HEAD_TIMEOUT: Duration = Duration::from_mins(5);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
const NO_PROXY: &[u8] =
    b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

/// Forwarders of one browser; they end when this is dropped.
#[derive(Debug, Default)]
pub(super) struct Forwarders {
    /// Variables of the browser, with the address of a forwarder each.
    pub(super) variables: Vec<(&'static str, String)>,
    tasks: Vec<AbortOnDropHandle<()>>,
}

/// Proxy that needs a user name and password.
#[derive(Debug, Clone)]
struct Upstream {
    host: String,
    port: u16,
    authorization: HeaderValue,
}

impl Forwarders {
    /// Starts one for each variable whose proxy needs it.
    pub(super) async fn start(start: &LaunchContext) -> io::Result<Self> {
        let mut forwarders = Self::default();
        for name in VARIABLES {
            let value = start.variable(name);
            let value = value.as_deref().and_then(|value| value.to_str());
            let Some(upstream) = value.and_then(Upstream::parse) else {
                continue;
            };
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
            let address = format!("http://{}", listener.local_addr()?);
            forwarders.variables.push((name, address));
            let task = tokio::spawn(accept(listener, Arc::new(upstream)));
            forwarders.tasks.push(AbortOnDropHandle::new(task));
        }
        Ok(forwarders)
    }
}

impl Upstream {
    /// `None` for a URL without user name and password, and for proxies of other protocols.
    fn parse(url: &str) -> Option<Self> {
        let matcher = Matcher::builder().all(url).build();
        let proxy = matcher.intercept(&http::Uri::from_static("http://any"))?;
        let authorization = proxy.basic_auth()?.clone();
        if proxy.uri().scheme_str() != Some("http") {
            tracing::warn!(
                "the browser uses a proxy without user name and password: it is not http"
            );
            return None;
        }
        let host = proxy.uri().host()?.trim_matches(['[', ']']).to_owned();
        let port = proxy.uri().port_u16().unwrap_or(80);
        Some(Self {
            host,
            port,
            authorization,
        })
    }
}

async fn accept(listener: TcpListener, upstream: Arc<Upstream>) {
    let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut connections = JoinSet::new();
    while let Ok(slot) = Arc::clone(&slots).acquire_owned().await {
        let Ok((client, _)) = listener.accept().await else {
            // Mostly too many open files.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        while connections.try_join_next().is_some() {}
        let upstream = Arc::clone(&upstream);
        connections.spawn(async move {
            let _slot = slot;
            if let Err(error) = forward(client, &upstream).await {
                tracing::debug!(%error, "a connection of the browser to its proxy has failed");
            }
        });
    }
}

/// Forwards one request and what follows it.
async fn forward(mut client: TcpStream, upstream: &Upstream) -> Result<(), HeadError> {
    let mut received = Vec::new();
    let reading = tokio::time::timeout(HEAD_TIMEOUT, read_head(&mut client, &mut received));
    let Some(length) = reading.await.map_err(io::Error::from)?? else {
        return Ok(());
    };
    let head = head::authorized(&received[..length], &upstream.authorization)?;
    let connecting = TcpStream::connect((upstream.host.as_str(), upstream.port));
    let connected = tokio::time::timeout(CONNECT_TIMEOUT, connecting).await;
    let mut proxy = match connected
        .map_err(io::Error::from)
        .and_then(|connected| connected)
    {
        Ok(proxy) => proxy,
        Err(error) => {
            client.write_all(NO_PROXY).await?;
            return Err(error.into());
        }
    };
    proxy.write_all(&head).await?;
    proxy.write_all(&received[length..]).await?;
    tokio::io::copy_bidirectional(&mut client, &mut proxy).await?;
    Ok(())
}

/// Length of the head; `None` if the client has closed a connection that it did not use.
async fn read_head(
    client: &mut TcpStream,
    received: &mut Vec<u8>,
) -> Result<Option<usize>, HeadError> {
    loop {
        if let Some(length) = head::length(received)? {
            return Ok(Some(length));
        }
        if client.read_buf(received).await? == 0 {
            return Ok(None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_http_proxies_with_user_name_are_forwarded_to() {
        for url in [
            "http://proxy:3128",
            "socks5://a:b@proxy",
            "https://a:b@proxy",
            "",
            "http://",
        ] {
            assert!(Upstream::parse(url).is_none(), "{url}");
        }
        for (url, host, port) in [
            ("http://a:p%40ss@proxy:3128/", "proxy", 3128),
            ("a:p%40ss@proxy", "proxy", 80),
            ("http://a:p%40ss@[::1]:1", "::1", 1),
        ] {
            let upstream = Upstream::parse(url).unwrap();
            assert_eq!((upstream.host.as_str(), upstream.port), (host, port));
            assert_eq!(upstream.authorization, "Basic YTpwQHNz");
        }
    }
}
