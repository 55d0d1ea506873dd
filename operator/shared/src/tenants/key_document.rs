//! The document `keys.json`: creates, lists and revokes keys, without I/O.
//!
//! Unknown records are kept unchanged: a newer version may have written them.

use data_encoding::HEXLOWER;
use jiff::Timestamp;
use ring::rand::{self, SystemRandom};
use serde::Deserialize as _;
use serde_json::Value;

use super::MAX_NAME_LEN;
use super::record::{ID_LEN, RawRecord, hash};
use crate::keys::base62;

/// Prefix of every key, by which secret scanners recognize keys.
const PREFIX: &str = "sbx_";
/// Minimum length of a key that was not generated here, so that it cannot be guessed.
const MIN_KEY_BYTES: usize = 16;

/// `keys.json`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct KeyDocument(Vec<Value>);

/// Generated key. Only its hash is stored, so it can be read only here.
#[derive(derive_more::Debug)]
#[debug("NewKey({id})")]
pub struct NewKey {
    pub id: String,
    pub key: String,
}

#[derive(Debug, PartialEq, Eq)]
pub struct ListedKey {
    /// The first digits of the hash.
    pub id: String,
    pub record: RawRecord,
    /// Fault that makes the record ineffective.
    pub fault: Option<&'static str>,
}

#[derive(Debug, thiserror::Error)]
pub enum KeyDocumentError {
    #[error("keys.json is not a JSON list of API keys: {0}")]
    Malformed(#[from] serde_json::Error),
    #[error("{0}")]
    Invalid(&'static str),
    #[error(
        "{0:?} is not a valid name of a key: \
         use up to 63 letters and digits, with -, _, . and @ between them, as in team-a"
    )]
    InvalidName(String),
    #[error("cannot read random bytes from the operating system")]
    Random,
    #[error("no key has the id or name {0:?}")]
    Unknown(String),
}

impl KeyDocument {
    pub fn read(json: &[u8]) -> Result<Self, KeyDocumentError> {
        Ok(Self(serde_json::from_slice(json)?))
    }

    pub fn write(&self) -> Result<Vec<u8>, KeyDocumentError> {
        Ok(serde_json::to_vec_pretty(&self.0)?)
    }

    /// Generates a key and adds its record; hash and date are filled in.
    pub fn create(
        &mut self,
        record: RawRecord,
        now: Timestamp,
    ) -> Result<NewKey, KeyDocumentError> {
        let key = generate_key()?;
        let id = self.add(record, &key, now)?;
        Ok(NewKey { id, key })
    }

    /// Adds a record for an existing key, unless the document has it.
    pub fn add_existing(
        &mut self,
        record: RawRecord,
        key: &str,
        now: Timestamp,
    ) -> Result<(), KeyDocumentError> {
        if key.len() < MIN_KEY_BYTES {
            return Err(KeyDocumentError::Invalid(
                "a key must have at least 16 bytes",
            ));
        }
        if self.has_key(key) {
            return Ok(());
        }
        self.add(record, key, now).map(|_| ())
    }

    pub fn has_key(&self, key: &str) -> bool {
        let known = HEXLOWER.encode(&hash(key));
        self.0.iter().any(|raw| raw["sha256"] == *known)
    }

    fn has_name(&self, name: &str) -> bool {
        self.0.iter().any(|raw| raw["name"] == *name)
    }

    /// Rejects a new name that is hard to show, type or search for in lists, logs and metrics. The name
    /// of an existing key stays valid, so that the key can be replaced.
    pub fn validate_name(&self, name: &str) -> Result<(), KeyDocumentError> {
        if is_valid_name(name) || self.has_name(name) {
            return Ok(());
        }
        Err(KeyDocumentError::InvalidName(name.to_owned()))
    }

    fn add(
        &mut self,
        mut record: RawRecord,
        key: &str,
        now: Timestamp,
    ) -> Result<String, KeyDocumentError> {
        record.sha256 = HEXLOWER.encode(&hash(key));
        record.created_at = Some(now.strftime("%FT%TZ").to_string());
        record.check().map_err(KeyDocumentError::Invalid)?;
        let id = record.sha256[..ID_LEN].to_owned();
        let mut record = serde_json::to_value(record)?;
        if let Some(fields) = record.as_object_mut() {
            fields.retain(|_, value| !value.is_null());
        }
        self.0.push(record);
        Ok(id)
    }

    /// Lists all readable records, in their order.
    pub fn list(&self) -> Vec<ListedKey> {
        let records = self
            .0
            .iter()
            .filter_map(|raw| RawRecord::deserialize(raw).ok());
        records
            .map(|record| ListedKey {
                id: record.sha256.chars().take(ID_LEN).collect(),
                fault: record.check().err(),
                record,
            })
            .collect()
    }

