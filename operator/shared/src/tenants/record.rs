//! One record of `keys.json`: tenant name, hash of the key, and limits.

use std::sync::Arc;

use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use jiff::Timestamp;
use ring::digest::{SHA256, SHA256_OUTPUT_LEN, digest};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    DEFAULT_CALLS_PER_SECOND, DEFAULT_MAX_TOTAL_SANDBOXES, DEFAULT_MAX_WAITING, Limits,
    MAX_NAME_LEN, SECRET_KEY, Tenant,
};
use crate::{image_reference, quantity};

/// SHA-256 of a key.
pub(super) type Hash = [u8; SHA256_OUTPUT_LEN];

/// Digits of the hash that identify a key.
pub(super) const ID_LEN: usize = 8;

const CPU_FAULT: &str = "maxCpu is not a CPU quantity (examples: 16, 500m)";
const MEMORY_FAULT: &str = "maxMemory is not a memory quantity (example: 32Gi)";

/// Hash of a key, with its owner.
#[derive(Debug, Clone)]
pub(super) struct Record {
    pub(super) sha256: Hash,
    pub(super) tenant: Arc<Tenant>,
    pub(super) expires_at: Option<Timestamp>,
    /// Not from the Secret.
    pub(super) fixed: bool,
}

/// Record as stored in the Secret.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RawRecord {
    pub name: String,
    /// Hex of the SHA-256 of the key.
    pub sha256: String,
    /// Creation time, RFC 3339.
    pub created_at: Option<String>,
    /// Time from which the key is rejected, RFC 3339.
    pub expires_at: Option<String>,
    pub max_sandboxes: Option<u32>,
    /// Kubernetes quantity, for example `8` or `500m`.
    pub max_cpu: Option<String>,
    /// Kubernetes quantity, for example `16Gi`.
    pub max_memory: Option<String>,
    pub max_waiting: Option<u32>,
    pub max_total_sandboxes: Option<u32>,
    /// `nested`, `flat`, `path` or `loopback`.
    pub url_form: Option<String>,
    /// 0: no limit.
    pub calls_per_second: Option<u32>,
    /// Image repository for clients that name no image; they append `/runtime`.
    pub registry_prefix: Option<String>,
    /// `off`, `alias`, `append` or `full`.
    pub image_builds: Option<String>,
}

impl Record {
    /// Creates a record without limits from a plain key.
    pub(super) fn plain(name: &str, key: &str) -> Self {
        Self {
            sha256: hash(key),
            tenant: Arc::new(Tenant {
                name: name.to_owned(),
                limits: Limits::default(),
                url_form: None,
                calls_per_second: None,
                registry_prefix: None,
                image_builds: None,
            }),
            expires_at: None,
            fixed: true,
        }
    }
}

impl RawRecord {
    pub(super) fn check(&self) -> Result<Record, &'static str> {
        if !(1..=MAX_NAME_LEN).contains(&self.name.len()) {
            return Err("name must have 1 to 63 bytes");
        }
        let form = self.url_form.as_deref().map(str::parse).transpose();
        let builds = self.image_builds.as_deref().map(str::parse).transpose();
        let expiry = self.expires_at.as_deref().map(str::parse).transpose();
        let rate = self.calls_per_second.unwrap_or(DEFAULT_CALLS_PER_SECOND);
        let sha256 = HEXLOWER_PERMISSIVE.decode(self.sha256.as_bytes()).ok();
        let sha256 = sha256.and_then(|bytes| bytes.try_into().ok());
        Ok(Record {
            sha256: sha256.ok_or("sha256 is not a SHA-256 hash")?,
            tenant: Arc::new(Tenant {
                name: self.name.clone(),
                limits: self.limits()?,
                url_form: form.map_err(|_| "urlForm is unknown")?,
                calls_per_second: Some(rate).filter(|rate| *rate > 0),
                registry_prefix: self.registry_prefix()?,
                image_builds: builds.map_err(|_| "imageBuilds is unknown")?,
            }),
            expires_at: expiry.map_err(|_| "expiresAt is not an RFC 3339 time")?,
            fixed: false,
        })
    }

    fn registry_prefix(&self) -> Result<Option<String>, &'static str> {
        let prefix = self.registry_prefix.as_deref();
        let prefix = prefix.map(|prefix| prefix.trim_end_matches('/'));
        let is_repository = |prefix: &str| {
            let text = format!("{prefix}/runtime");
            let parsed = image_reference::parse(&text);
            parsed.is_some_and(|parsed| parsed.repository == text)
        };
        match prefix {
            Some(prefix) if !is_repository(prefix) => Err(
                "registryPrefix is not an image repository (example: registry.example.com/team)",
            ),
            prefix => Ok(prefix.map(str::to_owned)),
        }
    }

    fn limits(&self) -> Result<Limits, &'static str> {
        let amount = |text: &Option<String>, unit, fault| {
            let text = text.as_deref();
            let amount = text.map(|text| quantity::whole(text, unit).ok_or(fault));
            amount.transpose()
        };
        let total = self.max_total_sandboxes;
        Ok(Limits {
            sandboxes: self.max_sandboxes,
            cpu: amount(&self.max_cpu, 1000.0, CPU_FAULT)?,
            memory: amount(&self.max_memory, 1.0, MEMORY_FAULT)?,
            waiting: self.max_waiting.unwrap_or(DEFAULT_MAX_WAITING),
            total_sandboxes: total.unwrap_or(DEFAULT_MAX_TOTAL_SANDBOXES),
        })
    }
}

/// Reads a record. A malformed one is skipped, with a warning that names no secret.
pub(super) fn read(raw: Value) -> Option<Record> {
    let checked = match serde_json::from_value::<RawRecord>(raw) {
        Ok(raw) => raw.check(),
        Err(_) => Err("a field is missing or has a wrong type"),
    };
    checked
        .inspect_err(|fault| tracing::warn!(fault, "skipping a record of {SECRET_KEY}"))
        .ok()
}

pub(super) fn hash(key: &str) -> Hash {
    let mut out = [0; SHA256_OUTPUT_LEN];
    out.copy_from_slice(digest(&SHA256, key.as_bytes()).as_ref());
    out
}

pub(super) fn key_id(hash: &Hash) -> String {
    HEXLOWER.encode(&hash[..ID_LEN / 2])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_record_is_rejected() {
        let good = RawRecord {
            name: "a".into(),
            sha256: "0".repeat(64),
            ..RawRecord::default()
        };
        assert!(good.check().is_ok());
        let bad: [fn(&mut RawRecord); 10] = [
            |r| r.name = String::new(),
            |r| r.name = "x".repeat(64),
            |r| r.sha256 = "zz".repeat(32),
            |r| r.max_cpu = Some("much".into()),
            |r| r.max_memory = Some("-1".into()),
            |r| r.url_form = Some("round".into()),
            |r| r.expires_at = Some("tomorrow".into()),
            |r| r.image_builds = Some("all".into()),
            |r| r.registry_prefix = Some("a b".into()),
            |r| r.registry_prefix = Some("a/b:1".into()),
        ];
        for spoil in bad {
            let mut record = good.clone();
            spoil(&mut record);
            assert!(record.check().is_err(), "{record:?}");
        }
    }
}
