//! Checks the syntax of an image reference as container runtimes do, so that a start fails at once
//! instead of in a Pod.

use crate::api::ApiError;
use shared::image_reference::is_image_reference;

/// Maximum length of a reference in bytes (Sandbox schema).
const MAX_IMAGE_BYTES: usize = 512;

/// Returns the reference, or an error if no container runtime can pull it.
pub(super) fn check(image: Option<String>) -> Result<String, ApiError> {
    let image = image.filter(|image| !image.trim().is_empty());
    let image = image.ok_or_else(|| ApiError::bad_request("image is required"))?;
    if image.len() > MAX_IMAGE_BYTES {
        return Err(ApiError::bad_request("image exceeds 512 bytes"));
    }
    if !is_image_reference(&image) {
        return Err(ApiError::bad_request(
            "image is not an image reference (example: ghcr.io/openhands/agent-server:1.0)",
        ));
    }
    Ok(image)
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
