//! Tenants and their limits. API keys come from one Secret, which holds only their hashes.
//!
//! Keys are random and looked up by their SHA-256, so that neither a memory dump nor response times
//! reveal one.

pub mod key_document;
mod rate_limiter;
pub mod record;
mod secret_watch;

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::urls::{UrlForm, Urls};
use rate_limiter::RateLimiter;
use record::{Hash, Record};

pub use secret_watch::watch_secret;

/// Name of the Secret that holds the records.
pub const SECRET_NAME: &str = "sandbox-api-keys";
/// Data key of the Secret.
pub const SECRET_KEY: &str = "keys.json";
/// Maximum length of a tenant name, in bytes; the limit of the Sandbox schema.
pub const MAX_NAME_LEN: usize = 63;
/// Time for which keys stay valid after the Secret was last read. A key that was revoked meanwhile
/// is accepted for no longer.
pub const MAX_UNCONFIRMED: Duration = Duration::from_hours(1);
/// Rate limit of a tenant whose record has no `callsPerSecond`.
pub const DEFAULT_CALLS_PER_SECOND: u32 = 100;
/// Queued starts of a tenant whose record has no `maxWaiting`.
const DEFAULT_MAX_WAITING: u32 = 100;

/// Owner of the sandboxes that one API key, or several of one name, started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tenant {
    pub name: String,
    pub limits: Limits,
    /// URL form in responses to this tenant. Absent: that of the installation.
    pub url_form: Option<UrlForm>,
    /// Calls per second without delay. Absent: no limit.
    pub calls_per_second: Option<u32>,
}

/// Quota of one tenant; absent values do not limit. For several keys of one name, the tightest
/// values apply.
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
    /// Records that do not come from the Secret and stay.
    fixed: Arc<Vec<Record>>,
    known: Arc<RwLock<TenantTable>>,
    rate_limiters: Arc<Mutex<HashMap<String, RateLimiter>>>,
    /// Number of times the records were replaced; 0 before the first load.
    versions: watch::Sender<u64>,
    /// Time until which the records of the Secret are valid; absent without a watch.
    confirmed_until: Arc<Mutex<Option<Instant>>>,
}

/// Authenticated API key.
#[derive(Debug, Clone)]
pub struct ApiKey {
    pub tenant: Arc<Tenant>,
    /// First digits of the hash, which tell keys of one tenant apart.
    pub id: String,
}

#[derive(Debug, Default)]
struct TenantTable {
    records: HashMap<Hash, Record>,
    by_name: HashMap<String, Arc<Tenant>>,
}

/// Failure to authenticate a call or to load keys.
#[derive(Debug, thiserror::Error)]
pub enum TenantError {
    #[error("missing or unknown API key: send a valid API key in the header X-API-Key")]
    Unknown,
    #[error("the API key has expired")]
    Expired,
    #[error("API keys are not loaded yet")]
    NotLoaded,
    #[error("API keys could not be confirmed for an hour; try again")]
    Unconfirmed,
    #[error("rate limit of the API key exceeded; try again")]
    RateLimited,
    #[error("{SECRET_KEY} is not a JSON list of API keys: {0}")]
    Malformed(#[source] serde_json::Error),
}

impl Tenants {
    /// Creates an empty set. Until the first [`Tenants::replace`], calls fail with `NotLoaded`.
    pub fn pending() -> Self {
        Self::with_fixed(Vec::new())
    }

    /// Creates permanent tenants without limits from names and plain keys, for standalone processes
    /// and tests. Records of the Secret are added to them.
    pub fn fixed<'a>(keys: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let records = keys.into_iter().map(|(name, key)| Record::plain(name, key));
        let tenants = Self::with_fixed(records.collect());
        tenants.set(Vec::new());
        tenants
    }

    fn with_fixed(fixed: Vec<Record>) -> Self {
        Self {
            fixed: Arc::new(fixed),
            known: Arc::default(),
            rate_limiters: Arc::default(),
            versions: watch::Sender::new(0),
            confirmed_until: Arc::default(),
        }
    }

    /// Loads the content of `keys.json`. Malformed records are skipped with a warning, so that one
    /// mistake does not invalidate all keys.
    pub fn replace(&self, json: &[u8]) -> Result<(), TenantError> {
        let raw: Vec<serde_json::Value> =
            serde_json::from_slice(json).map_err(TenantError::Malformed)?;
        self.set(raw.into_iter().filter_map(record::read).collect());
        Ok(())
    }

    /// Removes all records that are not fixed.
    pub fn clear(&self) {
        self.set(Vec::new());
    }

