//! `sandbox-operator purge`: deletes the resources that an uninstallation keeps. This includes the
//! workspaces of all sandboxes, so it requires a confirmation flag.

use std::time::Duration;

use crds::{ImageBuild, Sandbox, SandboxPool, SandboxSnapshot};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{DeleteParams, ListParams};
use kube::core::Resource;
use kube::{Api, Client, ResourceExt as _};
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep};

use super::Installation;
use super::controller::LEASE_NAME;
use controller::PROBE_CONFIG_MAP;
use shared::kubernetes::client::{CallError, with_timeout};
use shared::kubernetes::root_key;
use shared::tenants;

const PAGE_SIZE: u32 = 100;
const POLL_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, clap::Args)]
pub(super) struct PurgeArgs {
    #[command(flatten)]
    installation: Installation,
    /// Namespace of the sandboxes, snapshots, pools and image builds to delete. Default: that of the operator.
    #[arg(short, long)]
    namespace: Option<String>,
    /// More Secrets to delete in the namespace of the operator, separated by commas.
    #[arg(long, value_delimiter = ',')]
    secret: Vec<String>,
    /// Timeout in seconds.
    #[arg(long, default_value_t = 300)]
    timeout: u64,
    /// Confirm that the workspaces of all sandboxes are deleted.
    #[arg(long)]
    yes: bool,
}

impl PurgeArgs {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        anyhow::ensure!(
            self.yes,
            "this deletes the workspaces of all sandboxes: confirm with --yes"
        );
        let client = self.installation.client().await?;
        let own = self.installation.namespace(&client);
        let namespace = self.namespace.as_ref().unwrap_or(&own);
        let end = Instant::now() + Duration::from_secs(self.timeout);
        delete_all::<Sandbox>(&client, namespace, end).await?;
        delete_all::<SandboxSnapshot>(&client, namespace, end).await?;
        delete_all::<SandboxPool>(&client, namespace, end).await?;
        delete_all::<ImageBuild>(&client, namespace, end).await?;
        let secrets = Api::<Secret>::namespaced(client.clone(), &own);
        let named = self.secret.iter().map(String::as_str);
        for name in named.chain([root_key::SECRET_NAME, tenants::SECRET_NAME]) {
            remove(&secrets, name, &DeleteParams::default()).await?;
        }
        let config_maps = Api::<ConfigMap>::namespaced(client.clone(), &own);
        remove(&config_maps, PROBE_CONFIG_MAP, &DeleteParams::default()).await?;
        let leases = Api::<Lease>::namespaced(client, &own);
        remove(&leases, LEASE_NAME, &DeleteParams::default()).await?;
        println!("all resources in {namespace} are deleted");
        Ok(())
    }
}

/// Deletes all objects of a kind and waits until they and their owned objects are gone.
async fn delete_all<K>(client: &Client, namespace: &str, end: Instant) -> anyhow::Result<()>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned,
{
    let api = Api::<K>::namespaced(client.clone(), namespace);
    let page = ListParams::default().limit(PAGE_SIZE);
    let kind = K::plural(&());
    loop {
        let found = match with_timeout(api.list_metadata(&page)).await {
            Ok(found) => found.items,
            // The CRD has been deleted, and all objects with it.
            Err(error) if error.is_not_found() => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        if found.is_empty() {
            return Ok(());
        }
        anyhow::ensure!(
            Instant::now() < end,
            "timed out: some {kind} still exist, for example {}",
            found[0].name_any()
        );
        let remaining = found
            .iter()
            .filter(|o| o.metadata.deletion_timestamp.is_none());
        for object in remaining {
            println!("deleting {kind} {}", object.name_any());
            // Foreground deletion: an object disappears after its Pod and volume.
            remove(&api, &object.name_any(), &DeleteParams::foreground()).await?;
        }
        sleep(POLL_INTERVAL).await;
    }
}

async fn remove<K>(api: &Api<K>, name: &str, params: &DeleteParams) -> Result<(), CallError>
where
    K: Clone + std::fmt::Debug + DeserializeOwned,
{
    match with_timeout(api.delete(name, params)).await {
        Err(error) if !error.is_not_found() => Err(error),
        _ => Ok(()),
    }
}
