//! Commands of the containers of a build.

use builder::directory;
use crds::ImageBuild;
use images::Reference;

/// Place of what the first container fetches, and of the image that the second one makes.
pub(super) const SOURCE_PATH: &str = "/build/source";
pub(super) const IMAGE_PATH: &str = "/build/image";
/// Name of the layout of the base image for the builder.
const BASE: &str = "base";

/// Commands of one build.
pub(super) struct BuildCommands<'a> {
    pub(super) build: &'a ImageBuild,
    /// File with credentials, in the containers that have them.
    pub(super) registry_file: Option<&'static str>,
    pub(super) insecure_registries: &'a [String],
}

impl BuildCommands<'_> {
    pub(super) fn fetch(&self) -> Vec<String> {
        let mut args = self.step("fetch");
        let base = self.status(|status| status.base_image.as_deref());
        args.extend(base.map(|base| format!("--base={base}")));
        args.push(format!("--directory={SOURCE_PATH}"));
        args
    }

    pub(super) fn push(&self) -> Vec<String> {
        let mut args = self.step("push");
        let targets = self.build.references();
        args.extend(targets.map(|target| format!("--target={target}")));
        args.push(format!("--layout={IMAGE_PATH}"));
        args
    }

    fn step(&self, step: &str) -> Vec<String> {
        let mut args = vec!["image-build".to_owned(), step.to_owned()];
        let file = self.registry_file;
        args.extend(file.map(|file| format!("--registry-config={file}")));
        let insecure = self.insecure_registries.join(",");
        args.extend((!insecure.is_empty()).then(|| format!("--insecure-registries={insecure}")));
        let context = self.status(|status| status.context.as_deref());
        args.extend(context.map(|context| format!("--context={context}")));
        args
    }

    /// The builder's command.
    pub(super) fn build(&self) -> Vec<String> {
        let context = format!("{SOURCE_PATH}/{}", directory::CONTEXT);
        let spec = &self.build.spec;
        let command = [
            "buildctl-daemonless.sh",
            "build",
            "--progress=plain",
            "--frontend=dockerfile.v0",
        ];
        let options = [
            format!("--local=context={context}"),
            format!("--local=dockerfile={context}"),
            format!("--output=type=oci,tar=false,dest={IMAGE_PATH}"),
            format!("--opt=label:openhands.dev/tenant={}", spec.tenant),
            format!(
                "--opt=label:openhands.dev/context-digest={}",
                spec.context_digest
            ),
        ];
        let command = command.into_iter().map(str::to_owned);
        command.chain(options).chain(self.base_options()).collect()
    }

    /// Options that put the base image in place of its name in the Dockerfile.
    fn base_options(&self) -> Vec<String> {
        let spec = &self.build.spec;
        let name = spec.from.as_ref().or(spec.base.as_ref());
        let Some(name) = name.and_then(|name| familiar(name)) else {
            return Vec::new();
        };
        let fetched = self.status(|status| status.base_image.as_deref());
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

    fn status<'b>(
        &'b self,
        field: impl FnOnce(&'b crds::image_build::ImageBuildStatus) -> Option<&'b str>,
    ) -> Option<&'b str> {
        self.build.status.as_ref().and_then(field)
    }
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