    /// Returns whether the records have been loaded.
    pub fn is_loaded(&self) -> bool {
        *self.versions.borrow() > 0
    }

    /// Subscribes to changes of the records.
    pub fn versions(&self) -> watch::Receiver<u64> {
        self.versions.subscribe()
    }

    /// Records that the Secret was read just now.
    pub fn confirm(&self) {
        *self.confirmed_until.lock() = Some(Instant::now() + MAX_UNCONFIRMED);
    }

    /// Authenticates an API key at a time, which must be before its expiry.
    pub fn authenticate(&self, key: Option<&str>, now: Timestamp) -> Result<ApiKey, TenantError> {
        if !self.is_loaded() {
            return Err(TenantError::NotLoaded);
        }
        let hash = record::hash(key.ok_or(TenantError::Unknown)?);
        let known = self.known.read();
        let record = known.records.get(&hash).ok_or(TenantError::Unknown)?;
        if record.expires_at.is_some_and(|at| at <= now) {
            return Err(TenantError::Expired);
        }
        if !record.fixed && self.is_unconfirmed() {
            return Err(TenantError::Unconfirmed);
        }
        let tenant = known.by_name.get(&record.tenant.name);
        Ok(ApiKey {
            tenant: tenant.unwrap_or(&record.tenant).clone(),
            id: record::key_id(&hash),
        })
    }

    fn is_unconfirmed(&self) -> bool {
        let until = *self.confirmed_until.lock();
        until.is_some_and(|until| until <= Instant::now())
    }

    /// Returns the tenant of this name, if a key of that name exists.
    pub fn named(&self, name: &str) -> Option<Arc<Tenant>> {
        self.known.read().by_name.get(name).cloned()
    }

    /// Returns the URLs of a tenant's sandboxes: those of the installation, in the tenant's form.
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

    /// Returns all tenants, in order of their names.
    pub fn all(&self) -> Vec<Arc<Tenant>> {
        let mut all: Vec<_> = self.known.read().by_name.values().cloned().collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }

    /// Reserves one call of a tenant. Returns the delay that the rate limit requires.
    pub fn reserve_call(&self, tenant: &Tenant) -> Result<Duration, TenantError> {
        let Some(rate) = tenant.calls_per_second.filter(|rate| *rate > 0) else {
            return Ok(Duration::ZERO);
        };
        let mut limiters = self.rate_limiters.lock();
        let limiter = limiters.entry(tenant.name.clone()).or_default();
        limiter.reserve(rate).ok_or(TenantError::RateLimited)
    }

    fn set(&self, records: Vec<Record>) {
        let records: Vec<_> = self.fixed.iter().cloned().chain(records).collect();
        let by_name = by_name(&records);
        self.rate_limiters
            .lock()
            .retain(|name, _| by_name.contains_key(name));
        let records = records.into_iter().map(|record| (record.sha256, record));
        *self.known.write() = TenantTable {
            records: records.collect(),
            by_name,
        };
        self.versions.send_modify(|version| *version += 1);
    }
}

fn by_name(records: &[Record]) -> HashMap<String, Arc<Tenant>> {
    let mut tenants: HashMap<String, Arc<Tenant>> = HashMap::new();
    for Record { tenant, .. } in records {
        let joined = match tenants.get(&tenant.name) {
            Some(known) => Arc::new(known.tightest(tenant)),
            None => tenant.clone(),
        };
        tenants.insert(tenant.name.clone(), joined);
    }
    tenants
}

