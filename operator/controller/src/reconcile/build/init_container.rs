//! The init container: it copies the executor binary, or creates the working directory of an image
//! entrypoint.

use crds::contract::path;
use k8s_openapi::api::core::v1::{Capabilities, Container, SecurityContext};
use shared::resources::minimal_resources;

use super::BuildContext;
use super::volumes::{BIN, WORK, mount, workspace_path};
use crate::config::Injection;

/// User that copies the binary: any user but root.
pub(crate) const NON_ROOT_UID: i64 = 65534;
/// Path of the binary in the executor image.
pub(crate) const PROGRAM: &str = "/sandbox-executor";

/// The init container; `None` if none is needed.
pub(super) fn init_container(context: &BuildContext<'_>) -> Option<Container> {
    let image = &context.config.executor_image;
    if !context.is_supervised() {
        return directory(context).map(|path| working_dir_init(context, image, path));
    }
    let copies = context.features.injection == Injection::InitContainer;
    copies.then(|| executor_init(image))
}

/// Copies the executor binary into a volume of the sandbox container.
fn executor_init(image: &str) -> Container {
    Container {
        name: "executor".into(),
        command: Some([PROGRAM, "install", path::BIN_DIR].map(Into::into).to_vec()),
        security_context: Some(SecurityContext {
            run_as_non_root: Some(true),
            run_as_user: Some(NON_ROOT_UID),
            ..restricted_security_context()
        }),
        volume_mounts: Some(vec![mount(BIN, path::BIN_DIR)]),
        ..minimal_container(image)
    }
}

/// Creates the working directory as the user of the sandbox. A container runtime would create it as
/// root, not writable for the user (`docs/specs/runtime-api.md`, section 7, rule 20).
fn working_dir_init(context: &BuildContext<'_>, image: &str, directory: &str) -> Container {
    let workspace = workspace_path(&context.entry.spec);
    Container {
        name: "directory".into(),
        command: Some(
            [PROGRAM, "make-directory", directory]
                .map(Into::into)
                .to_vec(),
        ),
        security_context: Some(restricted_security_context()),
        volume_mounts: Some(vec![mount(WORK, workspace)]),
        ..minimal_container(image)
    }
}

/// Working directory below the workspace, if the user is known and not root.
fn directory<'a>(context: &BuildContext<'a>) -> Option<&'a str> {
    let spec = &context.entry.spec;
    spec.security_context
        .as_ref()?
        .run_as_user
        .filter(|u| *u != 0)?;
    let requested = spec.working_dir.as_deref()?;
    let below = requested.strip_prefix(workspace_path(spec))?;
    let plain = !below.split('/').any(|part| part == "..");
    (plain && below.starts_with('/') && below.len() > 1).then_some(requested)
}

pub(crate) fn minimal_container(image: &str) -> Container {
    Container {
        image: Some(image.to_owned()),
        image_pull_policy: Some("IfNotPresent".into()),
        resources: Some(minimal_resources()),
        ..Container::default()
    }
}

pub(crate) fn restricted_security_context() -> SecurityContext {
    SecurityContext {
        allow_privilege_escalation: Some(false),
        capabilities: Some(Capabilities {
            drop: Some(vec!["ALL".into()]),
            add: None,
        }),
        read_only_root_filesystem: Some(true),
        ..SecurityContext::default()
    }
}
