//! `sandbox-operator token NAME`: prints the session key of a Sandbox for an administrator. It is
//! derived from the uid of the Sandbox and the root key.

use crds::Sandbox;
use kube::{Api, ResourceExt as _};

use super::Installation;
use shared::kubernetes::client::with_timeout;

#[derive(Debug, Clone, clap::Args)]
pub(super) struct TokenArgs {
    #[command(flatten)]
    installation: Installation,
    /// Name of the Sandbox.
    name: String,
    /// Namespace of the Sandbox. Default: that of the kubeconfig.
    #[arg(short, long)]
    namespace: Option<String>,
}

impl TokenArgs {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let client = self.installation.client().await?;
        let keys = self.installation.keys(&client).await?;
        let own = || client.default_namespace().to_owned();
        let namespace = self.namespace.clone().unwrap_or_else(own);
        let api = Api::<Sandbox>::namespaced(client.clone(), &namespace);
        let sandbox = with_timeout(api.get(&self.name)).await?;
        let uid = sandbox
            .uid()
            .ok_or_else(|| anyhow::anyhow!("the Sandbox has no uid"))?;
        let created_at = sandbox.creation_timestamp().map(|time| time.0);
        let rotation = sandbox.status.and_then(|status| status.key_rotation);
        let keys = keys.of(created_at);
        println!("{}", keys.rotated_session_key(&uid, rotation.unwrap_or(0)));
        Ok(())
    }
}
