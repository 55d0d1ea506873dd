//! Command line.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueEnum};
use shared::tenants::key_commands::KeyCommand;

use crate::commands::{
    builds, cp, describe, doctor, exec, list, logs, open, port, run, snapshots, state, top,
};
use crate::failure::TOOL_FAILED;
use crate::installation::Installation;

/// Name under which kubectl finds its plugin.
const PLUGIN: &str = "kubectl-sandbox";

/// Start, use and stop sandboxes of AI agents
#[derive(Debug, Parser)]
#[command(name = "sandbox", version, max_term_width = 100, color = clap::ColorChoice::Never)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) access: Access,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Access {
    /// Base URL of the gateway; by default that of `SANDBOX_API_URL`, and without it a kubeconfig leads
    /// to the gateway
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) api_url: Option<String>,
    /// File with the API key; by default the variable `SANDBOX_API_KEY` has it
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) api_key_file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) installation: Installation,
}

impl Access {
    /// URL of the flag or of the variable.
    pub(crate) fn url(&self) -> Option<String> {
        let variable = || std::env::var("SANDBOX_API_URL").ok();
        let url = self.api_url.clone().or_else(variable);
        url.filter(|url| !url.is_empty())
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start a sandbox and run a command in it
    Run(run::Args),
    /// List sandboxes that start or run
    #[command(visible_alias = "ls")]
    List(list::Args),
    /// Show one sandbox and its history
    Describe(describe::Args),
    /// Print the output of the program of a sandbox
    Logs(logs::Args),
    /// Open a shell in a sandbox
    Shell(exec::ShellArgs),
    /// Run a command in a sandbox; the exit code is that of the command
    Exec(exec::Args),
    /// Connect to a program that runs in a sandbox, or watch the agent
    Attach(exec::AttachArgs),
    /// Copy files and trees between this machine and a sandbox
    Cp(cp::Args),
    /// Forward ports of this machine to ports in a sandbox
    Port(port::Args),
    /// Print the addresses of a sandbox, and open one of them
    Open(open::Args),
    /// Release the compute of sandboxes and keep their files
    Pause(state::PauseArgs),
    /// Bring back paused sandboxes
    Resume(state::Args),
    /// End sandboxes and delete their files
    Stop(state::Args),
    /// Make, list and delete snapshots
    #[command(subcommand)]
    Snapshot(snapshots::Command),
    /// Start sandboxes with the state of a snapshot or of a running sandbox
    Fork(snapshots::ForkArgs),
    /// Show uptime, idle time, CPU, memory and disk of sandboxes
    Top(top::Args),
    /// List pools of warm sandboxes
    Pools(list::FormatArgs),
    /// Look up images
    #[command(subcommand)]
    Images(builds::ImagesCommand),
    /// Build images and follow builds
    #[command(subcommand)]
    Builds(builds::Command),
    /// Create, list and revoke API keys of an installation, through a kubeconfig
    #[command(subcommand)]
    Keys(KeyCommand),
    /// Check an installation through a kubeconfig, and say how to repair it
    Doctor(doctor::Args),
    /// Print a completion script for a shell
    Completion { shell: Shell },
    /// Print the version
    Version,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Shell {
    Bash,
    Zsh,
    Fish,
}

/// Parses the command line. Help and usage errors are printed; the exit code is returned.
pub(crate) fn parse() -> Result<Cli, ExitCode> {
    let args: Vec<OsString> = std::env::args_os().collect();
    let matches = command(args.first()).try_get_matches_from(args);
    matches
        .and_then(|matches| Cli::from_arg_matches(&matches))
        .map_err(|error| {
            // A closed output leaves nothing to do.
            let _ = error.print();
            match error.kind() {
                ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => ExitCode::SUCCESS,
                _ => ExitCode::from(TOOL_FAILED),
            }
        })
}

/// The command under the name that it was called by.
fn command(program: Option<&OsString>) -> clap::Command {
    let name = program.and_then(|program| Path::new(program).file_name());
    if name.is_some_and(|name| name == PLUGIN) {
        Cli::command().name(PLUGIN).bin_name("kubectl sandbox")
    } else {
        Cli::command()
    }
}

/// Prints a completion script.
pub(crate) fn completion(shell: Shell) -> Vec<u8> {
    let shell = match shell {
        Shell::Bash => clap_complete::Shell::Bash,
        Shell::Zsh => clap_complete::Shell::Zsh,
        Shell::Fish => clap_complete::Shell::Fish,
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "sandbox", &mut script);
    script
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn help_names_the_program_that_was_called() {
        let name = |program: &str| command(Some(&program.into())).render_help().to_string();
        assert!(name("/usr/bin/kubectl-sandbox").contains("Usage: kubectl sandbox "));
        assert!(name("sandbox").contains("Usage: sandbox "));
    }
}
