//! What runs before the user's image: it brings the executor binary, or makes the directory that an
//! image's own entrypoint starts in.

use std::collections::BTreeMap;

use crds::contract::path;
use k8s_openapi::api::core::v1::{Capabilities, Container, ResourceRequirements, SecurityContext};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::Blueprint;
use super::container::workspace_path;
use super::volumes::{BIN, WORK, mount};
use crate::controller::config::Injection;

/// User that copies the binary: anybody but root.
const NOBODY: i64 = 65534;
/// The binary in its own image, which has nothing else.
const PROGRAM: &str = "/sandbox-executor";

/// The init container; `None` if nothing has to be done.
pub(super) fn init_container(blueprint: &Blueprint<'_>) -> Option<Container> {
    let image = &blueprint.config.executor_image;
    if !blueprint.supervised() {
        return directory(blueprint).map(|made| maker(blueprint, image, made));
    }
    let copies = blueprint.config.pods.injection == Injection::InitContainer;
    copies.then(|| installer(image))
}

/// Copies the executor binary to where the sandbox's container finds it.
fn installer(image: &str) -> Container {
    Container {
        name: "executor".into(),
        command: Some([PROGRAM, "install", path::BIN_DIR].map(Into::into).to_vec()),
        security_context: Some(SecurityContext {
            run_as_non_root: Some(true),
            run_as_user: Some(NOBODY),
            ..harmless()
        }),
        volume_mounts: Some(vec![mount(BIN, path::BIN_DIR)]),
        ..small(image)
    }
}

/// Makes the working directory as the sandbox's own user: a container runtime would make it as
/// root, and the user could not write to it (runtime API spec 7.20).
fn maker(blueprint: &Blueprint<'_>, image: &str, directory: &str) -> Container {
    let workspace = workspace_path(&blueprint.entry.spec);
    Container {
        name: "directory".into(),
        command: Some(
            [PROGRAM, "make-directory", directory]
                .map(Into::into)
                .to_vec(),
        ),
        security_context: Some(harmless()),
        volume_mounts: Some(vec![mount(WORK, workspace)]),
        ..small(image)
    }
}

/// A working directory that an empty workspace lacks, if its user is known and not root.
fn directory<'a>(blueprint: &Blueprint<'a>) -> Option<&'a str> {
    let spec = &blueprint.entry.spec;
    spec.security_context
        .as_ref()?
        .run_as_user
        .filter(|u| *u != 0)?;
    let wanted = spec.working_dir.as_deref()?;
    let below = wanted.strip_prefix(workspace_path(spec))?;
    let plain = !below.split('/').any(|part| part == "..");
    (plain && below.starts_with('/') && below.len() > 1).then_some(wanted)
}

fn small(image: &str) -> Container {
    let amounts = |cpu: &str, memory: &str| {
        Some(BTreeMap::from([
            ("cpu".to_owned(), Quantity(cpu.to_owned())),
            ("memory".to_owned(), Quantity(memory.to_owned())),
        ]))
    };
    Container {
        image: Some(image.to_owned()),
        image_pull_policy: Some("IfNotPresent".into()),
        resources: Some(ResourceRequirements {
            requests: amounts("10m", "16Mi"),
            limits: amounts("1", "64Mi"),
            claims: None,
        }),
        ..Container::default()
    }
}

fn harmless() -> SecurityContext {
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
