//! Root of a container: fresh, or one that the node keeps for the claim that the container mounts
//! at [`crds::contract::path::STORE_DIR`].

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use crds::contract::persistence::{KeptState, PersistenceLevel};
use k8s_openapi::api::core::v1::Container;
use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;

use super::NodeConfig;
use super::container::{ContainerStartError, PreparedPod};
use super::disk::usage;
use super::image::{Image, PodIdentity};
use super::kept_root::{KeptGenerations, KeptRoot, RootImage, RootLease, store_mount};
use super::mount::Mount;
use super::mount_points::MountPointError;
use super::node_user::NodeUser;
use super::paths::remove_tree;
use super::process::Process;

impl NodeConfig {
    /// Returns whether a node of this process can keep roots: only root mounts them.
    pub fn keeps_roots() -> bool {
        NodeUser::current().is_root()
    }
}

/// Root of one start.
struct ContainerRoot {
    mounts: Vec<Mount>,
    kept: Option<KeptRoot>,
}

/// Reason for which a start with a kept root has failed, if a new one can be started with.
fn unusable_root(error: &ContainerStartError) -> Option<String> {
    let ContainerStartError::Io(error) = error else {
        return None;
    };
    let found: &MountPointError = error.get_ref()?.downcast_ref()?;
    matches!(found, MountPointError::Unusable { .. }).then(|| {
        let end = "files outside the workspace are those of the image";
        format!("the kept root cannot be used, because {found}: {end}")
    })
}

impl PreparedPod {
    /// Waits for the kept root of a container until `stop`; `None` if it has none. `report` gets a
    /// sentence about the Pod that uses the root.
    pub(crate) async fn root_lease(
        &self,
        container: &Container,
        stop: &CancellationToken,
        report: impl Fn(String),
    ) -> Result<Option<Arc<RootLease>>, ContainerStartError> {
        let claim = self.kept_claim(container);
        let Some(claim) = claim.filter(|_| self.node.user.is_root()) else {
            return Ok(None);
        };
        let report = |pod: &str| report(format!("waiting for Pod {pod} to release the kept root"));
        let lease = self.node.kept_roots.lease(claim, self.name(), report);
        let lease = stop.run_until_cancelled(lease).await;
        lease.map(Some).ok_or(ContainerStartError::Stopped)
    }

    /// Uid of the claim that keeps the root of a container.
    fn kept_claim(&self, container: &Container) -> Option<&str> {
        let volume = self.volumes.get(&store_mount(container)?.name)?;
        volume.writable_claim()
    }

    /// State of the root at the start of a container that asks for a kept one.
    pub(crate) fn root_state(
        &self,
        container: &Container,
        kept: Option<&KeptRoot>,
    ) -> Option<KeptState> {
        if let Some(kept) = kept {
            return Some(kept.start.state.clone());
        }
        self.kept_claim(container)?;
        let mut state = KeptState::of(PersistenceLevel::Workspace);
        state.reason = Some("this node does not run as root, and keeps no roots".into());
        Some(state)
    }

    /// Starts run `number` of `container` from its image, with the kept root of `lease`. If the
    /// root cannot be used, it begins anew.
    pub(crate) async fn start(
        &self,
        container: &Container,
        image: &Image,
        number: i32,
        lease: Option<&Arc<RootLease>>,
    ) -> Result<Process, ContainerStartError> {
        let ContainerRoot { mounts, kept } = self.root(image, container, lease, None).await?;
        let is_new = kept.as_ref().is_some_and(|kept| kept.start.is_new);
        let started = self.start_in(mounts, kept, container, image, number).await;
        let unusable = started.as_ref().err().and_then(unusable_root);
        let Some(reason) = unusable.filter(|_| !is_new) else {
            return started;
        };
        tracing::warn!(pod = self.name(), reason, "a kept root begins anew");
        let root = self.root(image, container, lease, Some(reason)).await?;
        self.start_in(root.mounts, root.kept, container, image, number)
            .await
    }

    /// Builds the root: fresh as on a cluster, or the kept one, which begins anew if it is
    /// `unusable`.
    async fn root(
        &self,
        image: &Image,
        container: &Container,
        lease: Option<&Arc<RootLease>>,
        unusable: Option<String>,
    ) -> Result<ContainerRoot, ContainerStartError> {
        let building = RootBuilding {
            image: image.clone(),
            scratch: self.node.paths.root(&self.uid, &container.name),
            executor: self.node.config.executor_binary.clone(),
            pod_identity: self.pod_identity(),
        };
        let users = self.node.users_of(&self.pod);
        let owner = move |id| users.as_ref().map_or(id, |users| users.outside(id));
        let Some(lease) = lease else {
            let mounts = blocking(move || building.fresh(owner)).await?;
            return Ok(ContainerRoot { mounts, kept: None });
        };
        let generations = KeptGenerations::new(&self.node.paths.volumes(), &lease.claim);
        let (lease, pod) = (Arc::clone(lease), self.uid.clone());
        let name = container.image.clone().unwrap_or_default();
        blocking(move || {
            let image = RootImage {
                id: building.image.identity()?,
                name,
                owner: building.image.kept_owner(&owner),
            };
            let start = generations.prepare(&image, &pod, unusable)?;
            let kept = KeptRoot {
                lease,
                generations,
                start,
            };
            let mounts = building.kept(&kept, image, &pod, owner)?;
            Ok(ContainerRoot {
                mounts,
                kept: Some(kept),
            })
        })
        .await
    }

    fn pod_identity(&self) -> PodIdentity {
        PodIdentity {
            hostname: self.hostname(),
            address: self.attachment.lease.address.to_string(),
            resolv_conf: self.node.network.resolv_conf(),
            node: self.node.user,
        }
    }
}

async fn blocking<T: Send + 'static>(
    build: impl FnOnce() -> Result<T, ContainerStartError> + Send + 'static,
) -> Result<T, ContainerStartError> {
    spawn_blocking(build).await.map_err(io::Error::other)?
}

struct RootBuilding {
    image: Image,
    scratch: PathBuf,
    executor: PathBuf,
    pod_identity: PodIdentity,
}

impl RootBuilding {
    /// Files of an earlier run outside of volumes are gone, as on a cluster.
    fn fresh(&self, owner: impl Fn(u32) -> u32) -> Result<Vec<Mount>, ContainerStartError> {
        remove_tree(&self.scratch);
        let (scratch, executor) = (&self.scratch, &self.executor);
        Ok(self
            .image
            .root(scratch, executor, &self.pod_identity, owner)?)
    }

    fn kept(
        &self,
        kept: &KeptRoot,
        image: RootImage,
        pod: &str,
        owner: impl Fn(u32) -> u32,
    ) -> Result<Vec<Mount>, ContainerStartError> {
        remove_tree(&self.scratch);
        let generation = kept.generations.current();
        if kept.start.is_new {
            self.image
                .begin_kept(&generation, &self.pod_identity, owner)?;
            let bytes = usage(&generation, &CancellationToken::new());
            let told = kept.start.state.clone();
            kept.generations.complete(image, pod, bytes, told)?;
        }
        let (scratch, executor) = (&self.scratch, &self.executor);
        Ok(self
            .image
            .kept_root(&generation, scratch, executor, &self.pod_identity)?)
    }
}
