//! The Pod of a full build. Its containers run one after the other: the first and the last one have
//! credentials of the registry, and the one between runs the instructions of the Dockerfile.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use builder::directory;
use crds::ImageBuild;
use crds::names::{
    BUILD_LABEL, BUILD_NAMESPACE_LABEL, BUILD_UID_LABEL, CONTROLLER_FIELD_MANAGER, MANAGED_BY_LABEL,
};
use k8s_openapi::api::core::v1::{
    AppArmorProfile, Capabilities, Container, EmptyDirVolumeSource, EnvVar, HostPathVolumeSource,
    KeyToPath, LocalObjectReference, Pod, PodSecurityContext, PodSpec, ResourceRequirements,
    SeccompProfile, SecretVolumeSource, SecurityContext, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::ResourceExt as _;
use kube::api::ObjectMeta;
use shared::image_builds::BUILD_CONTAINER;

use super::steps::{BuildCommands, IMAGE_PATH, SOURCE_PATH};
use crate::config::{BuildSteps, BuilderConfig, BuilderIsolation};

pub(super) const FETCH_CONTAINER: &str = "fetch";
pub(super) const PUSH_CONTAINER: &str = "push";

/// Volumes, and where the containers have them.
pub(super) const SOURCE: &str = "source";
pub(super) const IMAGE: &str = "image";
const STATE: &str = "state";
const REGISTRY: &str = "registry";
const REGISTRY_PATH: &str = "/registry";
const REGISTRY_FILE: &str = "/registry/config.json";
/// Without a user namespace of the Pod, the builder cannot mount `/proc` for its processes.
const NO_PROCESS_SANDBOX: &str = "--oci-worker-no-process-sandbox";
const STATE_PATH: &str = "/home/user/.local/share/buildkit";
const USER: i64 = 1000;
/// Time for a stopped builder to end.
const GRACE_SECONDS: i64 = 5;

/// Everything that the Pod depends on.
pub(super) struct BuildPod<'a> {
    pub(super) build: &'a ImageBuild,
    pub(super) config: &'a BuilderConfig,
    /// Time after which the kubelet ends it.
    pub(super) seconds: i64,
}

