//! `sandbox run`: a new sandbox, and a command in it.

use client::{Client, Sandbox, ServerCommand, StartRequest, Status};

use super::exec;
use super::level::LevelArg;
use crate::console::{Signals, is_interactive};
use crate::failure::Failure;
use crate::names;
use crate::output::{hint, note, print};
use crate::progress;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Name of the sandbox; by default a random one
    #[arg(long)]
    name: Option<String>,
    /// Stop the sandbox when the command has ended
    #[arg(long)]
    rm: bool,
    /// Multiply CPU and memory of the sandbox
    #[arg(long, value_name = "FACTOR")]
    resource_factor: Option<f64>,
    /// Runtime class, such as gvisor
    #[arg(long, value_name = "CLASS")]
    runtime_class: Option<String>,
    /// When to pull the image: `Always`, `IfNotPresent` or `Never`
    #[arg(long, value_name = "POLICY")]
    pull: Option<String>,
    /// State that a pause keeps; by default that of the installation
    #[arg(long, value_name = "LEVEL")]
    persistence: Option<LevelArg>,
    /// Plugin of the server in the sandbox, such as vscode, jupyter or browser:view
    #[arg(long, value_name = "NAME")]
    plugin: Vec<String>,
    #[command(flatten)]
    options: exec::Options,
    /// Image, or `host` in standalone
    image: String,
    /// Command and its arguments; without one the sandbox starts and goes on
    #[arg(last = true)]
    command: Vec<String>,
}

pub(crate) async fn run(client: &Client, args: Args) -> Result<u8, Failure> {
    let request = request(client, &args).await?;
    let name = request.session_id.clone();
    let started = start(client, &request).await;
    let done = match started {
        Ok(sandbox) => use_sandbox(&sandbox, &args, &name).await,
        Err(failure) => {
            if !args.rm && may_go_on(&failure) {
                note(&format!(
                    "sandbox {name} may have started; `sandbox stop {name}` ends it"
                ));
            }
            Err(failure)
        }
    };
    if args.rm {
        stop(client, &name).await?;
    }
    done
}

async fn request(client: &Client, args: &Args) -> Result<StartRequest, Failure> {
    let name = match &args.name {
        Some(name) => name.clone(),
        None => names::random("run"),
    };
    // A session has one sandbox, so another command would not get the image that is asked for here.
    if args.name.is_some()
        && let Some(info) = client.session(&name).await?
        && !matches!(info.status, Status::Stopped | Status::Error)
    {
        let text = format!(
            "the name {name} is in use by a sandbox that is {}; use `sandbox exec`, or stop it",
            info.status
        );
        return Err(Failure::Usage(text));
    }
    let server = ServerCommand {
        plugins: args.plugin.clone(),
        ..ServerCommand::default()
    };
    let mut request = StartRequest::new(&args.image, name).server(&server);
    request.environment = exec::environment(&args.options.env)?;
    request.resource_factor = args.resource_factor;
    request.runtime_class.clone_from(&args.runtime_class);
    request.image_pull_policy.clone_from(&args.pull);
    request.persistence = args.persistence.map(Into::into);
    Ok(request)
}

/// Starts and waits, until a signal.
async fn start(client: &Client, request: &StartRequest) -> Result<Sandbox, Failure> {
    let mut signals = Signals::new()?;
    let mut report = progress::step;
    tokio::select! {
        started = client.start_and_wait(request, &mut report) => Ok(started?),
        signal = signals.ended() => Err(Failure::Interrupted(signal)),
    }
}

async fn use_sandbox(sandbox: &Sandbox, args: &Args, name: &str) -> Result<u8, Failure> {
    let opens_shell = args.options.tty || (args.rm && is_interactive());
    if args.command.is_empty() && !opens_shell {
        print(format!("{name}\n"))?;
        return Ok(0);
    }
    let done = exec::run_in(sandbox, &args.command, &args.options).await;
    if !args.rm {
        hint(&format!(
            "sandbox {name} goes on; `sandbox stop {name}` ends it"
        ));
    }
    done
}

/// Stops the sandbox of a session, also one that was accepted when the start was interrupted.
async fn stop(client: &Client, name: &str) -> Result<(), Failure> {
    if let Some(info) = client.session(name).await? {
        client.stop(&info.runtime_id).await.inspect_err(|_| {
            note(&format!("sandbox {name} could not be stopped and goes on"));
        })?;
    }
    Ok(())
}

/// True if the failure neither names the sandbox nor says that there is none.
pub(super) fn may_go_on(failure: &Failure) -> bool {
    match failure {
        Failure::Interrupted(_) => true,
        Failure::Client(error) => error.is_temporary(),
        _ => false,
    }
}
