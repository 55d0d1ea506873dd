//! Client of Sandbox Operator: the runtime API of the gateway, and the server in a sandbox.
//!
//! ```no_run
//! # async fn example() -> Result<(), client::Error> {
//! let client = client::Client::new(client::Settings::from_env()?)?;
//! let start = client::StartRequest::new("debian:12", "my-session");
//! let sandbox = client.start_and_wait(&start, &mut |step| eprintln!("{}", step.status)).await?;
//! let run = sandbox.run("uname -a").await?;
//! println!("{} (exit code {:?})", run.content, run.exit_code());
//! client.stop(&sandbox.info().runtime_id).await?;
//! # Ok(())
//! # }
//! ```

mod api;
mod backoff;
mod error;
mod events;
mod http_client;
mod logs;
mod progress;
mod runtime_info;
mod sandbox;
mod settings;
mod terminals;

pub use api::Client;
pub use api::builds::{BuildList, BuildLog, BuildStatus, ImageInfo, ListedBuild};
pub use api::pools::PoolTemplate;
pub use api::snapshots::{ForkRequest, Level, Snapshot, SnapshotRequest, SnapshotStatus};
pub use api::start::{ServerCommand, StartRequest};
pub use error::Error;
pub use events::{BuildEvent, ChangeKind, Deleted, Event, EventStream, RuntimeEvent};
pub use logs::{LogEnd, LogEvent, LogLine, LogOptions, LogStream};
pub use progress::{Progress, RuntimeStatus};
pub use runtime_info::{PersistedState, PodStatus, RuntimeInfo, Status};
pub use sandbox::Sandbox;
pub use sandbox::actions::{CellOutput, CommandOutput, Edit, Run};
pub use sandbox::server_info::{
    Disk, Io, Memory, Resources, SandboxDisk, SandboxMemory, SandboxUsage, ServerInfo,
};
pub use sandbox::urls::Address;
pub use settings::Settings;
pub use terminals::channel::{ExitStatus, Size, TerminalEvent};
pub use terminals::session::{Session, SessionInput};
pub use terminals::{NewTerminal, Terminal, TerminalState};
