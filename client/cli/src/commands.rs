//! One file per command, and the choice among them.

pub(crate) mod builds;
pub(crate) mod cp;
pub(crate) mod describe;
pub(crate) mod doctor;
pub(crate) mod exec;
pub(crate) mod keys;
mod level;
pub(crate) mod list;
pub(crate) mod logs;
pub(crate) mod open;
pub(crate) mod port;
pub(crate) mod run;
pub(crate) mod snapshots;
pub(crate) mod state;
pub(crate) mod top;

use crate::args::{Cli, Command, completion};
use crate::connect;
use crate::failure::Failure;
use crate::output;
use crate::progress;

/// Carries out a command; the exit code.
pub(crate) async fn run(cli: Cli) -> Result<u8, Failure> {
    match &cli.command {
        Command::Completion { shell } => return output::print(completion(*shell)).map(|()| 0),
        Command::Version => {
            let text = format!("sandbox {}\n", env!("CARGO_PKG_VERSION"));
            return output::print(text).map(|()| 0);
        }
        Command::Doctor(args) => {
            progress::waiting("checking the installation");
            let has_url = cli.access.url().is_some();
            let gateway = has_url.then(|| connect::by_url(&cli.access));
            return doctor::run(&cli.access.installation, gateway, args).await;
        }
        Command::Keys(command) => {
            progress::waiting("waiting for the API server");
            return keys::run(&cli.access.installation, command)
                .await
                .map(|()| 0);
        }
        _ => {}
    }
    let client = connect::client(&cli.access).await?;
    let client = &client;
    progress::waiting(wait(&cli.command));
    match cli.command {
        Command::Run(args) => return run::run(client, args).await,
        Command::Shell(args) => return exec::shell(client, args).await,
        Command::Exec(args) => return exec::exec(client, args).await,
        Command::Attach(args) => return exec::attach(client, args).await,
        Command::Builds(command) => return builds::run(client, command).await,
        Command::Images(command) => return builds::images(client, command).await,
        Command::List(args) => list::run(client, &args).await,
        Command::Pools(args) => list::pools(client, &args).await,
        Command::Describe(args) => describe::run(client, &args).await,
        Command::Logs(args) => logs::run(client, &args).await,
        Command::Cp(args) => cp::run(client, &args).await,
        Command::Port(args) => port::run(client, &args).await,
        Command::Open(args) => open::run(client, &args).await,
        Command::Pause(args) => state::pause(client, &args).await,
        Command::Resume(args) => state::resume(client, &args).await,
        Command::Stop(args) => state::stop(client, &args).await,
        Command::Snapshot(command) => snapshots::run(client, command).await,
        Command::Fork(args) => snapshots::fork(client, args).await,
        Command::Top(args) => top::run(client, &args).await,
        Command::Completion { .. } | Command::Doctor(_) | Command::Keys(_) | Command::Version => {
            Ok(())
        }
    }
    .map(|()| 0)
}

/// Text of the line of progress until a command has another one.
fn wait(command: &Command) -> &'static str {
    match command {
        Command::Run(_) => "starting",
        Command::Pause(_) => "pausing",
        Command::Resume(_) => "resuming",
        Command::Stop(_) => "stopping",
        Command::Top(_) => "measuring",
        Command::Logs(_) => "waiting for output",
        _ => "waiting for the gateway",
    }
}
