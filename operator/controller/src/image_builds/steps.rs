//! Commands of the containers of a build.

use builder::directory;
use images::Reference;

use super::pod::{BuildPod, IMAGE_PATH, SOURCE_PATH};

/// Name of the layout of the base image for the builder.
const BASE: &str = "base";

pub(super) fn fetch_args(pod: &BuildPod<'_>) -> Vec<String> {
    let status = pod.build.status.clone().unwrap_or_default();
    let mut args = command(pod, "fetch");
    args.extend(status.context.map(|context| format!("--context={context}")));
    args.extend(status.base_image.map(|base| format!("--base={base}")));
    args.push(format!("--directory={SOURCE_PATH}"));
    args
}

pub(super) fn push_args(pod: &BuildPod<'_>) -> Vec<String> {
    let status = pod.build.status.clone().unwrap_or_default();
    let mut args = command(pod, "push");
    args.extend(status.context.map(|context| format!("--context={context}")));
    let targets = pod.build.references();
    args.extend(targets.map(|target| format!("--target={target}")));
    args.push(format!("--layout={IMAGE_PATH}"));
    args
}

fn command(pod: &BuildPod<'_>, step: &str) -> Vec<String> {
    let mut args = vec!["image-build".to_owned(), step.to_owned()];
    args.extend(
        pod.registry_file()
            .map(|file| format!("--registry-config={file}")),
    );
    let insecure = pod.config.insecure_registries.join(",");
    args.extend((!insecure.is_empty()).then(|| format!("--insecure-registries={insecure}")));
    args
}

/// The builder's command. It reads no instructions but those of the Dockerfile.
pub(super) fn build_command(pod: &BuildPod<'_>) -> Vec<String> {
    let context = format!("{SOURCE_PATH}/{}", directory::CONTEXT);
    let spec = &pod.build.spec;
    let mut command: Vec<String> = [
        "buildctl-daemonless.sh",
        "build",
        "--progress=plain",
        "--frontend=dockerfile.v0",
    ]
    .map(Into::into)
    .into();
    command.extend([
        format!("--local=context={context}"),
        format!("--local=dockerfile={context}"),
        format!("--output=type=oci,tar=false,dest={IMAGE_PATH}"),
        format!("--opt=label:openhands.dev/tenant={}", spec.tenant),
        format!(
            "--opt=label:openhands.dev/context-digest={}",
            spec.context_digest
        ),
    ]);
    command.extend(base_options(pod));
    command
}

/// Options that put the base image in place of its name in the Dockerfile.
fn base_options(pod: &BuildPod<'_>) -> Vec<String> {
    let spec = &pod.build.spec;
    let name = spec.from.as_ref().or(spec.base.as_ref());
    let Some(name) = name.and_then(|name| familiar(name)) else {
        return Vec::new();
    };
    let status = pod.build.status.as_ref();
    let fetched = status.and_then(|status| status.base_image.as_deref());
    if let Some((_, digest)) = fetched.and_then(|base| base.rsplit_once('@')) {
        let layout = format!("{SOURCE_PATH}/{}", directory::BASE);
        return vec![
            format!("--oci-layout={BASE}={layout}"),
            format!("--opt=context:{name}=oci-layout://{BASE}@{digest}"),
        ];
    }
    let other = spec.from.as_ref().and(spec.base.as_ref());
    let option = other.map(|base| format!("--opt=context:{name}=docker-image://{base}"));
    option.into_iter().collect()
}

/// Form of a reference in which the builder looks for replacements: as short as `docker pull` takes
/// it, and without the tag `latest`.
fn familiar(name: &str) -> Option<String> {
    let whole = name.parse::<Reference>().ok()?.whole();
    let hubs = ["docker.io/", "index.docker.io/"];
    let short = hubs.iter().find_map(|hub| whole.strip_prefix(hub));
    let short = short.unwrap_or(&whole);
    let short = short.strip_prefix("library/").unwrap_or(short);
    Some(short.strip_suffix(":latest").unwrap_or(short).to_owned())
}
