//! `sandbox exec`, `sandbox shell` and `sandbox attach`.

use std::collections::BTreeMap;

use client::{Client, NewTerminal, Sandbox, Terminal, TerminalState};

use crate::console::{self, Connection, follow, is_interactive};
use crate::failure::Failure;
use crate::names;
use crate::output::{hint, print};
use crate::table::Table;
use crate::text::age;

/// Name of the agent's own shell among the terminals.
const AGENT: &str = "agent";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    options: Options,
    /// Session id, runtime id or a unique prefix
    name: String,
    /// Command and its arguments
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

/// Options of commands in a sandbox.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Accepted for Docker's habits: input is passed on anyway
    #[arg(short = 'i', long)]
    interactive: bool,
    /// Give the command a terminal; by default if input and output are one
    #[arg(short = 't', long, conflicts_with = "no_tty")]
    pub(crate) tty: bool,
    /// Give the command pipes
    #[arg(short = 'T', long)]
    no_tty: bool,
    /// Do not read standard input
    #[arg(short = 'n', long)]
    no_input: bool,
    /// Working directory of the command
    #[arg(short = 'w', long, value_name = "DIRECTORY")]
    workdir: Option<String>,
    /// Environment variable; without a value that of this process
    #[arg(short = 'e', long, value_name = "NAME[=VALUE]")]
    pub(crate) env: Vec<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ShellArgs {
    /// Session id, runtime id or a unique prefix
    name: String,
    /// Working directory of the shell
    #[arg(short = 'w', long, value_name = "DIRECTORY")]
    workdir: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct AttachArgs {
    /// Session id, runtime id or a unique prefix
    name: String,
    /// Id of a terminal, or `agent` to watch the agent's shell; without one they are listed
    terminal: Option<String>,
    /// Watch without typing
    #[arg(long)]
    read_only: bool,
}

impl Options {
    pub(crate) fn wants_tty(&self) -> bool {
        !self.no_tty && (self.tty || (!self.no_input && is_interactive()))
    }
}

pub(crate) async fn exec(client: &Client, args: Args) -> Result<u8, Failure> {
    let sandbox = names::sandbox(client, &args.name).await?;
    run_in(&sandbox, &args.command, &args.options).await
}

pub(crate) async fn shell(client: &Client, args: ShellArgs) -> Result<u8, Failure> {
    let sandbox = names::sandbox(client, &args.name).await?;
    let options = Options {
        interactive: true,
        // Keys that are typed before a shell reads its terminal can be lost: a script comes through a pipe.
        tty: is_interactive(),
        no_tty: false,
        no_input: false,
        workdir: args.workdir,
        env: Vec::new(),
    };
    run_in(&sandbox, &[], &options).await
}

/// Runs a command, or the login shell, with this terminal or these pipes.
pub(crate) async fn run_in(
    sandbox: &Sandbox,
    command: &[String],
    options: &Options,
) -> Result<u8, Failure> {
    let tty = options.wants_tty();
    let mut environment = environment(&options.env)?;
    if tty && let Ok(term) = std::env::var("TERM") {
        environment.entry("TERM".into()).or_insert(term);
    }
    let mut terminal = NewTerminal {
        command: command.to_vec(),
        tty,
        working_directory: options.workdir.clone(),
        environment,
        ..NewTerminal::default()
    };
    if let Some(size) = console::size() {
        (terminal.columns, terminal.rows) = (size.width, size.height);
    }
    let session = sandbox.exec(&terminal).await?;
    follow(
        session,
        Connection {
            tty,
            input: !options.no_input,
            owned: true,
        },
    )
    .await
}

pub(crate) async fn attach(client: &Client, args: AttachArgs) -> Result<u8, Failure> {
    let sandbox = names::sandbox(client, &args.name).await?;
    let connection = |tty, input| Connection {
        tty,
        input,
        owned: false,
    };
    match args.terminal.as_deref() {
        None => list(&sandbox).await.map(|()| 0),
        Some(AGENT) => follow(sandbox.watch_agent().await?, connection(true, false)).await,
        Some(id) => {
            let terminal = find(&sandbox, id).await?;
            let session = sandbox.attach(&terminal, args.read_only).await?;
            if !args.read_only {
                hint("leave the program with Ctrl-P Ctrl-Q");
            }
            follow(session, connection(terminal.tty, !args.read_only)).await
        }
    }
}

async fn list(sandbox: &Sandbox) -> Result<(), Failure> {
    let mut table = Table::new(&["ID", "STATE", "VIEWERS", "AGE", "COMMAND"]);
    for terminal in sandbox.terminals().await? {
        let state = match terminal.state {
            TerminalState::Running => "running",
            TerminalState::Exited => "exited",
        };
        let command = terminal.command.join(" ");
        table.row([
            terminal.id,
            state.into(),
            terminal.viewers.to_string(),
            age(terminal.created_at),
            command,
        ]);
    }
    print(table.render())
}

/// Finds a terminal by its id or the beginning of it.
async fn find(sandbox: &Sandbox, id: &str) -> Result<Terminal, Failure> {
    let mut found = sandbox.terminals().await?;
    found.retain(|terminal| terminal.id.starts_with(id));
    match found.len() {
        1 => Ok(found.remove(0)),
        0 => Err(Failure::Usage(format!(
            "there is no terminal {id}; `sandbox attach NAME` lists them"
        ))),
        count => Err(Failure::Usage(format!(
            "{id} can be {count} terminals; give more letters"
        ))),
    }
}

/// Variables from `NAME=VALUE`, or `NAME` for the value of this process.
pub(crate) fn environment(variables: &[String]) -> Result<BTreeMap<String, String>, Failure> {
    let mut environment = BTreeMap::new();
    for variable in variables {
        let (name, value) = match variable.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (variable.as_str(), std::env::var(variable).ok()),
        };
        if name.is_empty() {
            return Err(Failure::Usage(format!(
                "{variable:?} is not a variable (example: NAME=VALUE)"
            )));
        }
        environment.extend(value.map(|value| (name.to_owned(), value)));
    }
    Ok(environment)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_have_a_value_or_that_of_the_process() {
        let variables = ["A=1=2", "B=", "PATH", "NOT_SET_ANYWHERE"].map(String::from);
        let environment = environment(&variables).unwrap();
        assert_eq!(environment.get("A").map(String::as_str), Some("1=2"));
        assert_eq!(environment.get("B").map(String::as_str), Some(""));
        assert_eq!(environment.get("PATH").cloned(), std::env::var("PATH").ok());
        assert!(!environment.contains_key("NOT_SET_ANYWHERE"));
        assert!(super::environment(&["=x".into()]).is_err());
    }
}
