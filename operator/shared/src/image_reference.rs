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
