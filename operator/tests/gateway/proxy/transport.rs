//! TLS and the PROXY protocol of the listener.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use std::{fs, io};

use operator::gateway::{Certificate, CertificateError};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::support::gateway_fixture::config;
use crate::support::socket_fixture::{OK, SocketFixture};

/// Address of the trusted proxy.
const PROXY: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const HEALTH: &str = "GET /health HTTP/1.1\r\nHost: rt.example.com\r\nConnection: close\r\n\r\n";

/// Path of a certificate or key of the tests.
fn pem(name: &str) -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/gateway/certificates");
    tests.join(name)
}

pub(crate) fn load(chain: &str, key: &str) -> Result<Arc<Certificate>, CertificateError> {
    Certificate::load(pem(chain), pem(key))
}

async fn fixture(certificate: Option<Arc<Certificate>>, proxy_protocol: bool) -> SocketFixture {
    let mut config = config();
    config.trusted_proxies = vec![format!("{PROXY}/32").parse().unwrap()];
    config.certificate = certificate;
    config.proxy_protocol = proxy_protocol;
    SocketFixture::with(config).await
}

/// Begins TLS as a client that trusts one certificate.
async fn tls(stream: TcpStream, trusted: &str, protocol: &str) -> io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    let certificate = CertificateDer::from_pem_file(pem(trusted)).unwrap();
    roots.add(certificate).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![protocol.into()];
    let name = ServerName::try_from("localhost").unwrap();
    let connector = TlsConnector::from(Arc::new(config));
    let stream = connector.connect(name, stream).await?;
    let agreed = stream.get_ref().1.alpn_protocol();
    assert_eq!(agreed, Some(protocol.as_bytes()));
    Ok(stream)
}

async fn connect(
    fixture: &SocketFixture,
    trusted: &str,
    protocol: &str,
) -> io::Result<TlsStream<TcpStream>> {
    tls(
        TcpStream::connect(fixture.address).await?,
        trusted,
        protocol,
    )
    .await
}

