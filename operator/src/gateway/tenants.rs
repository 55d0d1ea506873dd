//! Who may call the API: keys, known only by their hashes, from one Secret.
//!
//! A key is looked up by hashing what the client sent and comparing it with every record in
//! constant time, so that neither a memory dump nor a stopwatch gives a key away.

mod follow;

use std::sync::Arc;

use parking_lot::RwLock;
use ring::digest::{SHA256, SHA256_OUTPUT_LEN, digest};
use serde::Deserialize;
use subtle::ConstantTimeEq as _;
use tokio::sync::watch;

pub use follow::follow;

/// Name of the Secret that holds the records.
pub const SECRET: &str = "sandbox-api-keys";
/// Its one data key.
pub const SECRET_KEY: &str = "keys.json";
/// A name becomes part of every Sandbox of the tenant, whose schema sets this limit.
const MAX_NAME_LEN: usize = 63;

/// The owner of sandboxes: everything that one API key, or several with one name, started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tenant {
    pub name: String,
    /// Most sandboxes that may run at the same time. Absent: no limit.
    pub max_sandboxes: Option<u32>,
}

/// All tenants; cheap to clone, replaced as a whole.
#[derive(Debug, Clone)]
pub struct Tenants {
    records: Arc<RwLock<Vec<Record>>>,
    loaded: watch::Sender<bool>,
}

#[derive(Debug)]
struct Record {
    sha256: [u8; SHA256_OUTPUT_LEN],
    tenant: Arc<Tenant>,
}

/// A record as it stands in the Secret.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawRecord {
    name: String,
    sha256: String,
    #[serde(default)]
    max_sandboxes: Option<u32>,
}

/// Why nobody could be recognised.
#[derive(Debug, thiserror::Error)]
pub enum TenantError {
    #[error("missing or unknown API key: send a valid API key in the header X-API-Key")]
    Unknown,
    #[error("API keys are not loaded yet")]
    NotLoaded,
    #[error("{SECRET_KEY} is no list of keys: {0}")]
    Malformed(#[source] serde_json::Error),
}

impl Tenants {
    /// No tenants yet: nobody is refused for good before the first [`Tenants::replace`].
    pub fn pending() -> Self {
        Self {
            records: Arc::default(),
            loaded: watch::Sender::new(false),
        }
    }

    /// Tenants that never change, as names and plain keys: for one machine and for tests.
    pub fn fixed<'a>(keys: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let tenants = Self::pending();
        let records = keys.into_iter().map(|(name, key)| Record {
            sha256: hash(key),
            tenant: Arc::new(Tenant {
                name: name.to_owned(),
                max_sandboxes: None,
            }),
        });
        tenants.set(records.collect());
        tenants
    }

    /// Takes the content of `keys.json`. Records that are malformed are left out with a warning,
    /// so that one mistake does not lock everybody out.
    pub fn replace(&self, json: &[u8]) -> Result<(), TenantError> {
        let raw: Vec<serde_json::Value> =
            serde_json::from_slice(json).map_err(TenantError::Malformed)?;
        self.set(raw.into_iter().filter_map(read).collect());
        Ok(())
    }

    /// Forgets everybody.
    pub fn clear(&self) {
        self.set(Vec::new());
    }

    /// Whether there has been a [`Tenants::replace`]: before, nobody can be recognised.
    pub fn is_loaded(&self) -> bool {
        *self.loaded.borrow()
    }

    /// Whose key this is.
    pub fn recognise(&self, key: Option<&str>) -> Result<Arc<Tenant>, TenantError> {
        if !self.is_loaded() {
            return Err(TenantError::NotLoaded);
        }
        let sent = hash(key.ok_or(TenantError::Unknown)?);
        let records = self.records.read();
        // No early exit: the time taken says nothing about which record matched.
        let found = records.iter().fold(None, |found, record| {
            let same = bool::from(record.sha256.ct_eq(&sent));
            if same { Some(&record.tenant) } else { found }
        });
        found.cloned().ok_or(TenantError::Unknown)
    }

    fn set(&self, records: Vec<Record>) {
        *self.records.write() = records;
        self.loaded.send_replace(true);
    }
}

impl TenantError {
    /// Fixed name of the case, for logs and metrics.
    pub fn category(&self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::NotLoaded => "not-loaded",
            Self::Malformed(_) => "malformed",
        }
    }
}

fn hash(key: &str) -> [u8; SHA256_OUTPUT_LEN] {
    let mut out = [0; SHA256_OUTPUT_LEN];
    out.copy_from_slice(digest(&SHA256, key.as_bytes()).as_ref());
    out
}

fn read(raw: serde_json::Value) -> Option<Record> {
    let record = serde_json::from_value::<RawRecord>(raw)
        .ok()
        .and_then(|raw| {
            let sha256 = unhex(&raw.sha256)?;
            let tenant = Arc::new(Tenant {
                name: raw.name,
                max_sandboxes: raw.max_sandboxes,
            });
            (1..=MAX_NAME_LEN)
                .contains(&tenant.name.len())
                .then_some(Record { sha256, tenant })
        });
    if record.is_none() {
        tracing::warn!("a malformed record in {SECRET_KEY} is left out");
    }
    record
}

fn unhex(text: &str) -> Option<[u8; SHA256_OUTPUT_LEN]> {
    let text = text.as_bytes();
    if text.len() != 2 * SHA256_OUTPUT_LEN {
        return None;
    }
    let mut out = [0; SHA256_OUTPUT_LEN];
    for (byte, pair) in out.iter_mut().zip(text.chunks_exact(2)) {
        let digit = |c: u8| char::from(c).to_digit(16);
        *byte = u8::try_from(digit(pair[0])? << 4 | digit(pair[1])?).ok()?;
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SHA-256 of `secret`.
    const HASH: &str = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";

    #[test]
    fn a_key_is_recognised_by_its_hash() {
        let tenants = Tenants::pending();
        assert!(matches!(
            tenants.recognise(Some("secret")),
            Err(TenantError::NotLoaded)
        ));
        let json = format!(r#"[{{"name":"a","sha256":"{HASH}","maxSandboxes":3}},{{"name":1}}]"#);
        tenants.replace(json.as_bytes()).unwrap();
        let tenant = tenants.recognise(Some("secret")).unwrap();
        assert_eq!((tenant.name.as_str(), tenant.max_sandboxes), ("a", Some(3)));
        for key in [None, Some(""), Some("Secret"), Some(HASH)] {
            assert!(matches!(tenants.recognise(key), Err(TenantError::Unknown)));
        }
    }

    #[test]
    fn a_malformed_document_changes_nothing() {
        let tenants = Tenants::fixed([("a", "secret")]);
        assert!(tenants.replace(b"{}").is_err());
        assert!(tenants.recognise(Some("secret")).is_ok());
        tenants.clear();
        assert!(tenants.recognise(Some("secret")).is_err());
    }
}
