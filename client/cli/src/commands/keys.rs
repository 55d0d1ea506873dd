//! `sandbox keys`: API keys of an installation, through a kubeconfig.

use shared::tenants::key_commands::KeyCommand;

use crate::failure::Failure;
use crate::installation::Installation;
use crate::output::{note, print};

pub(crate) async fn run(installation: &Installation, command: &KeyCommand) -> Result<(), Failure> {
    let client = installation.connect().await.map_err(Failure::Usage)?;
    let done = command.run(&client, installation.namespace()).await;
    let output = done.map_err(|error| Failure::Local(error.to_string()))?;
    for line in output.notes {
        note(&line);
    }
    print(output.result)
}