/// First line of the response to a health check, by HTTP/1.1 over TLS.
async fn health(mut stream: TlsStream<TcpStream>) -> String {
    stream.write_all(HEALTH.as_bytes()).await.unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).await.unwrap();
    response.lines().next().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn tls_serves_http1_and_http2_and_rejects_plain_http() {
    let certificate = load("first.crt", "first.key").unwrap();
    let fixture = fixture(Some(certificate), false).await;
    // The alert of TLS is the only answer.
    assert!(
        !fixture
            .exchange("GET /health HTTP/1.1\nHost: rt.example.com\n\n")
            .await
            .contains("HTTP")
    );

    let stream = connect(&fixture, "first.crt", "http/1.1").await.unwrap();
    assert_eq!(health(stream).await, "HTTP/1.1 200 OK");
    assert!(connect(&fixture, "second.crt", "http/1.1").await.is_err());

    let stream = connect(&fixture, "first.crt", "h2").await.unwrap();
    let (client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let mut client = client.ready().await.unwrap();
    let request = http::Request::get("https://rt.example.com/health")
        .body(())
        .unwrap();
    let (response, _) = client.send_request(request, true).unwrap();
    assert_eq!(response.await.unwrap().status(), 200);
}

/// Directory of a mounted Secret, removed on drop.
struct MountedSecret(PathBuf);

impl MountedSecret {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("gateway-tls-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn replace(&self, chain: &str, key: &str) {
        fs::write(self.0.join("tls.crt"), chain).unwrap();
        fs::write(self.0.join("tls.key"), key).unwrap();
    }
}

impl Drop for MountedSecret {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[tokio::test]
async fn changed_certificate_is_loaded_and_unusable_one_is_not() {
    let text = |name: &str| fs::read_to_string(pem(name)).unwrap();
    let [first, first_key] = ["first.crt", "first.key"].map(text);
    let [second, second_key] = ["second.crt", "second.key"].map(text);
    let secret = MountedSecret::new();
    secret.replace(&first, &first_key);
    let files = ["tls.crt", "tls.key"].map(|name| secret.0.join(name));
    let [chain, key] = files;
    let certificate = Certificate::load(chain, key).unwrap();
    let fixture = fixture(Some(certificate.clone()), false).await;
    assert!(!certificate.reload().unwrap(), "nothing has changed");
    let open = connect(&fixture, "first.crt", "http/1.1").await.unwrap();

    for (chain, key) in [
        (second.as_str(), first_key.as_str()),
        ("no certificate", &second_key),
        (&second, "no key"),
    ] {
        secret.replace(chain, key);
        assert!(certificate.reload().is_err(), "{chain} {key}");
        assert!(!certificate.reload().unwrap(), "it is reported once");
        assert!(connect(&fixture, "first.crt", "http/1.1").await.is_ok());
    }
    secret.replace(&second, &second_key);
    // The gateway itself compares the files every ten seconds.
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(10)).await;
    tokio::time::resume();
    while connect(&fixture, "first.crt", "http/1.1").await.is_ok() {
        tokio::task::yield_now().await;
    }
    let stream = connect(&fixture, "second.crt", "http/1.1").await.unwrap();
    assert_eq!(health(stream).await, "HTTP/1.1 200 OK");
    assert_eq!(
        health(open).await,
        "HTTP/1.1 200 OK",
        "open connections stay"
    );
}

#[test]
fn certificate_that_cannot_be_used_is_named() {
    for (chain, key, text) in [
        ("missing.crt", "first.key", "cannot read"),
        (
            "first.key",
            "first.key",
            "first.key is not a PEM file of certificates",
        ),
        (
            "first.crt",
            "README.md",
            "README.md is not a PEM file of a private key",
        ),
        ("first.crt", "second.key", "certificate and key do not fit"),
    ] {
        let error = load(chain, key).unwrap_err().to_string();
        assert!(error.contains(text), "{error}");
    }
}

#[tokio::test]
async fn proxy_header_is_required_of_trusted_proxies_and_refused_from_others() {
    let fixture = fixture(None, true).await;
    let request = "GET /a HTTP/1.1\nHost: HOST\nConnection: close\n\n";
    let v1 = format!("PROXY TCP4 192.0.2.7 10.0.0.1 4711 80\n{request}");
    for (header, client) in [
        (v1.clone(), "192.0.2.7"),
        (format!("PROXY UNKNOWN\n{request}"), "127.0.0.2"),
    ] {
        let mut answer = fixture.client_from(PROXY.into(), &header).await;
        let mut sandbox = fixture.sandbox().await;
        let head = sandbox.head().await;
        assert!(
            head.contains(&format!("\nx-forwarded-for: {client}\n")),
            "{head}"
        );
        sandbox.send(OK).await;
        assert!(answer.rest().await.contains("200 OK"));
    }
    for header in [
        request.to_owned(),
        format!("PROXY TCP4 192.0.2.7\n{request}"),
    ] {
        let mut closed = fixture.client_from(PROXY.into(), &header).await;
        assert_eq!(closed.rest().await, "", "{header}");
    }
    let refused = fixture.exchange(&v1).await;
    assert!(refused.starts_with("HTTP/1.1 400"), "{refused}");
    let mut direct = fixture.client(request).await;
    let mut sandbox = fixture.sandbox().await;
    let head = sandbox.head().await;
    assert!(head.contains("\nx-forwarded-for: 127.0.0.1\n"), "{head}");
    sandbox.send(OK).await;
    assert!(direct.rest().await.contains("200 OK"));
}

#[tokio::test]
async fn clients_of_the_proxy_protocol_are_limited_per_address() {
    let mut config = config();
    config.trusted_proxies = vec![format!("{PROXY}/32").parse().unwrap()];
    config.proxy_protocol = true;
    config.max_connections_per_address = 2;
    let fixture = SocketFixture::with(config).await;
    let open = async |client: &str| {
        let text = format!("PROXY TCP4 {client} 10.0.0.1 1 80\nGET /health HTTP/1.1\nHost: x\n\n");
        let mut connection = fixture.client_from(PROXY.into(), &text).await;
        (connection.try_until("\n\n").await.is_some(), connection)
    };
    let [first, second] = [open("192.0.2.7").await, open("192.0.2.7").await];
    assert!(first.0 && second.0);
    assert!(!open("192.0.2.7").await.0, "one more than the limit");
    assert!(open("192.0.2.8").await.0, "of another client");
    assert_eq!(fixture.base.gateway.metrics().refused_connections.get(), 1);
}

#[tokio::test]
async fn proxy_header_precedes_tls() {
    let certificate = load("first.crt", "first.key").unwrap();
    let fixture = fixture(Some(certificate), true).await;
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((PROXY, 0).into()).unwrap();
    let mut stream = socket.connect(fixture.address).await.unwrap();
    let header = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xc0\0\x02\x07\x0a\0\0\x01\x10\0\0\x50";
    stream.write_all(header).await.unwrap();
    let stream = tls(stream, "first.crt", "http/1.1").await.unwrap();
    assert_eq!(health(stream).await, "HTTP/1.1 200 OK");
}
