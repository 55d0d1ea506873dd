//! The pool of warm Pods that the flags ask for, so that the first sandbox starts at once.

use crds::SandboxPool;
use crds::pool::{ClaimPolicy, PoolTemplate, PrestartMode, SandboxPoolSpec};
use crds::sandbox::Workspace;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, Client};

use super::NAMESPACE;

const NAME: &str = "warm";
const FIELD_MANAGER: &str = "sandbox-standalone";

/// Creates the pool, changes it, or deletes it if no Pods are wanted.
pub(super) async fn apply(
    client: &Client,
    replicas: u32,
    image: &str,
    workspace: Workspace,
) -> anyhow::Result<()> {
    let pools: Api<SandboxPool> = Api::namespaced(client.clone(), NAMESPACE);
    if replicas == 0 {
        return match pools.delete(NAME, &DeleteParams::default()).await {
            Err(kube::Error::Api(error)) if error.is_not_found() => Ok(()),
            deleted => Ok(deleted.map(drop)?),
        };
    }
    let spec = SandboxPoolSpec {
        replicas,
        claimed_by: ClaimPolicy::Matching,
        prestart: Some(PrestartMode::Executor),
        template: PoolTemplate {
            image: image.to_owned(),
            workspace: Some(workspace),
            ..PoolTemplate::default()
        },
        ..SandboxPoolSpec::default()
    };
    let pool = SandboxPool::new(NAME, spec);
    let params = PatchParams::apply(FIELD_MANAGER).force();
    pools.patch(NAME, &params, &Patch::Apply(&pool)).await?;
    Ok(())
}
