//! Syntax of image references, as container runtimes accept them.

use std::sync::LazyLock;

use regex::Regex;

/// `[HOST[:PORT]/]NAME[/NAME...][:TAG][@ALGORITHM:DIGEST]`. A host has a dot, a port or an upper-case
/// letter, or is `localhost`.
static REFERENCE: LazyLock<Option<Regex>> = LazyLock::new(|| {
    const HOST: &str = r"(?:localhost|[A-Za-z0-9-]*[A-Z.][A-Za-z0-9.-]*)";
    const SOCKET: &str = r"(?:[A-Za-z0-9.-]+|\[[A-Fa-f0-9:]+\]):[0-9]+";
    const NAME: &str = "[a-z0-9](?:[a-z0-9._-]*[a-z0-9])?";
    const TAG: &str = "[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}";
    const DIGEST: &str = "[A-Za-z0-9+._-]+:[A-Fa-f0-9]{32,}";
    let path = format!("(?:(?:{HOST}|{SOCKET})/)?{NAME}(?:/{NAME})*");
    Regex::new(&format!("^{path}(?::{TAG})?(?:@{DIGEST})?$")).ok()
});

/// Returns whether a container runtime can pull an image of this name.
pub fn is_image_reference(text: &str) -> bool {
    let reference = REFERENCE.as_ref();
    reference.is_some_and(|reference| reference.is_match(text))
}

/// Parts of an image reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageReference<'a> {
    /// Host and path.
    pub repository: &'a str,
    pub tag: Option<&'a str>,
    /// Algorithm and digest.
    pub digest: Option<&'a str>,
}

/// Splits a reference. `None` if no container runtime can pull an image of this name.
pub fn parse(text: &str) -> Option<ImageReference<'_>> {
    if !is_image_reference(text) {
        return None;
    }
    let (name, digest) = match text.split_once('@') {
        Some((name, digest)) => (name, Some(digest)),
        None => (text, None),
    };
    // A colon before the last slash is that of a port.
    let (repository, tag) = match name.rsplit_once(':') {
        Some((repository, tag)) if !tag.contains('/') => (repository, Some(tag)),
        _ => (name, None),
    };
    Some(ImageReference {
        repository,
        tag,
        digest,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reference_is_split_at_tag_and_digest() {
        let digest = format!("sha256:{}", "a".repeat(64));
        let pinned = format!("h:5000/a/b:1@{digest}");
        let digest_only = format!("a@{digest}");
        for (text, repository, tag, digest) in [
            ("debian", "debian", None, None),
            ("debian:12", "debian", Some("12"), None),
            ("localhost:5000/a", "localhost:5000/a", None, None),
            ("localhost:5000/a:1", "localhost:5000/a", Some("1"), None),
            (&pinned, "h:5000/a/b", Some("1"), Some(&*digest)),
            (&digest_only, "a", None, Some(&digest)),
        ] {
            let parsed = parse(text).unwrap();
            let parts = (parsed.repository, parsed.tag, parsed.digest);
            assert_eq!(parts, (repository, tag, digest), "{text}");
        }
        assert_eq!(parse("a:b@sha256"), None);
    }
}
