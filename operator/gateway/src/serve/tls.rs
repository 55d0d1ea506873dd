//! TLS of the listener: a certificate from files, which are read again when they change. Kubernetes
//! replaces the files of a mounted Secret by a symlink, so the content is compared and not watched.

use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use ring::digest::{SHA256, digest};
use rustls::ServerConfig;
use rustls::pki_types::pem::{Error as PemError, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::TcpStream;
use tokio::task::spawn_blocking;
use tokio::time::sleep;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// Interval of comparisons. The kubelet itself takes a minute to change a mounted Secret.
const RELOAD_INTERVAL: Duration = Duration::from_secs(10);
/// Maximum that is read of a file. A chain of certificates takes some kilobytes.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// Application protocols (ALPN), the preferred one first.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    #[error("cannot read {0}: {1}")]
    Read(PathBuf, #[source] io::Error),
    #[error("{0} is not a PEM file of {1}: {2}")]
    Pem(PathBuf, &'static str, #[source] PemError),
    #[error("certificate and key do not fit: {0}")]
    Unusable(#[source] rustls::Error),
}

/// Certificate of the gateway, with the files that it came from.
#[derive(Debug)]
pub struct Certificate {
    chain: PathBuf,
    key: PathBuf,
    config: Mutex<Arc<ServerConfig>>,
    /// Hash of the files at the last attempt, usable or not, so that a fault is reported once.
    seen: Mutex<Vec<u8>>,
}

impl Certificate {
    /// Loads the PEM files of a chain of certificates and of its private key.
    pub fn load(chain: PathBuf, key: PathBuf) -> Result<Arc<Self>, CertificateError> {
        let contents = [read(&chain)?, read(&key)?];
        Ok(Arc::new(Self {
            config: Mutex::new(server_config([&chain, &key], &contents)?),
            seen: Mutex::new(hash(&contents)),
            chain,
            key,
        }))
    }

    /// Loads the files again if they have changed. The certificate stays if they cannot be used.
    pub fn reload(&self) -> Result<bool, CertificateError> {
        let contents = [read(&self.chain)?, read(&self.key)?];
        let hash = hash(&contents);
        if std::mem::replace(&mut *self.seen.lock(), hash.clone()) == hash {
            return Ok(false);
        }
        let config = server_config([&self.chain, &self.key], &contents)?;
        *self.config.lock() = config;
        Ok(true)
    }

    /// Loads the files again whenever they change, for ever.
    pub(crate) async fn follow_files(self: Arc<Self>) {
        loop {
            sleep(RELOAD_INTERVAL).await;
            let certificate = self.clone();
            match spawn_blocking(move || certificate.reload()).await {
                Ok(Ok(true)) => tracing::info!("the TLS certificate is loaded again"),
                Ok(Err(error)) => tracing::warn!(%error, "the TLS certificate stays as it was"),
                Ok(Ok(false)) | Err(_) => {}
            }
        }
    }

    pub(super) async fn accept(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let acceptor = TlsAcceptor::from(self.config.lock().clone());
        acceptor.accept(stream).await
    }
}

fn read(path: &Path) -> Result<Vec<u8>, CertificateError> {
    let mut content = Vec::new();
    let file = fs::File::open(path);
    file.and_then(|file| file.take(MAX_FILE_BYTES).read_to_end(&mut content))
        .map_err(|error| CertificateError::Read(path.to_owned(), error))?;
    Ok(content)
}

fn hash(contents: &[Vec<u8>; 2]) -> Vec<u8> {
    digest(&SHA256, &contents.concat()).as_ref().to_vec()
}

fn server_config(
    [chain_path, key_path]: [&Path; 2],
    [chain, key]: &[Vec<u8>; 2],
) -> Result<Arc<ServerConfig>, CertificateError> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(chain).collect();
    let chain = chain.and_then(|chain| match chain.len() {
        0 => Err(PemError::NoItemsFound),
        _ => Ok(chain),
    });
    let chain = chain
        .map_err(|error| CertificateError::Pem(chain_path.to_owned(), "certificates", error))?;
    let key = PrivateKeyDer::from_pem_slice(key)
        .map_err(|error| CertificateError::Pem(key_path.to_owned(), "a private key", error))?;
    let builder = ServerConfig::builder().with_no_client_auth();
    let mut config = builder
        .with_single_cert(chain, key)
        .map_err(CertificateError::Unusable)?;
    config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).into();
    Ok(Arc::new(config))
}
