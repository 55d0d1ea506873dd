//! Certificate chain and key of a Secret of type `kubernetes.io/tls`.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, Error, RootCertStore};
use serde_json::Value;

/// Time before the end of a certificate in which it should be renewed.
const RENEWAL: Duration = Duration::from_hours(7 * 24);

#[derive(Debug)]
pub(super) struct Pair {
    leaf: CertificateDer<'static>,
    /// End of the certificate, if it is near.
    pub(super) expiry: Option<Timestamp>,
}

impl Pair {
    /// Returns true if clients accept the certificate for this host.
    pub(super) fn covers(&self, host: &str) -> bool {
        let Ok(certificate) = ParsedCertificate::try_from(&self.leaf) else {
            return false;
        };
        let name = ServerName::try_from(host);
        name.is_ok_and(|name| verify_server_name(&certificate, &name).is_ok())
    }
}

/// Reads and compares certificate and key. The signer is not judged: clients may
/// trust a private authority.
pub(super) fn read(secret: &Value, now: Timestamp) -> Result<Pair, String> {
    let field = |name: &str| {
        let value = secret["data"][name].as_str();
        let value = value.and_then(|text| STANDARD.decode(text).ok());
        value.ok_or_else(|| format!("{name} is absent"))
    };
    let (chain, key) = (field("tls.crt")?, field("tls.key")?);
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&chain).collect();
    let chain = chain.map_err(|_| "tls.crt is not PEM")?;
    let leaf = chain.first().ok_or("tls.crt has no certificate")?.clone();
    let key = PrivateKeyDer::from_pem_slice(&key).map_err(|_| "tls.key is not a PEM key")?;
    match CertifiedKey::from_der(chain, key, &default_provider()) {
        Ok(_) => {}
        Err(Error::InconsistentKeys(_)) => {
            return Err("the key is not that of the certificate".into());
        }
        Err(_) => return Err("certificate or key cannot be used".into()),
    }
    let seconds = u64::try_from(now.as_second()).unwrap_or_default();
    let now = Duration::from_secs(seconds);
    match fault(&leaf, now) {
        Some(CertificateError::ExpiredContext { not_after, .. }) => {
            return Err(format!("the certificate expired on {}", time(not_after)));
        }
        Some(CertificateError::NotValidYetContext { not_before, .. }) => {
            return Err(format!(
                "the certificate is not valid before {}",
                time(not_before)
            ));
        }
        _ => {}
    }
    let expiry = match fault(&leaf, now + RENEWAL) {
        Some(CertificateError::ExpiredContext { not_after, .. }) => Some(time(not_after)),
        _ => None,
    };
    Ok(Pair { leaf, expiry })
}

/// Fault of a certificate at a time since 1970. The time is judged before the signer, and no signer
/// is known here: a certificate in its time has the fault of an unknown signer.
fn fault(leaf: &CertificateDer<'_>, at: Duration) -> Option<CertificateError> {
    let certificate = ParsedCertificate::try_from(leaf).ok()?;
    let provider = default_provider();
    let verified = verify_server_cert_signed_by_trust_anchor(
        &certificate,
        &RootCertStore::empty(),
        &[],
        UnixTime::since_unix_epoch(at),
        provider.signature_verification_algorithms.all,
    );
    match verified {
        Err(Error::InvalidCertificate(fault)) => Some(fault),
        _ => None,
    }
}

fn time(time: UnixTime) -> Timestamp {
    let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    Timestamp::from_second(seconds).unwrap_or(Timestamp::MAX)
}
