//! Validation of image references. Invalid ones are rejected as the kubelet does, so that a
//! manifest that works here does not fail in a cluster.

/// Maximum length of a tag.
const MAX_TAG_CHARS: usize = 128;
/// Minimum number of digits of a digest.
const MIN_DIGEST_DIGITS: usize = 32;

/// True if the text is `[HOST[:PORT]/]NAME[/NAME...][:TAG][@DIGEST]`.
pub(super) fn is_valid(text: &str) -> bool {
    let (text, digest) = match text.split_once('@') {
        Some((text, digest)) => (text, Some(digest)),
        None => (text, None),
    };
    let (path, tag) = match text.rsplit_once(':') {
        // Otherwise it is the port of the host.
        Some((path, tag)) if !tag.contains('/') => (path, Some(tag)),
        _ => (text, None),
    };
    tag.is_none_or(is_tag) && digest.is_none_or(is_digest) && is_path(path)
}

fn is_path(path: &str) -> bool {
    let pod_identity = match path.split_once('/') {
        Some((host, pod_identity)) if is_host(host) => pod_identity,
        _ => path,
    };
    pod_identity.split('/').all(is_name)
}

/// True if the first part has a dot, a port or is `localhost`.
fn is_host(text: &str) -> bool {
    let (host, port) = text.split_once(':').unwrap_or((text, "0"));
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '.' || c == '-';
    let known = host == "localhost" || text.contains(['.', ':']);
    known && !host.is_empty() && host.chars().all(plain) && is_number(port)
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

fn is_name(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let bytes = text.as_bytes();
    let ends = bytes.first().zip(bytes.last());
    let between = |b: &u8| inner(*b) || b"._-".contains(b);
    ends.is_some_and(|(first, last)| inner(*first) && inner(*last)) && bytes.iter().all(between)
}

fn is_tag(text: &str) -> bool {
    let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    let begins = text.bytes().next().is_some_and(word);
    begins && text.len() <= MAX_TAG_CHARS && text.bytes().all(|b| word(b) || b".-".contains(&b))
}

fn is_digest(text: &str) -> bool {
    let Some((algorithm, digits)) = text.split_once(':') else {
        return false;
    };
    let hex = digits.bytes().all(|b| b.is_ascii_hexdigit());
    is_name(algorithm) && hex && digits.len() >= MIN_DIGEST_DIGITS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_valid_agrees_with_kubelet() {
        let digest = format!("a@sha256:{}", "0f".repeat(32));
        for good in [
            "debian",
            "debian:12",
            "ghcr.io/openhands/runtime:0.59-nikolaik",
            "localhost/sandbox-test:1",
            "localhost:5000/a",
            "Registry.Example.com:5000/a/b__c:V1_x",
            &digest,
        ] {
            assert!(is_valid(good), "{good}");
        }
        for bad in [
            "",
            " ",
            "Debian",
            "debian 12",
            "debian:",
            "debian:12:13",
            "a//b",
            "/a",
            "-a",
            "a@sha256:12",
            "https://ghcr.io/a",
            "host:port/a",
            "\u{fc}",
        ] {
            assert!(!is_valid(bad), "{bad}");
        }
    }
}
