//! `ImageBuild`, the resource of a runtime image that a client asked the runtime API to build.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

/// A runtime image that a client asked the runtime API to build.
#[skip_serializing_none]
#[derive(CustomResource, KubeSchema, Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[kube(
    group = "openhands.dev",
    version = "v1alpha1",
    kind = "ImageBuild",
    plural = "imagebuilds",
    shortname = "imgb",
    category = "openhands",
    namespaced,
    status = "ImageBuildStatus",
    doc = "A runtime image that a client asked the runtime API to build. Image builds are made by the gateway.",
    derive = "PartialEq",
    derive = "Default",
    printcolumn(name = "Mode", type_ = "string", json_path = ".spec.mode"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Target", type_ = "string", json_path = ".spec.target"),
    printcolumn(name = "Size", type_ = "integer", format = "int64", json_path = ".status.sizeBytes", priority = 1),
    printcolumn(name = "Digest", type_ = "string", json_path = ".status.digest"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = Rule::new("self.spec == oldSelf.spec").message("spec is immutable"),
)]
#[serde(rename_all = "camelCase")]
pub struct ImageBuildSpec {
    /// Tenant that asked for the image. Only its sandboxes can use it.
    #[schemars(length(min = 1, max = 63))]
    pub tenant: String,
    /// Reference of the image, with the tag that the client starts.
    #[schemars(length(min = 1, max = 512))]
    pub target: String,
    /// More references of the image.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(min = 1, max = 512)))]
    pub tags: Vec<String>,
    /// Image that the build starts from. Absent if the build context names none.
    #[schemars(length(min = 1, max = 512))]
    pub base: Option<String>,
    /// Operand of the first `FROM` of the Dockerfile, if it names the base image in another way.
    #[schemars(length(min = 1, max = 512))]
    pub from: Option<String>,
    /// Digest of the base image, if its reference has one.
    #[schemars(length(max = 71), regex(pattern = "^sha256:[0-9a-f]{64}$"))]
    pub base_digest: Option<String>,
    /// Digest of the paths, modes and contents of the build context.
    #[schemars(length(max = 71), regex(pattern = "^sha256:[0-9a-f]{64}$"))]
    pub context_digest: String,
    pub mode: BuildMode,
}

/// Way in which an image comes into being.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum BuildMode {
    /// The image is another name of its base image: the executor is added at the start of a sandbox.
    #[default]
    Alias,
    /// The files of the build context are one more layer on the base image, in its registry.
    Append,
    /// The instructions of the Dockerfile run in a Pod of the controller.
    Full,
}

impl BuildMode {
    /// Name for logs and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Alias => "alias",
            Self::Append => "append",
            Self::Full => "full",
        }
    }
}

/// Progress of an image build.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum BuildPhase {
    /// Not begun.
    #[default]
    Queued,
    /// In progress.
    Running,
    /// The image can be used.
    Succeeded,
    /// There is no image; the message says why.
    Failed,
}

/// Observed state of an image build.
#[skip_serializing_none]
#[derive(KubeSchema, Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ImageBuildStatus {
    #[serde(default)]
    pub phase: BuildPhase,
    /// Build context in the registry, by its digest. The controller runs a full build that has it.
    #[schemars(length(max = 600))]
    pub context: Option<String>,
    /// Base image by its digest, if the registry of the build context has it.
    #[schemars(length(max = 600))]
    pub base_image: Option<String>,
    /// Number of attempts to make a Pod for a full build.
    #[schemars(range(min = 0))]
    pub attempts: Option<u32>,
    /// Digest of the image, if it is known.
    #[schemars(length(max = 71))]
    pub digest: Option<String>,
    /// Bytes of the image in its registry, for one platform, if they are known.
    #[schemars(range(min = 0))]
    pub size_bytes: Option<i64>,
    /// Time at which the build began.
    pub started_at: Option<Time>,
    /// Time at which the build succeeded or failed.
    pub finished_at: Option<Time>,
    /// Time at which a client last asked for the image or started it, to the hour.
    pub last_used_at: Option<Time>,
    /// Cause of a failure, as one word.
    #[schemars(length(max = 64))]
    pub reason: Option<String>,
    /// Step of a full build that runs, or explanation of a failure, with the end of the log.
    #[schemars(length(max = 4096))]
    pub message: Option<String>,
}

impl ImageBuild {
    /// Progress of the build; a new object has no status yet.
    pub fn phase(&self) -> BuildPhase {
        let status = self.status.as_ref();
        status.map(|status| status.phase).unwrap_or_default()
    }

    pub fn is_finished(&self) -> bool {
        matches!(self.phase(), BuildPhase::Succeeded | BuildPhase::Failed)
    }

    /// Returns whether this is a later version of the same object: an own write may be ahead of the
    /// watch.
    pub fn is_newer_than(&self, other: &Self) -> bool {
        let version = |build: &Self| {
            build
                .metadata
                .resource_version
                .as_ref()?
                .parse::<u64>()
                .ok()
        };
        let versions = version(self).zip(version(other));
        self.metadata.uid == other.metadata.uid && versions.is_some_and(|(own, that)| own > that)
    }

    /// Returns whether sandboxes can be started from the image.
    pub fn is_usable(&self) -> bool {
        self.phase() == BuildPhase::Succeeded
    }

    /// All references of the image.
    pub fn references(&self) -> impl Iterator<Item = &str> {
        let tags = self.spec.tags.iter();
        std::iter::once(&self.spec.target)
            .chain(tags)
            .map(String::as_str)
    }

    /// Reference of the image that a sandbox runs, by its digest if it is known: the base image, or
    /// the image that was made of it.
    pub fn runnable(&self) -> Option<String> {
        let image = match self.spec.mode {
            BuildMode::Alias => self.spec.base.as_ref()?,
            BuildMode::Append | BuildMode::Full => &self.spec.target,
        };
        let digest = self
            .status
            .as_ref()
            .and_then(|status| status.digest.as_ref());
        match digest {
            Some(digest) if !image.contains('@') => Some(format!("{image}@{digest}")),
            _ => Some(image.clone()),
        }
    }
}
