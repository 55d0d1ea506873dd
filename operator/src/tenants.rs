//! Who may call the API, and how much of the cluster each of them may use: keys, known only by
//! their hashes, from one Secret.
//!
//! A key is looked up by hashing what the client sent and comparing it with every record in
//! constant time, so that neither a memory dump nor a stopwatch gives a key away.

pub mod book;
mod follow;
mod pace;
pub mod record;

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use subtle::ConstantTimeEq as _;
use tokio::sync::watch;

use crate::urls::{UrlForm, Urls};
use pace::Pace;
use record::Record;

pub use follow::follow;

/// Name of the Secret that holds the records.
pub const SECRET: &str = "sandbox-api-keys";
/// Its one data key.
pub const SECRET_KEY: &str = "keys.json";
/// A name becomes part of every Sandbox of the tenant, whose schema sets this limit.
pub const MAX_NAME_LEN: usize = 63;
/// How many starts of a tenant may wait for its limits if its record does not say.
const WAITING: u32 = 100;

/// The owner of sandboxes: everything that one API key, or several with one name, started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tenant {
    pub name: String,
    pub limits: Limits,
    /// Form of the URLs that this tenant is told. Absent: that of the installation.
    pub url_form: Option<UrlForm>,
    /// Calls per second that are answered at once. Absent: no limit.
    pub calls_per_second: Option<u32>,
}

/// How much one tenant may use at the same time; absent ones do not limit. Of several keys with
/// one name, the tightest holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    pub sandboxes: Option<u32>,
    /// Sum of the CPU limits, in thousandths of a core.
    pub cpu: Option<u64>,
    /// Sum of the memory limits, in bytes.
    pub memory: Option<u64>,
    /// Starts that may wait for one of the limits above.
    pub waiting: u32,
}

/// All tenants; cheap to clone, replaced as a whole.
#[derive(Debug, Clone)]
pub struct Tenants {
    /// Records that do not come from the Secret and never go.
    fixed: Arc<Vec<Record>>,
    known: Arc<RwLock<Known>>,
    paces: Arc<Mutex<HashMap<String, Pace>>>,
    /// How often the records were replaced; 0: never.
    versions: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Known {
    records: Vec<Record>,
    by_name: HashMap<String, Arc<Tenant>>,
}

/// Why nobody could be recognised.
#[derive(Debug, thiserror::Error)]
pub enum TenantError {
    #[error("missing or unknown API key: send a valid API key in the header X-API-Key")]
    Unknown,
    #[error("API keys are not loaded yet")]
    NotLoaded,
    #[error("this API key is used faster than its limit allows; try again")]
    TooFast,
    #[error("{SECRET_KEY} is no list of keys: {0}")]
    Malformed(#[source] serde_json::Error),
}

impl Tenants {
    /// No tenants yet: nobody is refused for good before the first [`Tenants::replace`].
    pub fn pending() -> Self {
        Self::of(Vec::new())
    }

    /// Tenants without limits that never go, as names and plain keys: for one machine and for
    /// tests. Records of the Secret come beside them.
    pub fn fixed<'a>(keys: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let records = keys.into_iter().map(|(name, key)| Record::plain(name, key));
        let tenants = Self::of(records.collect());
        tenants.set(Vec::new());
        tenants
    }

    fn of(fixed: Vec<Record>) -> Self {
        Self {
            fixed: Arc::new(fixed),
            known: Arc::default(),
            paces: Arc::default(),
            versions: watch::Sender::new(0),
        }
    }

    /// Takes the content of `keys.json`. Records that are malformed are left out with a warning,
    /// so that one mistake does not lock everybody out.
    pub fn replace(&self, json: &[u8]) -> Result<(), TenantError> {
        let raw: Vec<serde_json::Value> =
            serde_json::from_slice(json).map_err(TenantError::Malformed)?;
        self.set(raw.into_iter().filter_map(record::read).collect());
        Ok(())
    }

    /// Forgets everybody who is not fixed.
    pub fn clear(&self) {
        self.set(Vec::new());
    }

    /// Whether there has been a [`Tenants::replace`]: before, nobody can be recognised.
    pub fn is_loaded(&self) -> bool {
        *self.versions.borrow() > 0
    }

    /// Changes whenever the records do.
    pub fn versions(&self) -> watch::Receiver<u64> {
        self.versions.subscribe()
    }

    /// Whose key this is.
    pub fn recognise(&self, key: Option<&str>) -> Result<Arc<Tenant>, TenantError> {
        if !self.is_loaded() {
            return Err(TenantError::NotLoaded);
        }
        let sent = record::hash(key.ok_or(TenantError::Unknown)?);
        let known = self.known.read();
        // No early exit: the time taken says nothing about which record matched.
        let found = known.records.iter().fold(None, |found, record| {
            let same = bool::from(record.sha256.ct_eq(&sent));
            if same { Some(&record.tenant) } else { found }
        });
        let found = found.ok_or(TenantError::Unknown)?;
        Ok(known.by_name.get(&found.name).unwrap_or(found).clone())
    }

    /// The tenant of this name, if there is a key of that name now.
    pub fn named(&self, name: &str) -> Option<Arc<Tenant>> {
        self.known.read().by_name.get(name).cloned()
    }

