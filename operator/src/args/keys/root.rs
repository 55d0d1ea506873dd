//! `sandbox-operator keys rotate-root` and `finish-rotation`: both ends of a rotation of the root key
//! (`docs/decisions/096-root-key-rotation.md`).

use anyhow::Context as _;
use crds::Sandbox;
use crds::sandbox::Phase;
use jiff::{SignedDuration, Timestamp};
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};

use shared::kubernetes::client::with_timeout;
use shared::kubernetes::{root_key::rotation, watch};
use shared::tenants::key_commands::expiry;

/// Sandboxes that one call lists, because a spec may have a megabyte.
const PAGE_SIZE: u32 = 100;
/// Sandboxes that a message names.
const MAX_NAMED: usize = 10;

#[derive(Debug, Clone, clap::Args)]
pub(super) struct RotateArgs {
    /// Time after which new sandboxes get the new key. Restart controller and gateways within it.
    #[arg(long, default_value = "15m", value_parser = expiry)]
    after: SignedDuration,
}

#[derive(Debug, Clone, clap::Args)]
pub(super) struct FinishArgs {
    /// Namespace whose Sandboxes are checked. Default: all.
    #[arg(short, long)]
    namespace: Option<String>,
    /// Finish although sandboxes have the previous key. They become unreachable, and those with an
    /// environment cannot start again.
    #[arg(long)]
    force: bool,
}

impl RotateArgs {
    pub(super) async fn run(&self, client: &Client, namespace: &str) -> anyhow::Result<()> {
        let since = Timestamp::now() + self.after;
        rotation::begin(client, namespace, since).await?;
        println!("Sandboxes that are created from {since:.0} on get the new root key.");
        println!("Restart the controller and all gateways before that time.");
        Ok(())
    }
}

impl FinishArgs {
    pub(super) async fn run(&self, client: &Client, namespace: &str) -> anyhow::Result<()> {
        let since = rotation::time(client, namespace).await?;
        let now = Timestamp::now();
        anyhow::ensure!(now >= since, "the rotation takes effect at {since:.0} only");
        let old = self.older_than(client, since).await?;
        anyhow::ensure!(
            old.is_empty() || self.force,
            "{} sandboxes have the previous root key: stop or delete them first, or use --force \
             ({})",
            old.len(),
            old[..old.len().min(MAX_NAMED)].join(", ")
        );
        rotation::finish(client, namespace).await?;
        println!("The previous root key is removed. Restart the controller and all gateways.");
        Ok(())
    }

    /// Names of the Sandboxes that were created before the rotation and are not stopped.
    async fn older_than(&self, client: &Client, since: Timestamp) -> anyhow::Result<Vec<String>> {
        let api: Api<Sandbox> = watch::api(client, self.namespace.as_deref());
        let mut page = ListParams::default().limit(PAGE_SIZE);
        let mut old = Vec::new();
        loop {
            let list = with_timeout(api.list(&page)).await;
            let list = list.context("cannot list the Sandboxes")?;
            for sandbox in &list.items {
                let created = sandbox.creation_timestamp().map(|time| time.0);
                let phase = sandbox.status.as_ref().map(|status| status.phase);
                if created.is_some_and(|at| at < since) && phase != Some(Phase::Stopped) {
                    let namespace = sandbox.namespace().unwrap_or_default();
                    old.push(format!("{namespace}/{}", sandbox.name_any()));
                }
            }
            match list.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => page = page.continue_token(&token),
                None => return Ok(old),
            }
        }
    }
}
