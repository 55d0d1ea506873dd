//! Checks the syntax of an image reference as container runtimes do, so that a start fails at once
//! instead of in a Pod.

use crate::api::ApiError;

/// Maximum length of a reference in bytes (Sandbox schema).
const MAX_IMAGE_BYTES: usize = 512;
const MAX_TAG_BYTES: usize = 128;

/// Returns the reference, or an error if no container runtime can pull it.
pub(super) fn check(image: Option<String>) -> Result<String, ApiError> {
    let image = image.filter(|image| !image.trim().is_empty());
    let image = image.ok_or_else(|| ApiError::bad_request("image is required"))?;
    if image.len() > MAX_IMAGE_BYTES {
        return Err(ApiError::bad_request("image exceeds 512 bytes"));
    }
    if !is_reference(&image) {
        return Err(ApiError::bad_request(
            "image is not an image reference (example: ghcr.io/openhands/agent-server:1.0)",
        ));
    }
    Ok(image)
}

/// `[DOMAIN/]PATH[:TAG][@ALGORITHM:DIGEST]`
fn is_reference(image: &str) -> bool {
    let (name, digest) = match image.split_once('@') {
        Some((name, digest)) => (name, Some(digest)),
        None => (image, None),
    };
    let (name, tag) = match name.rsplit_once(':') {
        Some((name, tag)) if !tag.contains('/') => (name, Some(tag)),
        _ => (name, None),
    };
    let path = match name.split_once('/') {
        Some((domain, path)) if is_domain(domain) => path,
        _ => name,
    };
    path.split('/').all(is_component) && tag.is_none_or(is_tag) && digest.is_none_or(is_digest)
}

fn is_domain(text: &str) -> bool {
    let named = text == "localhost" || text.contains(['.', ':', '[']);
    let known = |c: char| c.is_ascii_alphanumeric() || ".-:[]".contains(c);
    (named || text.contains(|c: char| c.is_ascii_uppercase())) && text.chars().all(known)
}

fn is_component(text: &str) -> bool {
    let letter = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let ends = text.starts_with(letter) && text.ends_with(letter);
    ends && text.chars().all(|c| letter(c) || "._-".contains(c))
}

fn is_tag(text: &str) -> bool {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let rest = |c: char| word(c) || ".-".contains(c);
    text.len() <= MAX_TAG_BYTES && text.starts_with(word) && text.chars().all(rest)
}

fn is_digest(text: &str) -> bool {
    let Some((algorithm, digits)) = text.split_once(':') else {
        return false;
    };
    let known = |c: char| c.is_ascii_alphanumeric() || "+._-".contains(c);
    !algorithm.is_empty()
        && algorithm.chars().all(known)
        && digits.len() >= 32
        && digits.chars().all(|c| c.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_accepted_as_container_runtimes_do() {
        let digest = format!("debian@sha256:{}", "0".repeat(64));
        let tagged = format!("localhost:5000/a/b_c.d-e:V1.2_3@sha256:{}", "f".repeat(64));
        for image in [
            "debian",
            "debian:12",
            "library/debian",
            "ghcr.io/openhands/agent-server:test-python",
            "localhost/sandbox-test:1",
            "[::1]:5000/a",
            &digest,
            &tagged,
        ] {
            assert!(check(Some(image.into())).is_ok(), "{image}");
        }
        for image in [
            "",
            " ",
            "Debian 12",
            "Debian",
            "a b",
            "a//b",
            "/a",
            "a/",
            "a:",
            "a:-",
            "a:b:c",
            "-a",
            "http://a/b",
            "a@sha256:0",
            "a@",
            "a\0",
            &"x".repeat(513),
        ] {
            assert!(check(Some(image.into())).is_err(), "{image:?}");
        }
        assert!(check(None).is_err());
    }
}