    /// Removes the key of this id, or all keys of this name. Returns their number.
    pub fn revoke(&mut self, id_or_name: &str) -> Result<usize, KeyDocumentError> {
        let before = self.0.len();
        let is_id = id_or_name.len() >= ID_LEN;
        self.0.retain(|raw| {
            let hash = raw["sha256"].as_str().unwrap_or_default();
            let named = raw["name"].as_str() == Some(id_or_name);
            !(named || is_id && hash.starts_with(id_or_name))
        });
        match before - self.0.len() {
            0 => Err(KeyDocumentError::Unknown(id_or_name.to_owned())),
            revoked => Ok(revoked),
        }
    }
}

fn is_valid_name(name: &str) -> bool {
    let between = |c: char| c.is_ascii_alphanumeric() || "-_.@".contains(c);
    let ends = [name.chars().next(), name.chars().next_back()];
    let sound = ends
        .iter()
        .all(|c| c.is_some_and(|c| c.is_ascii_alphanumeric()));
    sound && name.chars().all(between) && name.len() <= MAX_NAME_LEN
}

pub fn generate_key() -> Result<String, KeyDocumentError> {
    let bytes = rand::generate::<[u8; 32]>(&SystemRandom::new());
    let bytes = bytes.map_err(|_| KeyDocumentError::Random)?;
    Ok(format!("{PREFIX}{}", base62(&bytes.expose())))
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
    fn new_key_authenticates_and_is_not_stored() {
        let mut document = KeyDocument::default();
        let new_key = document.create(record("a"), Timestamp::UNIX_EPOCH).unwrap();
        assert!(new_key.key.starts_with("sbx_") && new_key.key.len() == 47);
        assert!(!format!("{new_key:?}").contains(&new_key.key));
        let stored = document.write().unwrap();
        assert!(!String::from_utf8_lossy(&stored).contains(&new_key.key[4..]));
        let tenants = Tenants::pending();
        tenants.replace(&stored).unwrap();
        let found = tenants.authenticate(Some(&new_key.key), Timestamp::UNIX_EPOCH);
        let tenant = found.unwrap().tenant;
        assert_eq!((&*tenant.name, tenant.limits.sandboxes), ("a", Some(2)));
        let [listed] = &KeyDocument::read(&stored).unwrap().list()[..] else {
            panic!("one record");
        };
        assert_eq!((&listed.id, listed.fault), (&new_key.id, None));
    }

    #[test]
    fn revoke_by_id_or_name_keeps_other_records() {
        let mut document = KeyDocument::read(br#"[{"name": 7, "new": "field"}]"#).unwrap();
        let first = document.create(record("a"), Timestamp::UNIX_EPOCH).unwrap();
        document.create(record("a"), Timestamp::UNIX_EPOCH).unwrap();
        document.create(record("b"), Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!(document.revoke(&first.id).unwrap(), 1);
        assert_eq!(document.revoke("a").unwrap(), 1);
        assert!(matches!(
            document.revoke("a"),
            Err(KeyDocumentError::Unknown(_))
        ));
        assert!(document.revoke("").is_err() && document.revoke("0").is_err());
        assert_eq!(document.list().len(), 1);
        assert!(String::from_utf8_lossy(&document.write().unwrap()).contains("new"));
    }

    #[test]
    fn names_are_easy_to_type_and_to_search_for() {
        let mut document = KeyDocument::default();
        for name in ["a", "team-a", "Team_7", "who@example.org", &"x".repeat(63)] {
            assert!(document.validate_name(name).is_ok(), "{name}");
        }
        let long = "x".repeat(64);
        for name in ["", " ", "team a", "-a", "a.", "\u{fc}", "a\nb", &long] {
            let said = document.validate_name(name).unwrap_err().to_string();
            assert!(said.contains("as in team-a"), "{name:?}: {said}");
        }
        let old = record("Team A");
        document.create(old, Timestamp::UNIX_EPOCH).unwrap();
        assert!(
            document.validate_name("Team A").is_ok(),
            "of an existing key"
        );
        assert!(document.validate_name("Team B").is_err());
    }

    #[test]
    fn invalid_record_is_not_created() {
        let mut document = KeyDocument::default();
        let bad = RawRecord {
            max_cpu: Some("much".into()),
            ..record("a")
        };
        assert!(document.create(bad, Timestamp::UNIX_EPOCH).is_err());
        assert!(document.create(record(""), Timestamp::UNIX_EPOCH).is_err());
        assert!(document.list().is_empty());
        assert!(KeyDocument::read(b"{}").is_err());
    }
}