impl Tenant {
    /// Combines two keys of the same name.
    fn tightest(&self, other: &Self) -> Self {
        Self {
            name: self.name.clone(),
            limits: self.limits.tightest(&other.limits),
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
        waiting: DEFAULT_MAX_WAITING,
    };

    fn tightest(&self, other: &Self) -> Self {
        Self {
            sandboxes: tighter(self.sandboxes, other.sandboxes),
            cpu: tighter(self.cpu, other.cpu),
            memory: tighter(self.memory, other.memory),
            waiting: self.waiting.min(other.waiting),
        }
    }
}

/// Returns the smaller of two limits; an absent one does not limit.
fn tighter<T: Ord>(one: Option<T>, other: Option<T>) -> Option<T> {
    one.into_iter().chain(other).min()
}

impl TenantError {
    /// Returns the error category, a fixed label for logs and metrics.
    pub fn category(&self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Expired => "expired",
            Self::Unconfirmed => "unconfirmed",
            Self::NotLoaded => "not-loaded",
            Self::RateLimited => "too-fast",
            Self::Malformed(_) => "malformed",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn authenticate(tenants: &Tenants, key: &str) -> Result<Arc<Tenant>, TenantError> {
        let found = tenants.authenticate(Some(key), Timestamp::UNIX_EPOCH);
        found.map(|key| key.tenant)
    }

    /// SHA-256 of `secret`.
    const HASH: &str = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";

    #[test]
    fn key_is_authenticated_by_its_hash() {
        let tenants = Tenants::pending();
        let early = authenticate(&tenants, "secret");
        assert!(matches!(early, Err(TenantError::NotLoaded)));
        let json = format!(r#"[{{"name":"a","sha256":"{HASH}","maxSandboxes":3}},{{"name":1}}]"#);
        tenants.replace(json.as_bytes()).unwrap();
        let key = tenants.authenticate(Some("secret"), Timestamp::UNIX_EPOCH);
        let key = key.unwrap();
        assert_eq!((&*key.tenant.name, &*key.id), ("a", &HASH[..8]));
        assert_eq!(key.tenant.limits.sandboxes, Some(3));
        let rate = Some(DEFAULT_CALLS_PER_SECOND);
        assert_eq!(key.tenant.calls_per_second, rate);
        for wrong in [None, Some(""), Some("Secret"), Some(HASH)] {
            let refused = tenants.authenticate(wrong, Timestamp::UNIX_EPOCH);
            assert!(matches!(refused, Err(TenantError::Unknown)));
        }
    }

    #[test]
    fn key_is_rejected_from_its_expiry_on() {
        let tenants = Tenants::pending();
        let json =
            format!(r#"[{{"name":"a","sha256":"{HASH}","expiresAt":"2026-01-01T00:00:00Z"}}]"#);
        tenants.replace(json.as_bytes()).unwrap();
        let expiry: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let second = jiff::SignedDuration::from_secs(1);
        assert!(
            tenants
                .authenticate(Some("secret"), expiry - second)
                .is_ok()
        );
        let expired = tenants.authenticate(Some("secret"), expiry);
        assert!(matches!(expired, Err(TenantError::Expired)));
        assert!(tenants.named("a").is_some(), "limits of its sandboxes stay");
    }

    #[tokio::test(start_paused = true)]
    async fn keys_of_the_secret_are_rejected_when_unconfirmed_for_too_long() {
        let tenants = Tenants::fixed([("default", "own")]);
        let json = format!(r#"[{{"name":"a","sha256":"{HASH}"}}]"#);
        tenants.replace(json.as_bytes()).unwrap();
        tenants.confirm();
        tokio::time::advance(MAX_UNCONFIRMED / 2).await;
        assert!(authenticate(&tenants, "secret").is_ok());
        tokio::time::advance(MAX_UNCONFIRMED / 2).await;
        let stale = authenticate(&tenants, "secret");
        assert!(matches!(stale, Err(TenantError::Unconfirmed)));
        assert!(authenticate(&tenants, "own").is_ok());
        tenants.confirm();
        assert!(authenticate(&tenants, "secret").is_ok());
    }

    #[test]
    fn malformed_document_keeps_loaded_keys() {
        let tenants = Tenants::pending();
        let json = format!(r#"[{{"name":"a","sha256":"{HASH}"}}]"#);
        tenants.replace(json.as_bytes()).unwrap();
        assert!(tenants.replace(b"{}").is_err());
        assert!(authenticate(&tenants, "secret").is_ok());
        tenants.clear();
        assert!(authenticate(&tenants, "secret").is_err());
    }

    #[test]
    fn fixed_keys_are_kept_when_secret_is_loaded() {
        let tenants = Tenants::fixed([("default", "own")]);
        let json = format!(r#"[{{"name":"a","sha256":"{HASH}"}}]"#);
        tenants.replace(json.as_bytes()).unwrap();
        assert!(authenticate(&tenants, "own").is_ok());
        assert!(authenticate(&tenants, "secret").is_ok());
        assert_eq!(tenants.all().len(), 2);
    }

    #[test]
    fn keys_of_one_name_share_the_tightest_limits() {
        let other = "0".repeat(64);
        let json = format!(
            r#"[{{"name":"a","sha256":"{HASH}","maxSandboxes":3,"maxCpu":"1500m","maxMemory":"1Gi"}},
                {{"name":"a","sha256":"{other}","maxSandboxes":2,"urlForm":"path","maxWaiting":7}}]"#
        );
        let tenants = Tenants::pending();
        tenants.replace(json.as_bytes()).unwrap();
        let tenant = authenticate(&tenants, "secret").unwrap();
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
