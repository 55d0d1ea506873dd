//! The image of V0 when none is configured (`docs/specs/runtime-api.md`, sections 1.10 and 3.2, step 3).

use http::Method;
use serde_json::Value;

use super::V0;
use crate::clients::ClientException;
use crate::clients::exception::{index, text};

/// Tags of one release, in the order in which they are looked for.
const TAGS: [&str; 3] = ["oh_v0.62.0_source", "oh_v0.62.0_lock", "oh_v0.62.0_image"];

impl V0 {
    /// Looks for the image by its tags, and asks for a build if there is none.
    pub(super) async fn build_image(&self) -> Result<String, ClientException> {
        let prefix = self.api(Method::GET, "registry_prefix", None, 200);
        let prefix = prefix.await?.json()?;
        let prefix = text(&prefix, "registry_prefix")?;
        let repository = format!("{}/runtime", prefix.trim_end_matches('/'));
        for tag in TAGS {
            let image = format!("{repository}:{tag}");
            if self.image_exists(&image).await? {
                return Ok(image);
            }
        }
        let reply = self.api(Method::POST, "build", None, 202).await?.json()?;
        text(&reply, "build_id").map(|_| repository)
    }

    async fn image_exists(&self, image: &str) -> Result<bool, ClientException> {
        let path = format!("image_exists?image={image}");
        let answer = self.api(Method::GET, &path, None, 200).await?.json()?;
        let exists = index(&answer, "exists")?.as_bool().unwrap_or_default();
        if exists {
            let image = index(&answer, "image")?;
            index(image, "upload_time")?;
            let size = index(image, "image_size_bytes")?;
            let no_number = || ClientException::Type(format!("a size of {size}"));
            Value::as_f64(size).ok_or_else(no_number)?;
        }
        Ok(exists)
    }
}
