//! `sandbox-operator gateway`.

use std::sync::Arc;

use anyhow::Context as _;
use tokio::net::TcpListener;
use tokio_util::task::TaskTracker;

use super::urls::UrlArgs;
use super::{Installation, shutdown_on_signal};
use crate::gateway::{self, Gateway, GatewayArgs};
use crate::index::Index;
use crate::kubernetes::watch;
use crate::tenants::{self, Tenants};

#[derive(Debug, Clone, clap::Args)]
pub(super) struct RoleArgs {
    #[command(flatten)]
    installation: Installation,
    #[command(flatten)]
    urls: UrlArgs,
    #[command(flatten)]
    gateway: GatewayArgs,
}

impl RoleArgs {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let client = self.installation.client().await?;
        let keys = Arc::new(self.installation.keys(&client).await?);
        let index = Arc::new(Index::new(keys.clone()));
        let shutdown = shutdown_on_signal()?;
        let address = self.gateway.listen;
        let listener = TcpListener::bind(address)
            .await
            .with_context(|| format!("cannot listen on {address}"))?;
        let followers = TaskTracker::new();
        let tenants = Tenants::pending();
        followers.spawn({
            let (tenants, client) = (tenants.clone(), client.clone());
            let (namespace, shutdown) = (self.installation.namespace(&client), shutdown.clone());
            async move { Box::pin(tenants::follow(tenants, client, &namespace, shutdown)).await }
        });
        // Every namespace: sandboxes made with kubectl are proxied to as well.
        followers.spawn(watch::sandboxes(
            client.clone(),
            None,
            index.clone(),
            shutdown.clone(),
        ));
        let settings = self.gateway.settings();
        let config = self.gateway.config(self.urls.into());
        let gateway = Gateway::with_settings(&client, config, keys, index, tenants, settings);
        gateway::run(gateway, listener, shutdown).await;
        followers.close();
        followers.wait().await;
        Ok(())
    }
}
