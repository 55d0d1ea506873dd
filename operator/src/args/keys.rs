//! `sandbox-operator keys`: API keys, as `sandbox keys` has them as well, the first key of an
//! installation, and rotation of the root key.

mod ensure;
mod root;

use clap::Subcommand;
use shared::tenants::key_commands::KeyCommand;

use super::Installation;

#[derive(Debug, Clone, clap::Args)]
pub(super) struct KeysArgs {
    #[command(flatten)]
    installation: Installation,
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Clone, Subcommand)]
enum Action {
    #[command(flatten)]
    Keys(KeyCommand),
    /// Make the key in another Secret valid; create key and Secret if absent. Idempotent, for
    /// installations
    Ensure(Box<ensure::EnsureArgs>),
    /// Begin a rotation of the root key
    RotateRoot(root::RotateArgs),
    /// End a rotation of the root key, once no sandbox has the previous one
    FinishRotation(root::FinishArgs),
}

impl KeysArgs {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let client = self.installation.client().await?;
        let namespace = self.installation.namespace(&client);
        match self.action {
            Action::Keys(command) => {
                let output = command.run(&client, &namespace).await?;
                for note in output.notes {
                    eprintln!("{note}");
                }
                print!("{}", output.result);
                Ok(())
            }
            Action::Ensure(ensure) => ensure.run(&client, &namespace).await,
            Action::RotateRoot(rotate) => rotate.run(&client, &namespace).await,
            Action::FinishRotation(finish) => finish.run(&client, &namespace).await,
        }
    }
}