    /// The URLs of a tenant's sandboxes: those of the installation, in the tenant's form.
    pub fn urls<'a>(&self, installation: &'a Urls, tenant: &str) -> Cow<'a, Urls> {
        let form = self.named(tenant).and_then(|tenant| tenant.url_form);
        match form.filter(|form| *form != installation.form) {
            None => Cow::Borrowed(installation),
            Some(form) => Cow::Owned(Urls {
                form,
                ..installation.clone()
            }),
        }
    }

    /// All tenants, in order of their names.
    pub fn all(&self) -> Vec<Arc<Tenant>> {
        let mut all: Vec<_> = self.known.read().by_name.values().cloned().collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }

    /// Counts one call of a tenant. Returns how long it has to wait for its turn.
    pub fn take_turn(&self, tenant: &Tenant) -> Result<Duration, TenantError> {
        let Some(rate) = tenant.calls_per_second.filter(|rate| *rate > 0) else {
            return Ok(Duration::ZERO);
        };
        let mut paces = self.paces.lock();
        let pace = paces.entry(tenant.name.clone()).or_default();
        pace.take(rate).ok_or(TenantError::TooFast)
    }

    fn set(&self, records: Vec<Record>) {
        let records: Vec<_> = self.fixed.iter().cloned().chain(records).collect();
        let by_name = by_name(&records);
        self.paces
            .lock()
            .retain(|name, _| by_name.contains_key(name));
        *self.known.write() = Known { records, by_name };
        self.versions.send_modify(|version| *version += 1);
    }
}

fn by_name(records: &[Record]) -> HashMap<String, Arc<Tenant>> {
    let mut tenants: HashMap<String, Arc<Tenant>> = HashMap::new();
    for Record { tenant, .. } in records {
        let joined = match tenants.get(&tenant.name) {
            Some(known) => Arc::new(known.joined(tenant)),
            None => tenant.clone(),
        };
        tenants.insert(tenant.name.clone(), joined);
    }
    tenants
}

impl Tenant {
    /// What holds for two keys of the same name.
    fn joined(&self, other: &Self) -> Self {
        Self {
            name: self.name.clone(),
            limits: self.limits.joined(&other.limits),
            url_form: self.url_form.or(other.url_form),
            calls_per_second: tighter(self.calls_per_second, other.calls_per_second),
        }
    }
}

impl Limits {
    /// No limits.
    pub const NONE: Self = Self {
        sandboxes: None,
        cpu: None,
        memory: None,
        waiting: WAITING,
    };

    fn joined(&self, other: &Self) -> Self {
        Self {
            sandboxes: tighter(self.sandboxes, other.sandboxes),
            cpu: tighter(self.cpu, other.cpu),
            memory: tighter(self.memory, other.memory),
            waiting: self.waiting.min(other.waiting),
        }
    }
}

/// The smaller of two limits, of which absent ones do not limit.
fn tighter<T: Ord>(one: Option<T>, other: Option<T>) -> Option<T> {
    one.into_iter().chain(other).min()
}

impl TenantError {
    /// Fixed name of the case, for logs and metrics.
    pub fn category(&self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::NotLoaded => "not-loaded",
            Self::TooFast => "too-fast",
            Self::Malformed(_) => "malformed",
        }
    }
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
        assert_eq!(tenant.name, "a");
        assert_eq!(tenant.limits.sandboxes, Some(3));
        for key in [None, Some(""), Some("Secret"), Some(HASH)] {
            assert!(matches!(tenants.recognise(key), Err(TenantError::Unknown)));
        }
    }

    #[test]
    fn a_malformed_document_changes_nothing() {
        let tenants = Tenants::pending();
        let json = format!(r#"[{{"name":"a","sha256":"{HASH}"}}]"#);
        tenants.replace(json.as_bytes()).unwrap();
        assert!(tenants.replace(b"{}").is_err());
        assert!(tenants.recognise(Some("secret")).is_ok());
        tenants.clear();
        assert!(tenants.recognise(Some("secret")).is_err());
    }

    #[test]
    fn fixed_keys_stay_beside_those_of_the_secret() {
        let tenants = Tenants::fixed([("default", "own")]);
        let json = format!(r#"[{{"name":"a","sha256":"{HASH}"}}]"#);
        tenants.replace(json.as_bytes()).unwrap();
        assert!(tenants.recognise(Some("own")).is_ok());
        assert!(tenants.recognise(Some("secret")).is_ok());
        assert_eq!(tenants.all().len(), 2);
    }

    #[test]
    fn several_keys_of_one_name_share_the_tightest_limits() {
        let other = "0".repeat(64);
        let json = format!(
            r#"[{{"name":"a","sha256":"{HASH}","maxSandboxes":3,"maxCpu":"1500m","maxMemory":"1Gi"}},
                {{"name":"a","sha256":"{other}","maxSandboxes":2,"urlForm":"path","maxWaiting":7}}]"#
        );
        let tenants = Tenants::pending();
        tenants.replace(json.as_bytes()).unwrap();
        let tenant = tenants.recognise(Some("secret")).unwrap();
        let limits = Limits {
            sandboxes: Some(2),
            cpu: Some(1500),
            memory: Some(1 << 30),
            waiting: 7,
        };
        assert_eq!(tenant.limits, limits);
        assert_eq!(tenant.url_form, Some(UrlForm::Path));
        assert_eq!(tenants.named("a"), Some(tenant));
    }
}
