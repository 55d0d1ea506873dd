//! Tenants and their limits. API keys come from one Secret, which holds only their hashes.
//!
//! Keys are random and looked up by their SHA-256, so that neither a memory dump nor response times
//! reveal one.

pub mod key_commands;
pub mod key_document;
pub mod key_secret;
pub mod record;
mod secret_watch;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::image_builds::ImageBuilds;
use crate::token_bucket::TokenBucket;
use crate::urls::{UrlForm, Urls};
use record::{Hash, Record};

pub use secret_watch::watch_secret;

pub const SECRET_NAME: &str = "sandbox-api-keys";
/// Data key of the Secret.
pub const SECRET_KEY: &str = "keys.json";
/// Secret with the text of the first key of an installation by the chart, and its field.
pub const DEFAULT_KEY_SECRET: &str = "sandbox-operator-default-key";
pub const DEFAULT_KEY_FIELD: &str = "key";
/// Maximum length of a tenant name, in bytes; the limit of the Sandbox schema.
pub const MAX_NAME_LEN: usize = 63;
/// Time for which keys, also revoked ones, stay valid after the Secret was last read.
pub const MAX_UNCONFIRMED: Duration = Duration::from_hours(1);
/// Rate limit of a tenant whose record has no `callsPerSecond`.
pub const DEFAULT_CALLS_PER_SECOND: u32 = 100;
/// Calls without delay after a quiet time, in seconds of the rate limit.
const BURST_SECONDS: u32 = 2;
/// Maximum delay by the rate limit. Clients cannot handle 429 (`docs/specs/runtime-api.md`, section
/// 0.4, rule 7), so calls are delayed, and rejected only beyond this.
const MAX_WAIT: Duration = Duration::from_secs(5);
/// Queued starts of a tenant whose record has no `maxWaiting`.
const DEFAULT_MAX_WAITING: u32 = 100;
/// Sandboxes of a tenant in all states whose record has no `maxTotalSandboxes`. Each takes some KiB
/// of memory in every replica, and a paused one is kept for two months by default.
const DEFAULT_MAX_TOTAL_SANDBOXES: u32 = 10_000;

/// Owner of the sandboxes that one API key, or several of one name, started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tenant {
    pub name: String,
    pub limits: Limits,
    /// URL form in responses to this tenant. Absent: that of the installation.
    pub url_form: Option<UrlForm>,
    /// Calls per second without delay. Absent: no limit.
    pub calls_per_second: Option<u32>,
    /// Image repository that replaces that of the installation, without `/runtime`.
    pub registry_prefix: Option<String>,
    /// Image builds beyond these are not made. Absent: those of the installation.
    pub image_builds: Option<ImageBuilds>,
}

/// Quota of one tenant; absent values do not limit. Of several keys, the tightest values apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    pub sandboxes: Option<u32>,
    /// Sum of the CPU limits, in thousandths of a core.
    pub cpu: Option<u64>,
    /// Sum of the memory limits, in bytes.
    pub memory: Option<u64>,
    /// Starts that may wait for one of the limits above.
    pub waiting: u32,
    /// Sandboxes in all states but `Stopped`, paused ones included.
    pub total_sandboxes: u32,
}

/// All tenants; cheap to clone, replaced as a whole.
#[derive(Debug, Clone)]
pub struct Tenants {
    /// Records that do not come from the Secret and stay.
    fixed: Arc<Vec<Record>>,
    known: Arc<RwLock<TenantTable>>,
    rate_limits: Arc<Mutex<HashMap<String, TokenBucket>>>,
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

/// Calls of a tenant that are not delayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallBudget {
    /// After a quiet time.
    pub limit: u32,
    /// Now.
    pub remaining: u32,
    /// Time without calls until the limit is available again.
    pub full_after: Duration,
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
            rate_limits: Arc::default(),
            versions: watch::Sender::new(0),
            confirmed_until: Arc::default(),
        }
    }

    /// Loads `keys.json`. Skips malformed records with a warning: one must not invalidate all.
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
        let mut limits = self.rate_limits.lock();
        let limit = limits.entry(tenant.name.clone()).or_insert_with(|| {
            let burst = rate.saturating_mul(BURST_SECONDS).saturating_add(1);
            TokenBucket::new(burst, Duration::from_secs(1) / rate)
        });
        limit.reserve(MAX_WAIT).ok_or(TenantError::RateLimited)
    }

    /// Returns what the rate limit of a tenant has left; `None` without a limit.
    pub fn call_budget(&self, tenant: &Tenant) -> Option<CallBudget> {
        let limits = self.rate_limits.lock();
        limits.get(&tenant.name).map(|limit| CallBudget {
            limit: limit.burst(),
            remaining: limit.remaining(),
            full_after: limit.full_after(),
        })
    }

    fn set(&self, records: Vec<Record>) {
        let records: Vec<_> = self.fixed.iter().cloned().chain(records).collect();
        let by_name = by_name(&records);
        let records = records.into_iter().map(|record| (record.sha256, record));
        let mut known = self.known.write();
        self.rate_limits.lock().retain(|name, _| {
            let (old, new) = (known.by_name.get(name), by_name.get(name));
            new.is_some() && old.map(|t| t.calls_per_second) == new.map(|t| t.calls_per_second)
        });
        *known = TenantTable {
            records: records.collect(),
            by_name,
        };
        drop(known);
        self.versions.send_modify(|version| *version += 1);
    }
}

fn by_name(records: &[Record]) -> HashMap<String, Arc<Tenant>> {
    let mut tenants: HashMap<String, Arc<Tenant>> = HashMap::new();
    for Record { tenant, .. } in records {
        match tenants.entry(tenant.name.clone()) {
            Entry::Vacant(entry) => drop(entry.insert(tenant.clone())),
            Entry::Occupied(mut entry) => Arc::make_mut(entry.get_mut()).tighten(tenant),
        }
    }
    tenants
}

impl Tenant {
    /// Combines it with another key of the same name.
    fn tighten(&mut self, other: &Self) {
        let (own, others) = (&mut self.limits, &other.limits);
        own.sandboxes = tighter(own.sandboxes, others.sandboxes);
        own.cpu = tighter(own.cpu, others.cpu);
        own.memory = tighter(own.memory, others.memory);
        own.waiting = own.waiting.min(others.waiting);
        own.total_sandboxes = own.total_sandboxes.min(others.total_sandboxes);
        self.url_form = self.url_form.or(other.url_form);
        self.registry_prefix = self
            .registry_prefix
            .take()
            .or_else(|| other.registry_prefix.clone());
        self.image_builds = tighter(self.image_builds, other.image_builds);
        self.calls_per_second = tighter(self.calls_per_second, other.calls_per_second);
    }
}

/// No limits but those of the queue and of all sandboxes.
impl Default for Limits {
    fn default() -> Self {
        Self {
            sandboxes: None,
            cpu: None,
            memory: None,
            waiting: DEFAULT_MAX_WAITING,
            total_sandboxes: DEFAULT_MAX_TOTAL_SANDBOXES,
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
