//! Base image and mode of a build, or the reason for which there is no image.

use crds::image_build::BuildMode;
use shared::image_builds::ImageBuilds;
use shared::image_reference;
use shared::tenants::Tenant;

use super::Builds;
use super::dockerfile::{self, Recognition, TemplateKind};
use super::form::BuildForm;
use super::outcome::Failure;

#[derive(Debug)]
pub(super) struct Judgement {
    pub(super) base: Option<String>,
    /// Name of the base image in the Dockerfile, if it is another one.
    pub(super) from: Option<String>,
    pub(super) mode: BuildMode,
    /// The base image is an earlier runtime image that only the tenant's registry can have.
    pub(super) is_foreign_parent: bool,
    pub(super) failure: Option<Failure>,
}

impl Builds {
    /// Finds the base image of a build.
    pub(super) fn judge(&self, tenant: &Tenant, form: &BuildForm) -> Judgement {
        let (from, recognition) = dockerfile::recognize(&form.context.dockerfile);
        let is_template = matches!(recognition, Recognition::Template(_));
        if !is_template && self.policy(tenant) == ImageBuilds::Full && form.context.files.is_some()
        {
            return self.full(tenant, from.as_deref());
        }
        let from = from.filter(|from| image_reference::parse(from).is_some());
        let Some(from) = from else {
            return Judgement::failed(None, "InvalidBase", INVALID_BASE.to_owned());
        };
        let failed = |reason, message: &str| {
            Judgement::failed(Some(from.clone()), reason, message.to_owned())
        };
        let kind = match recognition {
            Recognition::ExtraDependencies => {
                return failed("ExtraDependencies", EXTRA_DEPENDENCIES);
            }
            Recognition::Unknown => {
                return failed("UnknownDockerfile", UNKNOWN_DOCKERFILE);
            }
            Recognition::Template(kind) => kind,
        };
        let parent = self.index.by_reference(&tenant.name, &from);
        let is_appended = kind == TemplateKind::Lock && form.context.files.is_some();
        let mode = if is_appended {
            BuildMode::Append
        } else {
            BuildMode::Alias
        };
        match parent {
            // An image that was made here has another version of the client's program.
            Some(parent) if is_appended && parent.spec.mode == mode => Judgement::base(from, mode),
            Some(parent) => match parent.runnable() {
                Some(base) => Judgement::base(base, BuildMode::Alias),
                None => failed("UnknownParent", &unknown_parent(&from)),
            },
            None if kind == TemplateKind::Scratch => Judgement::base(from, mode),
            None if self.is_in_registry(tenant, &from) => Judgement {
                is_foreign_parent: true,
                ..Judgement::base(from, mode)
            },
            None => failed("UnknownParent", &unknown_parent(&from)),
        }
    }

    /// Returns whether an image is directly below the tenant's prefix, where the credentials of the
    /// gateway are used for the tenant. Further below, there may be the prefix of another one.
    pub(super) fn is_of_tenant(&self, tenant: &Tenant, reference: &str) -> bool {
        let repository = image_reference::parse(reference).map(|parsed| parsed.repository);
        let below = repository.and_then(|name| name.strip_prefix(self.registry_prefix(tenant)));
        let name = below.and_then(|below| below.strip_prefix('/'));
        name.is_some_and(|name| !name.contains('/')) && self.has_registry(tenant)
    }

    /// A Dockerfile that runs as it is. Its base image may be another name of an image.
    fn full(&self, tenant: &Tenant, from: Option<&str>) -> Judgement {
        let from = from.and_then(dockerfile::operand);
        let from = from.filter(|from| image_reference::parse(from).is_some());
        let parent = from.and_then(|from| self.index.by_reference(&tenant.name, from));
        let known = parent.and_then(|parent| parent.runnable());
        let base = known.or_else(|| from.map(str::to_owned));
        Judgement {
            from: from
                .filter(|from| base.as_deref() != Some(from))
                .map(str::to_owned),
            is_foreign_parent: base
                .as_deref()
                .is_some_and(|base| self.is_of_tenant(tenant, base)),
            base,
            mode: BuildMode::Full,
            failure: None,
        }
    }
}

const INVALID_BASE: &str = "the Dockerfile does not begin with FROM and an image reference: set \
    runtime_container_image to an existing image";
const EXTRA_DEPENDENCIES: &str = "runtime_extra_deps cannot be installed here: leave it empty, or \
    set runtime_container_image to an image that has them";
const UNKNOWN_DOCKERFILE: &str = "the Dockerfile is not that of a known OpenHands release: use a \
    released version, or set runtime_container_image to an existing image";

pub(super) fn unknown_parent(from: &str) -> String {
    format!(
        "{from}, from which the image is to be built, is not known here: start again, or set \
         runtime_container_image to an existing image"
    )
}

impl Judgement {
    fn base(base: String, mode: BuildMode) -> Self {
        Self {
            base: Some(base),
            from: None,
            mode,
            is_foreign_parent: false,
            failure: None,
        }
    }

    fn failed(base: Option<String>, reason: &'static str, message: String) -> Self {
        Self {
            base,
            from: None,
            mode: BuildMode::Alias,
            is_foreign_parent: false,
            failure: Some(Failure { reason, message }),
        }
    }
}