impl BuildPod<'_> {
    /// The object. Its name is that of the build, so that there is one at a time.
    pub(super) fn pod(&self) -> Pod {
        let config = self.config;
        let (init, main) = self.containers();
        Pod {
            metadata: ObjectMeta {
                name: self.build.metadata.name.clone(),
                namespace: Some(config.namespace.clone()),
                labels: Some(labels(self.build)),
                ..ObjectMeta::default()
            },
            spec: Some(PodSpec {
                init_containers: Some(init),
                containers: vec![main],
                volumes: Some(self.volumes()),
                restart_policy: Some("Never".into()),
                active_deadline_seconds: Some(self.seconds),
                termination_grace_period_seconds: Some(GRACE_SECONDS),
                automount_service_account_token: Some(false),
                enable_service_links: Some(false),
                host_users: self.is_root().then_some(false),
                runtime_class_name: config.runtime_class.clone(),
                image_pull_secrets: Some(pull_secrets(config)).filter(|all| !all.is_empty()),
                tolerations: Some(config.tolerations.clone()).filter(|all| !all.is_empty()),
                node_selector: Some(config.node_selector.clone()).filter(|map| !map.is_empty()),
                security_context: Some(self.pod_security()),
                ..PodSpec::default()
            }),
            status: None,
        }
    }

    fn is_root(&self) -> bool {
        self.config.isolation == BuilderIsolation::UserNamespace
    }

    /// Containers that run one after the other, and the last one.
    fn containers(&self) -> (Vec<Container>, Container) {
        match &self.config.steps {
            BuildSteps::Containers { image, .. } => {
                let fetch = self.step(FETCH_CONTAINER, image, self.commands().fetch(), SOURCE);
                let push = self.step(PUSH_CONTAINER, image, self.commands().push(), IMAGE);
                (vec![fetch, self.builder()], push)
            }
            BuildSteps::Local { .. } => (Vec::new(), self.builder()),
        }
    }

    /// The container with untrusted instructions. It gets no credentials.
    fn builder(&self) -> Container {
        let limits = &self.config.limits;
        let memory = ("memory", &*limits.memory);
        let disk = ("ephemeral-storage", &*limits.disk);
        Container {
            name: BUILD_CONTAINER.into(),
            image: Some(self.config.image.clone()),
            image_pull_policy: Some("IfNotPresent".into()),
            command: Some(self.commands().build()),
            env: Some(self.environment()),
            resources: Some(ResourceRequirements {
                requests: Some(quantities(&[
                    ("cpu", "250m"),
                    ("memory", "512Mi"),
                    ("ephemeral-storage", "1Gi"),
                ])),
                limits: Some(quantities(&[("cpu", &limits.cpu), memory, disk])),
                claims: None,
            }),
            security_context: Some(self.builder_security()),
            termination_message_policy: Some("FallbackToLogsOnError".into()),
            volume_mounts: Some(vec![
                read_only(mount(SOURCE, SOURCE_PATH)),
                mount(IMAGE, IMAGE_PATH),
                mount(STATE, STATE_PATH),
            ]),
            working_dir: Some("/tmp".into()),
            ..Container::default()
        }
    }

    fn environment(&self) -> Vec<EnvVar> {
        let config = format!("--config={SOURCE_PATH}/{}", directory::BUILDER_CONFIG);
        // As root of a namespace, it must not want the control groups and directories of a machine.
        let flags = if self.is_root() {
            format!("--rootless --root={STATE_PATH} {config}")
        } else {
            format!("{NO_PROCESS_SANDBOX} {config}")
        };
        let variables = [
            ("BUILDKITD_FLAGS", flags.as_str()),
            // Tenths of a second in which the builder has to start.
            ("BUILDCTL_CONNECT_RETRIES_MAX", "100"),
            // That of the image is below the volume of the state.
            ("TMPDIR", "/tmp"),
        ];
        variables
            .map(|(name, value)| EnvVar {
                name: name.into(),
                value: Some(value.into()),
                value_from: None,
            })
            .into()
    }

    /// A container of this project's program, which needs nothing but its volume and the registry.
    fn step(&self, name: &str, image: &str, args: Vec<String>, volume: &str) -> Container {
        let at = if volume == SOURCE {
            SOURCE_PATH
        } else {
            IMAGE_PATH
        };
        let is_written = volume == SOURCE;
        let files = mount(volume, at);
        let mut mounts = vec![if is_written { files } else { read_only(files) }];
        if self.registry_secret().is_some() {
            mounts.push(read_only(mount(REGISTRY, REGISTRY_PATH)));
        }
        Container {
            name: name.into(),
            image: Some(image.to_owned()),
            image_pull_policy: Some("IfNotPresent".into()),
            args: Some(args),
            resources: Some(ResourceRequirements {
                requests: Some(quantities(&[("cpu", "50m"), ("memory", "32Mi")])),
                limits: Some(quantities(&[("cpu", "1"), ("memory", "256Mi")])),
                claims: None,
            }),
            security_context: Some(step_security()),
            volume_mounts: Some(mounts),
            ..Container::default()
        }
    }

    fn registry_secret(&self) -> Option<&str> {
        match &self.config.steps {
            BuildSteps::Containers {
                registry_secret, ..
            } => registry_secret.as_deref(),
            BuildSteps::Local { .. } => None,
        }
    }

    fn commands(&self) -> BuildCommands<'_> {
        BuildCommands {
            build: self.build,
            registry_file: self.registry_secret().map(|_| REGISTRY_FILE),
            insecure_registries: &self.config.insecure_registries,
        }
    }

    fn volumes(&self) -> Vec<Volume> {
        let mut volumes = vec![self.exchanged(SOURCE), self.exchanged(IMAGE)];
        volumes.push(self.empty(STATE));
        volumes.extend(self.registry_secret().map(|secret| Volume {
            name: REGISTRY.into(),
            secret: Some(SecretVolumeSource {
                secret_name: Some(secret.to_owned()),
                items: Some(vec![KeyToPath {
                    key: ".dockerconfigjson".into(),
                    path: "config.json".into(),
                    ..KeyToPath::default()
                }]),
                ..SecretVolumeSource::default()
            }),
            ..Volume::default()
        }));
        volumes
    }

    /// Volume that the builder shares with the steps.
    fn exchanged(&self, name: &str) -> Volume {
        match &self.config.steps {
            BuildSteps::Containers { .. } => self.empty(name),
            BuildSteps::Local { directory, .. } => {
                let path = local_directory(directory, self.build).join(name);
                Volume {
                    name: name.into(),
                    host_path: Some(HostPathVolumeSource {
                        path: path.display().to_string(),
                        type_: Some("Directory".into()),
                    }),
                    ..Volume::default()
                }
            }
        }
    }

    fn empty(&self, name: &str) -> Volume {
        Volume {
            name: name.into(),
            empty_dir: Some(EmptyDirVolumeSource {
                size_limit: Some(Quantity(self.config.limits.disk.clone())),
                ..EmptyDirVolumeSource::default()
            }),
            ..Volume::default()
        }
    }

    /// A group of the volumes would be the group of what the builder makes, and set-group-id.
    fn pod_security(&self) -> PodSecurityContext {
        if self.is_root() {
            return PodSecurityContext::default();
        }
        PodSecurityContext {
            run_as_user: Some(USER),
            run_as_group: Some(USER),
            ..PodSecurityContext::default()
        }
    }

    /// Without root, set-user-id programs make the user namespace, so privileges must be able to
    /// grow, and mounts within it must be allowed.
    fn builder_security(&self) -> SecurityContext {
        if self.is_root() {
            return SecurityContext {
                privileged: Some(true),
                run_as_user: Some(0),
                run_as_group: Some(0),
                ..SecurityContext::default()
            };
        }
        SecurityContext {
            seccomp_profile: Some(SeccompProfile {
                type_: "Unconfined".into(),
                localhost_profile: None,
            }),
            app_armor_profile: Some(AppArmorProfile {
                type_: "Unconfined".into(),
                localhost_profile: None,
            }),
            ..SecurityContext::default()
        }
    }
}

