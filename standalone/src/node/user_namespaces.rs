//! User namespaces of a node that runs as root: one for sandboxes, and one for image builds.

use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;

use super::container_user::Grants;
use super::launcher::Launcher;
use super::paths::Paths;
use super::user_namespace::{IdRange, UserNamespace, UserNamespaces};
use super::{Node, NodeConfig};

/// Creates the user namespaces. Without them, root in a container is root of the host, with few
/// capabilities.
pub(super) async fn create(
    config: &NodeConfig,
    paths: &Paths,
    launcher: &Launcher,
) -> io::Result<UserNamespaces> {
    let mut sources = vec![
        "/usr".into(),
        paths.pods(),
        paths.memory(),
        config.self_exe.clone(),
        paths.executor(),
        config.executor_binary.clone(),
    ];
    let sandboxes = create_one(IdRange::Sandboxes, paths, sources.clone(), launcher).await?;
    let Some(builds) = &config.image_builds else {
        return Ok(UserNamespaces::new(sandboxes, None));
    };
    let mut private = std::fs::DirBuilder::new();
    private
        .recursive(true)
        .mode(0o700)
        .create(&builds.directory)?;
    sources.push(builds.directory.clone());
    let builds = create_one(IdRange::ImageBuilds, paths, sources, launcher).await?;
    Ok(UserNamespaces::new(sandboxes, Some(builds)))
}

async fn create_one(
    range: IdRange,
    paths: &Paths,
    sources: Vec<PathBuf>,
    launcher: &Launcher,
) -> io::Result<Arc<UserNamespace>> {
    let (number, directory) = (paths.hash, paths.mapped_mounts(range.name()));
    let create = move || UserNamespace::create(range, number, directory, &sources);
    let users = Arc::new(tokio::task::spawn_blocking(create).await??);
    let prepared = Arc::clone(&users);
    launcher.run(move |_| prepared.prepare()).await?;
    Ok(users)
}

impl Node {
    /// True if containers of the Pod may be privileged and mount directories of the host.
    pub(crate) fn is_image_build(&self, pod: &Pod) -> bool {
        let builds = self.config.image_builds.as_ref();
        self.users.is_some() && builds.is_some_and(|builds| builds.contain(pod))
    }

    /// Privileges of the Pod's containers in their user namespace.
    pub(crate) fn grants(&self, pod: &Pod) -> Grants {
        Grants {
            privileged: self.is_image_build(pod),
            checkpoints: self.users.is_some() && self.config.criu.is_some(),
        }
    }

    /// User namespace of the Pod's containers.
    pub(crate) fn users_of(&self, pod: &Pod) -> Option<Arc<UserNamespace>> {
        let users = self.users.as_ref()?;
        Some(users.of(self.is_image_build(pod)))
    }
}
