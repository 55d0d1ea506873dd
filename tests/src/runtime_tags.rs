//! Names of V0 runtime images, as the client computes them: hashes of the base
//! image, of the lock files and of the client's source, shortened to 16 characters.

mod source;
#[cfg(test)]
mod tests;

use md5::{Digest as _, Md5};

pub use source::{directory_hash, source_hash};

/// Characters of a shortened hash.
const HASH_CHARS: usize = 16;
/// Characters of a base image in a version tag.
const MAX_BASE_CHARS: usize = 96;
/// Characters of a repository that a generic tag keeps as it is, and those it keeps of a longer one.
const MAX_REPOSITORY_CHARS: usize = 32;
const KEPT_REPOSITORY_CHARS: usize = 24;
/// Longest tag of a registry.
const MAX_TAG_CHARS: usize = 128;

/// The three tags of one image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuntimeTags {
    pub source: String,
    pub lock: String,
    pub version: String,
}

impl RuntimeTags {
    /// Tags of a release of the client for a base image, from its lock and source hash.
    pub fn new(version: &str, base: &str, lock: &str, source: &str) -> Self {
        Self {
            source: format!("oh_v{version}_{lock}_{source}"),
            lock: format!("oh_v{version}_{lock}"),
            version: version_tag(version, base),
        }
    }
}

/// Shortens an MD5: base 36, least significant digit first, cut after 16 digits.
pub fn shorten(md5: [u8; 16]) -> String {
    let mut rest = u128::from_be_bytes(md5);
    let digits = std::iter::from_fn(|| {
        let digit = u32::try_from(rest % 36).unwrap();
        let digit = (rest > 0).then(|| char::from_digit(digit, 36).unwrap());
        rest /= 36;
        digit
    });
    digits.take(HASH_CHARS).collect()
}

/// Hash of a base image and of the client's `pyproject.toml` and `poetry.lock`.
pub fn lock_hash(base: &str, browser: bool, pyproject: &[u8], lock: &[u8]) -> String {
    let browser: &[u8] = if browser { b"" } else { b"False" };
    shorten(md5([base.as_bytes(), browser, pyproject, lock]))
}

/// Tag that names the base image.
pub fn version_tag(version: &str, base: &str) -> String {
    let base = base.replace('/', "_s_").replace(':', "_t_").to_lowercase();
    let surplus = base.chars().count().saturating_sub(MAX_BASE_CHARS);
    let base: String = base.chars().skip(surplus).collect();
    format!("oh_v{version}_{base}")
}

/// Tag for people, which the client never looks up.
pub fn generic_tag(version: &str, base: &str) -> String {
    let (repository, tag) = base.split_once(':').unwrap_or((base, "latest"));
    let repository = match repository.len().checked_sub(KEPT_REPOSITORY_CHARS) {
        Some(cut) if repository.len() > MAX_REPOSITORY_CHARS => {
            let (head, tail) = repository.split_at(cut);
            format!("{}_{tail}", &hex(md5([head.as_bytes()]))[..8])
        }
        _ => repository.to_owned(),
    };
    let repository = repository.replace('/', "_s_");
    let full = format!("oh_v{version}_image_{repository}_tag_{tag}");
    if full.len() <= MAX_TAG_CHARS {
        return full;
    }
    format!("oh_v{version}_image_{}", hex(md5([full.as_bytes()])))
}

fn md5<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> [u8; 16] {
    let mut hash = Md5::new();
    for part in parts {
        hash.update(part);
    }
    hash.finalize().into()
}

fn hex(md5: [u8; 16]) -> String {
    data_encoding::HEXLOWER.encode(&md5)
}
