//! The image of V0 when none is configured (`docs/specs/runtime-api.md`, sections 1.10 and 3.2, step 3).

use std::time::Duration;

use http::Method;
use serde_json::Value;
use testing::image_build::{self, FORM_TYPE, Release, Rung};
use tokio::time::sleep;

use super::V0;
use crate::clients::ClientException;
use crate::clients::exception::{index, text};
use crate::runtime_tags::{RuntimeTags, lock_hash};

/// Time between two questions for the end of a build.
const BUILD_POLL: Duration = Duration::from_secs(30);
/// Questions after which the client gives up: half an hour.
const MAX_POLLS: usize = 60;

/// Parts that a client builds its image from.
#[derive(Debug, Clone)]
pub struct BuildConfig {
    /// Version of the client, part of all tags.
    pub version: String,
    pub release: Release,
    /// `base_container_image`.
    pub base: String,
    /// Shortened hash of the client's source.
    pub source: String,
    /// `pyproject.toml` and `poetry.lock`.
    pub lock_files: [String; 2],
    pub browser: bool,
}

impl Default for BuildConfig {
    fn default() -> Self {
        Self {
            version: "0.62.0".into(),
            release: Release::V0_62,
            base: "nikolaik/python-nodejs:python3.12-nodejs22".into(),
            source: "tn3hksxzqrips7lk".into(),
            lock_files: ["[p]\n".into(), "lock\n".into()],
            browser: true,
        }
    }
}

impl BuildConfig {
    pub fn tags(&self) -> RuntimeTags {
        let [pyproject, lock] = self.lock_files.each_ref().map(String::as_bytes);
        let lock = lock_hash(&self.base, self.browser, pyproject, lock);
        RuntimeTags::new(&self.version, &self.base, &lock, &self.source)
    }

    /// Version tags came with 0.12.
    fn has_version_tags(&self) -> bool {
        self.release != Release::V0_10
    }
}

impl V0 {
    /// Climbs the ladder: the image itself, the one with the same lock files, the one of the same
    /// release and base image, the base image.
    pub(super) async fn build_image(&self) -> Result<String, ClientException> {
        let prefix = self.api(Method::GET, "registry_prefix", None, 200);
        let prefix = prefix.await?.json()?;
        let prefix = text(&prefix, "registry_prefix")?;
        let repository = format!("{}/runtime", prefix.trim_end_matches('/'));
        let (config, tags) = (&self.config.build, self.config.build.tags());
        let image = |tag: &str| format!("{repository}:{tag}");
        let source = image(&tags.source);
        if !self.image_exists(&source).await? {
            let (lock, version) = (image(&tags.lock), image(&tags.version));
            let mut names = vec![source.clone(), lock.clone()];
            let (rung, base) = if self.image_exists(&lock).await? {
                (Rung::Lock, &lock)
            } else if config.has_version_tags() && self.image_exists(&version).await? {
                (Rung::Versioned, &version)
            } else {
                (Rung::Scratch, &config.base)
            };
            if rung == Rung::Scratch && config.has_version_tags() {
                names.push(version.clone());
            }
            self.build_from(rung, base, names).await?;
        }
        if !self.image_exists(&source).await? {
            let missing = format!("Container image {source} does not exist");
            return Err(ClientException::Unavailable(missing));
        }
        Ok(source)
    }

    /// Has those of the images built that do not exist yet.
    async fn build_from(
        &self,
        rung: Rung,
        base: &str,
        names: Vec<String>,
    ) -> Result<(), ClientException> {
        let mut missing = Vec::new();
        for name in &names {
            if !self.image_exists(name).await? {
                missing.push(name.as_str());
            }
        }
        let (target, tags) = missing.split_first().ok_or_else(no_tag)?;
        let dockerfile = image_build::dockerfile(self.config.build.release, rung, base);
        let context = image_build::context(&dockerfile, 1_764_288_000);
        let form = image_build::form(&context, target, tags);
        let mut wire = self.wire.clone();
        wire.headers.push(("Content-Type".into(), FORM_TYPE.into()));
        let url = format!("{}/build", self.config.api_url);
        let limit = self.config.api_timeout;
        let reply = wire.send(Method::POST, &url, form.into(), limit).await?;
        if !reply.is_success() {
            return Err(reply.error());
        }
        let id = text(&reply.json()?, "build_id")?;
        self.wait_for_build(&id).await
    }

    async fn wait_for_build(&self, id: &str) -> Result<(), ClientException> {
        let path = format!("build_status?build_id={id}");
        for _ in 0..MAX_POLLS {
            let reply = self.api(Method::GET, &path, None, 200).await?.json()?;
            match &*text(&reply, "status")? {
                "SUCCESS" => return text(&reply, "image").map(drop),
                "FAILURE" | "INTERNAL_ERROR" | "TIMEOUT" | "CANCELLED" | "EXPIRED" => {
                    let error = reply["error"].as_str().unwrap_or_default();
                    return Err(ClientException::Unavailable(error.into()));
                }
                _ => sleep(BUILD_POLL).await,
            }
        }
        Err(ClientException::Timeout)
    }

    async fn image_exists(&self, image: &str) -> Result<bool, ClientException> {
        let image = image.replace('/', "%2F").replace(':', "%3A");
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

/// `IndexError`: another client has made all of them in the meantime.
fn no_tag() -> ClientException {
    ClientException::Key("tags[0]".into())
}
