//! The records as a document that people change: keys are made, listed and taken out. Pure; who
//! writes the Secret is somebody else's business.
//!
//! Records that are not understood are kept as they are: they may be of a newer version.

use jiff::Timestamp;
use ring::rand::{SecureRandom as _, SystemRandom};
use serde_json::Value;

use super::record::{RawRecord, hash};
use crate::keys::base62;

/// Begins every key, so that scanners for secrets find keys in places where they must not be.
const PREFIX: &str = "sbx_";
/// Bytes that a key chosen elsewhere must have, so that it cannot be guessed.
const SHORTEST: usize = 16;
/// Digits of its hash that name a key.
const ID_LEN: usize = 8;

/// `keys.json`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Book(Vec<Value>);

/// A key that has just been made. The one moment at which it can be read.
pub struct NewKey {
    pub id: String,
    pub key: String,
}

/// One record as it is listed.
#[derive(Debug, PartialEq, Eq)]
pub struct Listed {
    /// The first digits of the hash.
    pub id: String,
    pub record: RawRecord,
    /// Why the record has no effect, if it has none.
    pub fault: Option<&'static str>,
}

/// Why a document could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum BookError {
    #[error("the document is no list of records: {0}")]
    Malformed(#[from] serde_json::Error),
    #[error("{0}")]
    Invalid(&'static str),
    #[error("no randomness")]
    Random,
    #[error("no key has the id or name {0:?}")]
    Unknown(String),
}

impl Book {
    /// Reads a document.
    pub fn read(json: &[u8]) -> Result<Self, BookError> {
        Ok(Self(serde_json::from_slice(json)?))
    }

    /// The document as it is stored.
    pub fn write(&self) -> Result<Vec<u8>, BookError> {
        Ok(serde_json::to_vec_pretty(&self.0)?)
    }

    /// Adds a record for a new key; its hash and date are filled in.
    pub fn create(&mut self, record: RawRecord, now: Timestamp) -> Result<NewKey, BookError> {
        let key = fresh_key()?;
        let id = self.add(record, &key, now)?;
        Ok(NewKey { id, key })
    }

    /// Adds a record for a key that there is already, unless the book has it.
    pub fn adopt(&mut self, record: RawRecord, key: &str, now: Timestamp) -> Result<(), BookError> {
        if key.len() < SHORTEST {
            return Err(BookError::Invalid("a key must have at least 16 bytes"));
        }
        if self.has_key(key) {
            return Ok(());
        }
        self.add(record, key, now).map(|_| ())
    }

    /// Whether there is a record for this key.
    pub fn has_key(&self, key: &str) -> bool {
        let known = hex(&hash(key));
        self.0.iter().any(|raw| raw["sha256"] == *known)
    }

    /// Whether a key has this name already.
    pub fn has_name(&self, name: &str) -> bool {
        self.0.iter().any(|raw| raw["name"] == *name)
    }

    fn add(
        &mut self,
        mut record: RawRecord,
        key: &str,
        now: Timestamp,
    ) -> Result<String, BookError> {
        record.sha256 = hex(&hash(key));
        record.created_at = Some(now.strftime("%FT%TZ").to_string());
        record.check().map_err(BookError::Invalid)?;
        let id = record.sha256[..ID_LEN].to_owned();
        self.0.push(serde_json::to_value(record)?);
        Ok(id)
    }

    /// All records that can be read, in their order.
    pub fn list(&self) -> Vec<Listed> {
        let records = self.0.iter();
        let records =
            records.filter_map(|raw| serde_json::from_value::<RawRecord>(raw.clone()).ok());
        records
            .map(|record| Listed {
                id: record.sha256.chars().take(ID_LEN).collect(),
                fault: record.check().err(),
                record,
            })
            .collect()
    }

    /// Takes out the key of this id, or all keys of this name. Returns how many.
    pub fn revoke(&mut self, wanted: &str) -> Result<usize, BookError> {
        let before = self.0.len();
        let id = wanted.len() >= ID_LEN;
        self.0.retain(|raw| {
            let hash = raw["sha256"].as_str().unwrap_or_default();
            let named = raw["name"].as_str() == Some(wanted);
            !(named || id && hash.starts_with(wanted))
        });
        match before - self.0.len() {
            0 => Err(BookError::Unknown(wanted.to_owned())),
            revoked => Ok(revoked),
        }
    }
}

impl std::fmt::Debug for NewKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "NewKey({})", self.id)
    }
}

/// A key that nobody has.
pub fn fresh_key() -> Result<String, BookError> {
    let mut bytes = [0; 32];
    SystemRandom::new()
        .fill(&mut bytes)
        .map_err(|_| BookError::Random)?;
    Ok(format!("{PREFIX}{}", base62(&bytes)))
}

/// Lower-case hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits
        .filter_map(|digit| char::from_digit(digit.into(), 16))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tenants::Tenants;

    fn record(name: &str) -> RawRecord {
        RawRecord {
            name: name.into(),
            max_sandboxes: Some(2),
            ..RawRecord::default()
        }
    }

    #[test]
    fn a_new_key_is_recognised_and_stands_nowhere() {
        let mut book = Book::default();
        let made = book.create(record("a"), Timestamp::UNIX_EPOCH).unwrap();
        assert!(made.key.starts_with("sbx_") && made.key.len() == 47);
        assert!(!format!("{made:?}").contains(&made.key));
        let stored = book.write().unwrap();
        assert!(!String::from_utf8_lossy(&stored).contains(&made.key[4..]));
        let tenants = Tenants::pending();
        tenants.replace(&stored).unwrap();
        let tenant = tenants.recognise(Some(&made.key)).unwrap();
        assert_eq!((&*tenant.name, tenant.limits.sandboxes), ("a", Some(2)));
        let [listed] = &Book::read(&stored).unwrap().list()[..] else {
            panic!("one record");
        };
        assert_eq!((&listed.id, listed.fault), (&made.id, None));
    }

    #[test]
    fn keys_are_revoked_by_id_or_name_and_the_rest_is_kept() {
        let mut book = Book::read(br#"[{"name": 7, "new": "field"}]"#).unwrap();
        let first = book.create(record("a"), Timestamp::UNIX_EPOCH).unwrap();
        book.create(record("a"), Timestamp::UNIX_EPOCH).unwrap();
        book.create(record("b"), Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!(book.revoke(&first.id).unwrap(), 1);
        assert_eq!(book.revoke("a").unwrap(), 1);
        assert!(matches!(book.revoke("a"), Err(BookError::Unknown(_))));
        assert!(book.revoke("").is_err() && book.revoke("0").is_err());
        assert_eq!(book.list().len(), 1);
        assert!(String::from_utf8_lossy(&book.write().unwrap()).contains("new"));
    }

    #[test]
    fn what_could_not_be_used_is_not_made() {
        let mut book = Book::default();
        let bad = RawRecord {
            max_cpu: Some("much".into()),
            ..record("a")
        };
        assert!(book.create(bad, Timestamp::UNIX_EPOCH).is_err());
        assert!(book.create(record(""), Timestamp::UNIX_EPOCH).is_err());
        assert!(book.list().is_empty());
        assert!(Book::read(b"{}").is_err());
    }
}