/// Directory of a build on this machine.
pub(super) fn local_directory(parent: &Path, build: &ImageBuild) -> PathBuf {
    parent.join(build.name_any())
}

/// Creates the empty directories of a build on this machine.
pub(super) fn make_directories(directory: &Path) -> io::Result<()> {
    match images::remove_tree(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    for name in [SOURCE, IMAGE] {
        std::fs::create_dir_all(directory.join(name))?;
    }
    Ok(())
}

/// Returns whether a Pod is that of the build, and not of an earlier one of its name.
pub(super) fn belongs_to(pod: &Pod, build: &ImageBuild) -> bool {
    pod.labels().get(BUILD_UID_LABEL) == build.metadata.uid.as_ref()
}

/// Labels of what belongs to a build.
pub(super) fn labels(build: &ImageBuild) -> BTreeMap<String, String> {
    let namespace = build.namespace().unwrap_or_default();
    let manager = format!("{CONTROLLER_FIELD_MANAGER}-builds");
    BTreeMap::from([
        (BUILD_LABEL.to_owned(), build.name_any()),
        (BUILD_UID_LABEL.to_owned(), build.uid().unwrap_or_default()),
        (BUILD_NAMESPACE_LABEL.to_owned(), namespace),
        (MANAGED_BY_LABEL.to_owned(), manager),
    ])
}

fn pull_secrets(config: &BuilderConfig) -> Vec<LocalObjectReference> {
    let names = config.pull_secrets.iter();
    names
        .map(|name| LocalObjectReference { name: name.clone() })
        .collect()
}

fn step_security() -> SecurityContext {
    SecurityContext {
        run_as_user: Some(USER),
        run_as_non_root: Some(true),
        allow_privilege_escalation: Some(false),
        read_only_root_filesystem: Some(true),
        capabilities: Some(Capabilities {
            drop: Some(vec!["ALL".into()]),
            add: None,
        }),
        seccomp_profile: Some(SeccompProfile {
            type_: "RuntimeDefault".into(),
            localhost_profile: None,
        }),
        ..SecurityContext::default()
    }
}

fn mount(name: &str, path: &str) -> VolumeMount {
    VolumeMount {
        name: name.into(),
        mount_path: path.into(),
        ..VolumeMount::default()
    }
}

fn read_only(mount: VolumeMount) -> VolumeMount {
    VolumeMount {
        read_only: Some(true),
        ..mount
    }
}

fn quantities(pairs: &[(&str, &str)]) -> BTreeMap<String, Quantity> {
    let pairs = pairs.iter();
    let pairs = pairs.map(|(name, amount)| ((*name).to_owned(), Quantity((*amount).to_owned())));
    pairs.collect()
}
