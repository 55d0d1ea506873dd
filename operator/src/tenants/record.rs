//! One record of `keys.json`: whose key it is, its hash, and what its owner may use.

use std::sync::Arc;

use ring::digest::{SHA256, SHA256_OUTPUT_LEN, digest};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Limits, MAX_NAME_LEN, SECRET_KEY, Tenant};
use crate::quantity;

/// SHA-256 of a key.
pub(super) type Hash = [u8; SHA256_OUTPUT_LEN];

/// A key and its owner.
#[derive(Debug, Clone)]
pub(super) struct Record {
    pub(super) sha256: Hash,
    pub(super) tenant: Arc<Tenant>,
}

/// A record as it stands in the Secret.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RawRecord {
    pub name: String,
    /// Hex of the SHA-256 of the key.
    pub sha256: String,
    /// When it was made, RFC 3339; for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_at: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_sandboxes: Option<u32>,
    /// Quantity of Kubernetes, for example `8` or `500m`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_cpu: Option<String>,
    /// Quantity of Kubernetes, for example `16Gi`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_memory: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_waiting: Option<u32>,
    /// `nested`, `flat`, `path` or `loopback`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url_form: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls_per_second: Option<u32>,
}

impl Record {
    /// A record without limits, of a plain key.
    pub(super) fn plain(name: &str, key: &str) -> Self {
        Self {
            sha256: hash(key),
            tenant: Arc::new(Tenant {
                name: name.to_owned(),
                limits: Limits::NONE,
                url_form: None,
                calls_per_second: None,
            }),
        }
    }
}

impl RawRecord {
    /// The record, or what is wrong with it.
    pub(super) fn check(&self) -> Result<Record, &'static str> {
        if !(1..=MAX_NAME_LEN).contains(&self.name.len()) {
            return Err("name must have 1 to 63 bytes");
        }
        let form = self.url_form.as_deref().map(str::parse).transpose();
        Ok(Record {
            sha256: unhex(&self.sha256).ok_or("sha256 is no hash")?,
            tenant: Arc::new(Tenant {
                name: self.name.clone(),
                limits: self.limits()?,
                url_form: form.map_err(|_| "urlForm is unknown")?,
                calls_per_second: self.calls_per_second,
            }),
        })
    }

    fn limits(&self) -> Result<Limits, &'static str> {
        let amount = |text: &Option<String>, unit| match text {
            None => Ok(None),
            Some(text) => whole(text, unit).map(Some),
        };
        Ok(Limits {
            sandboxes: self.max_sandboxes,
            cpu: amount(&self.max_cpu, 1000.0)
                .map_err(|()| "maxCpu is no amount of CPU, such as 16 or 500m")?,
            memory: amount(&self.max_memory, 1.0)
                .map_err(|()| "maxMemory is no amount of memory, such as 32Gi")?,
            waiting: self.max_waiting.unwrap_or(Limits::NONE.waiting),
        })
    }
}

/// A quantity in whole units, of which `unit` make one.
fn whole(text: &str, unit: f64) -> Result<u64, ()> {
    quantity::whole(text, unit).ok_or(())
}

/// Reads a record; `None`, and a warning that names no secret, if it is malformed.
pub(super) fn read(raw: Value) -> Option<Record> {
    let checked = match serde_json::from_value::<RawRecord>(raw) {
        Ok(raw) => raw.check(),
        Err(_) => Err("a field is missing or has a wrong type"),
    };
    checked
        .inspect_err(|fault| tracing::warn!(fault, "a record in {SECRET_KEY} is left out"))
        .ok()
}

/// The hash by which a key is known.
pub(super) fn hash(key: &str) -> Hash {
    let mut out = [0; SHA256_OUTPUT_LEN];
    out.copy_from_slice(digest(&SHA256, key.as_bytes()).as_ref());
    out
}

fn unhex(text: &str) -> Option<Hash> {
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

    #[test]
    fn every_fault_of_a_record_is_named() {
        let good = RawRecord {
            name: "a".into(),
            sha256: "0".repeat(64),
            ..RawRecord::default()
        };
        assert!(good.check().is_ok());
        let bad: [fn(&mut RawRecord); 6] = [
            |r| r.name = String::new(),
            |r| r.name = "x".repeat(64),
            |r| r.sha256 = "zz".repeat(32),
            |r| r.max_cpu = Some("much".into()),
            |r| r.max_memory = Some("-1".into()),
            |r| r.url_form = Some("round".into()),
        ];
        for spoil in bad {
            let mut record = good.clone();
            spoil(&mut record);
            assert!(record.check().is_err(), "{record:?}");
        }
    }
}
