//! Content digests: `sha256:` and 64 lower-case hexadecimal digits (OCI image specification,
//! "Digests"). Other algorithms are rejected.

use std::fmt;
use std::str::FromStr;

use data_encoding::{BASE32_NOPAD, HEXLOWER};
use ring::digest::{Context, SHA256};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// SHA-256 digest of a blob.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a sha256 digest")]
pub struct DigestError(String);

impl Digest {
    /// Digest of `content`.
    pub fn of(content: &[u8]) -> Self {
        let mut hasher = Hasher::default();
        hasher.update(content);
        hasher.finish()
    }

    /// The 64 hexadecimal digits.
    pub fn hex(&self) -> String {
        HEXLOWER.encode(&self.0)
    }

    /// The first 130 bits in 26 lower-case characters, for short paths: the options of an overlay
    /// mount have 4 KiB for the names of all layers.
    pub fn short(&self) -> String {
        let mut short = BASE32_NOPAD.encode(&self.0).to_ascii_lowercase();
        short.truncate(26);
        short
    }

    /// Chain id of a layer with this diff id on top of `parent` (OCI image specification, "Layer
    /// `ChainID`").
    #[must_use]
    pub fn chain(&self, parent: Option<&Self>) -> Self {
        match parent {
            None => *self,
            Some(parent) => Self::of(format!("{parent} {self}").as_bytes()),
        }
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.hex())
    }
}

impl FromStr for Digest {
    type Err = DigestError;

    fn from_str(text: &str) -> Result<Self, DigestError> {
        let bytes = text
            .strip_prefix("sha256:")
            .and_then(|hex| HEXLOWER.decode(hex.as_bytes()).ok())
            .and_then(|bytes| bytes.try_into().ok());
        bytes.map(Self).ok_or_else(|| {
            let shown: String = text.chars().take(80).collect();
            DigestError(shown)
        })
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

/// SHA-256 of a stream.
pub struct Hasher(Context);

impl Default for Hasher {
    fn default() -> Self {
        Self(Context::new(&SHA256))
    }
}

impl fmt::Debug for Hasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hasher")
    }
}

impl Hasher {
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub fn finish(self) -> Digest {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(self.0.finish().as_ref());
        Digest(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digest_parses_only_sha256_in_lower_case() {
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        let digest: Digest = format!("sha256:{empty}").parse().unwrap();
        assert_eq!(digest, Digest::of(b""));
        assert_eq!(digest.to_string(), format!("sha256:{empty}"));
        assert_eq!(digest.short(), "4oymiquy7qobjgx36tejs35zeq");
        let upper = format!("sha256:{}", empty.to_uppercase());
        for bad in ["", "sha256:", "sha256:12", empty, &upper, "sha512:00"] {
            assert!(bad.parse::<Digest>().is_err(), "{bad}");
        }
    }

    #[test]
    fn chain_id_hashes_parent_and_layer() {
        let (first, second) = (Digest::of(b"1"), Digest::of(b"2"));
        assert_eq!(first.chain(None), first);
        let expected = Digest::of(format!("{first} {second}").as_bytes());
        assert_eq!(second.chain(Some(&first)), expected);
    }
}
