//! `sandbox-operator purge`: what an uninstallation leaves, removed when somebody asks for it. The
//! files of all sandboxes go with them, so it wants to be told twice.

use std::time::Duration;

use crds::{Sandbox, SandboxPool};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, ListParams};
use kube::core::Resource;
use kube::{Api, Client, ResourceExt as _};
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep};

use super::Installation;
use super::controller::LEASE;
use crate::kubernetes::client::{CallError, bounded};
use crate::kubernetes::root_key;
use crate::tenants;

/// Objects that are deleted before the next ones are listed.
const PAGE: u32 = 100;
/// Pause between two looks.
const PAUSE: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, clap::Args)]
pub(super) struct PurgeArgs {
    #[command(flatten)]
    installation: Installation,
    /// Namespace whose sandboxes and pools are deleted. Default: that of the operator.
    #[arg(short, long)]
    namespace: Option<String>,
    /// Further Secrets to delete in the namespace of the operator, separated by commas.
    #[arg(long, value_delimiter = ',')]
    secret: Vec<String>,
    /// Seconds until it is given up.
    #[arg(long, default_value_t = 300)]
    timeout: u64,
    /// Yes: the files of all sandboxes are to be deleted.
    #[arg(long)]
    yes: bool,
}

impl PurgeArgs {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        anyhow::ensure!(
            self.yes,
            "this deletes the files of all sandboxes: say --yes"
        );
        let client = self.installation.client().await?;
        let own = self.installation.namespace(&client);
        let namespace = self.namespace.as_ref().unwrap_or(&own);
        let end = Instant::now() + Duration::from_secs(self.timeout);
        empty::<Sandbox>(&client, namespace, end).await?;
        empty::<SandboxPool>(&client, namespace, end).await?;
        let secrets = Api::<Secret>::namespaced(client.clone(), &own);
        let named = self.secret.iter().map(String::as_str);
        for name in named.chain([root_key::SECRET, tenants::SECRET]) {
            remove(&secrets, name, &DeleteParams::default()).await?;
        }
        let leases = Api::<Lease>::namespaced(client, &own);
        remove(&leases, LEASE, &DeleteParams::default()).await?;
        println!("nothing is left in {namespace}");
        Ok(())
    }
}

/// Deletes all objects of a kind and waits until they, and what belongs to them, are gone.
async fn empty<K>(client: &Client, namespace: &str, end: Instant) -> anyhow::Result<()>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned,
{
    let api = Api::<K>::namespaced(client.clone(), namespace);
    let page = ListParams::default().limit(PAGE);
    let kind = K::plural(&());
    loop {
        let found = match bounded(api.list_metadata(&page)).await {
            Ok(found) => found.items,
            // The resource itself is gone, and all its objects with it.
            Err(error) if error.is_not_found() => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        if found.is_empty() {
            return Ok(());
        }
        anyhow::ensure!(
            Instant::now() < end,
            "some {kind} are still there, among them {}",
            found[0].name_any()
        );
        let alive = found
            .iter()
            .filter(|o| o.metadata.deletion_timestamp.is_none());
        for object in alive {
            println!("deleting {kind} {}", object.name_any());
            // In the foreground: an object is gone after its Pod and its volume.
            remove(&api, &object.name_any(), &DeleteParams::foreground()).await?;
        }
        sleep(PAUSE).await;
    }
}

async fn remove<K>(api: &Api<K>, name: &str, params: &DeleteParams) -> Result<(), CallError>
where
    K: Clone + std::fmt::Debug + DeserializeOwned,
{
    match bounded(api.delete(name, params)).await {
        Err(error) if !error.is_not_found() => Err(error),
        _ => Ok(()),
    }
}
