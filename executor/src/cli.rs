//! Command line. `serve` accepts the flags of the Python action execution server, so that
//! `POST /start` commands of existing backends only change the name of the program.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::IpAddr;
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{Args, CommandFactory as _, Parser, Subcommand};
use crds::contract::prestart::DORMANT_FLAG;
use crds::contract::{CONTROL_PORT, path, variable};

#[derive(Debug, Parser)]
#[command(name = "sandbox-executor", version, about)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Copy this binary to DIRECTORY/sandbox-executor
    Install { directory: PathBuf },
    /// Create DIRECTORY and its parents as the current user
    MakeDirectory { directory: PathBuf },
    /// Do nothing until a signal: a container that keeps its image on the node
    Hold,
    /// Check that a root with changes on the volume at DIRECTORY can be mounted here
    #[command(hide = true)]
    CheckRootOverlay { directory: PathBuf },
    /// Check that processes can be saved at DIRECTORY here, and go on
    #[command(hide = true)]
    CheckProcesses { directory: PathBuf },
    /// Run as PID 1: wait for the init message, then run its command
    Supervise(Box<SuperviseOptions>),
    /// Run the root of a process tree that can be saved
    #[command(hide = true)]
    TreeRoot(TreeRootOptions),
    /// Run the action execution server
    Serve(Box<ServeOptions>),
}

#[derive(Debug, Args)]
pub(crate) struct SuperviseOptions {
    /// Memory-backed directory that stores the init message across container restarts
    #[arg(long, default_value = path::STATE_DIR)]
    pub(crate) state_dir: PathBuf,
    /// Port of the control server; 0 picks one and prints it
    #[arg(long, default_value_t = CONTROL_PORT)]
    pub(crate) control_port: u16,
    /// Uid of the Pod that control calls must name
    #[arg(long, env = variable::POD_UID, hide_env_values = true)]
    pub(crate) pod_uid: String,
    /// Public key that control calls are verified with
    #[arg(long, env = variable::CONTROL_PUBLIC_KEY, hide_env_values = true)]
    pub(crate) control_public_key: String,
    /// Key that proves that the Pod belongs to its sandbox
    #[arg(long, env = variable::IDENTITY_KEY, hide_env_values = true)]
    pub(crate) identity_key: String,
    /// Address of the Pod, part of these proofs
    #[arg(long, env = variable::POD_IP)]
    pub(crate) pod_ip: IpAddr,
    /// Program that runs before the init message, as JSON
    #[arg(long, env = variable::PRESTART, hide_env_values = true)]
    pub(crate) prestart: Option<String>,
    /// Persistence beyond the workspace, as JSON
    #[arg(long, env = variable::PERSISTENCE, hide_env_values = true)]
    pub(crate) persistence: Option<String>,
    /// State that the node has restored, as JSON
    #[arg(long, env = variable::NODE_ROOT, hide_env_values = true)]
    pub(crate) node_root: Option<String>,
    /// Directory on the volume that keeps the state besides the workspace
    #[arg(long, hide = true, default_value = path::STORE_DIR)]
    pub(crate) store_dir: PathBuf,
    /// Program that saves and restores processes
    #[arg(long, hide = true, default_value = path::CRIU)]
    pub(crate) criu: PathBuf,
    /// Address to listen on and to probe instead of all addresses
    #[arg(long, env = variable::BIND_ADDRESS)]
    pub(crate) bind_address: Option<IpAddr>,
}

#[derive(Debug, Args)]
pub(crate) struct TreeRootOptions {
    /// File of the program
    pub(crate) program: PathBuf,
    /// Name under which the program runs, and its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, num_args = 1..)]
    pub(crate) words: Vec<OsString>,
}

#[derive(Debug, Args)]
// Compatible with the Python server: the last of repeated flags wins.
#[command(args_override_self = true)]
pub(crate) struct ServeOptions {
    /// TCP port of the API; 0 picks one and prints it
    pub(crate) port: u16,
    /// Directory that the shell starts in
    #[arg(long, default_value = "/workspace")]
    pub(crate) working_dir: PathBuf,
    /// Any of `agent_skills`, `browser`, `jupyter`, `vscode`, and plugins of your own by the names of
    /// their folders; `NAME:OPTION,OPTION` for one with options
    #[arg(long, num_args = 1..)]
    pub(crate) plugins: Vec<String>,
    /// Directories with folders of plugins, before those in `/opt/sandbox/plugins`
    #[arg(long, env = "SANDBOX_PLUGIN_PATH", default_value = "")]
    pub(crate) plugin_path: String,
    /// User of the shell and owner of written files
    #[arg(long, default_value = "openhands")]
    pub(crate) username: String,
    /// Uid of that user
    #[arg(long, default_value_t = 1000)]
    pub(crate) user_id: u32,
    /// Serve browser actions (the default)
    #[arg(long, overrides_with = "no_enable_browser")]
    pub(crate) enable_browser: bool,
    /// Do not serve browser actions
    #[arg(long, overrides_with = "enable_browser")]
    pub(crate) no_enable_browser: bool,
    /// Name of a browser evaluation environment
    #[arg(long, num_args = 1..)]
    pub(crate) browsergym_eval_env: Vec<String>,
    /// Chromium to use instead of the one that the image has in a usual place
    #[arg(long, env = "SANDBOX_BROWSER_PROGRAM")]
    pub(crate) browser_program: Option<PathBuf>,
    /// Seconds without use after which the browser ends; 0 for never
    #[arg(long, env = "SANDBOX_BROWSER_IDLE_SECONDS", default_value_t = 0)]
    pub(crate) browser_idle_seconds: u64,
    /// Length of a page's tree, in characters, from which it has only what is visible; 0 for no limit
    #[arg(long, env = "SANDBOX_BROWSER_MAX_TREE_CHARS", default_value_t = 0)]
    pub(crate) browser_max_tree_chars: usize,
    /// Memory of the browser in MiB above which its largest process ends; 0 for no limit
    #[arg(long, env = "SANDBOX_BROWSER_MEMORY_MIB", default_value_t = 2048)]
    pub(crate) browser_memory_mib: u64,
    /// Key that requests must carry in `X-Session-API-Key`
    #[arg(long, env = variable::SESSION_API_KEY, hide_env_values = true, default_value = "")]
    pub(crate) session_api_key: String,
    /// Seconds without new output after which a command is reported as still running
    #[arg(long, env = "NO_CHANGE_TIMEOUT_SECONDS", default_value_t = 10)]
    pub(crate) no_change_timeout_seconds: u64,
    /// Memory limit of the sandbox in GiB, which the container enforces
    #[arg(long, env = "RUNTIME_MAX_MEMORY_GB", hide = true)]
    pub(crate) runtime_max_memory_gb: Option<String>,
    /// User of shells besides root and openhands
    #[arg(long, env = "RUNTIME_USERNAME", hide = true)]
    pub(crate) runtime_username: Option<String>,
    /// Run shells as the user instead of the user of the server
    #[arg(long, env = "SU_TO_USER", hide = true, default_value = "true")]
    pub(crate) su_to_user: String,
    /// Group of the working directory
    #[arg(long, env = "SANDBOX_GROUP_ID", hide = true, default_value = "root")]
    pub(crate) sandbox_group_id: String,
    /// User that started the server
    #[arg(long, env = "USER", hide = true)]
    pub(crate) user: Option<String>,
    /// Timeout of the start of a plugin, in seconds
    #[arg(long, env = "INIT_PLUGIN_TIMEOUT", hide = true, default_value_t = 120)]
    pub(crate) init_plugin_timeout: u64,
    /// Port of the VS Code server
    #[arg(long, env = "VSCODE_PORT", hide = true)]
    pub(crate) vscode_port: Option<String>,
    /// URL path prefix of the VS Code server
    #[arg(long, env = "OPENVSCODE_SERVER_BASE_PATH", hide = true)]
    pub(crate) vscode_base_path: Option<String>,
    /// Name of the sandbox in URLs
    #[arg(long, env = "RUNTIME_ID", hide = true)]
    pub(crate) runtime_id: Option<String>,
    /// URL of the sandbox
    #[arg(long, env = "RUNTIME_URL", hide = true)]
    pub(crate) runtime_url: Option<String>,
    /// Directory that VS Code opens
    #[arg(long, env = "WORKSPACE_MOUNT_PATH_IN_SANDBOX", hide = true)]
    pub(crate) workspace: Option<PathBuf>,
    /// Directory of the settings of VS Code
    #[arg(long, env = "WORKSPACE_BASE", hide = true)]
    pub(crate) workspace_base: Option<PathBuf>,
    /// Write the log as JSON (`1`, `true`)
    #[arg(long, env = "LOG_JSON", hide = true, default_value = "0")]
    pub(crate) log_json: String,
    /// Log the memory of the sandbox (`1`, `true`, `yes`)
    #[arg(
        long,
        env = "RUNTIME_MEMORY_MONITOR",
        hide = true,
        default_value = "false"
    )]
    pub(crate) memory_monitor: String,
    /// Address to listen on instead of all addresses
    #[arg(long, env = variable::BIND_ADDRESS)]
    pub(crate) bind_address: Option<IpAddr>,
    /// File with the URL of the file viewer
    #[arg(long, hide = true, default_value = "/tmp/oh-server-url")]
    pub(crate) viewer_url_file: PathBuf,
    /// Serve once an init message arrives on standard input
    #[arg(long = DORMANT_FLAG.trim_start_matches('-'), hide = true)]
    pub(crate) dormant: bool,
}

impl ServeOptions {
    pub(crate) fn logs_json(&self) -> bool {
        ["1", "true", "True"].contains(&self.log_json.as_str())
    }

    /// Parses a command line of `serve`. Variables of `environment` precede those of the process.
    pub(crate) fn parse(
        command: &[String],
        environment: &BTreeMap<String, String>,
    ) -> Result<Self, clap::Error> {
        let (program, flags) = command.split_at(command.len().min(2));
        // Flags of the command come later, so that they win over its environment.
        let words = program.iter().cloned();
        let words = words.chain(flags_of(environment)).chain(flags.to_vec());
        match Cli::try_parse_from(words)?.command {
            Command::Serve(options) => Ok(*options),
            _ => Err(Cli::command().error(ErrorKind::InvalidSubcommand, "must be `serve`")),
        }
    }
}

/// Flags of `serve` in place of variables.
fn flags_of(environment: &BTreeMap<String, String>) -> Vec<String> {
    let definition = ServeOptions::augment_args(clap::Command::new("serve"));
    let flag = |option: &clap::Arg| {
        let value = environment.get(option.get_env()?.to_str()?)?;
        Some(format!("--{}={value}", option.get_long()?))
    };
    definition.get_arguments().filter_map(flag).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plugins_option_takes_words_until_next_flag() {
        let line = "x serve 60000 --working-dir /w --plugins agent_skills jupyter \
                    --username root --user-id 0 --no-enable-browser";
        let Command::Serve(options) = Cli::parse_from(line.split(' ')).command else {
            panic!("not serve");
        };
        assert_eq!(options.plugins, ["agent_skills", "jupyter"]);
        assert_eq!((options.port, options.user_id), (60000, 0));
        assert!(options.no_enable_browser);
    }

    #[test]
    fn given_variables_precede_those_of_the_process_and_follow_flags() {
        let parse = |line: &str| {
            let command: Vec<_> = line.split(' ').map(str::to_owned).collect();
            let given = [("SESSION_API_KEY", "--a b=c"), ("RUNTIME_ID", "")];
            let given = given.map(|(name, value)| (name.to_owned(), value.to_owned()));
            ServeOptions::parse(&command, &given.into())
        };
        let options = parse("x serve 1 --plugins jupyter").unwrap();
        assert_eq!(options.session_api_key, "--a b=c");
        assert_eq!(options.runtime_id.as_deref(), Some(""));
        assert_eq!(options.runtime_url, None);
        let options = parse("x serve 1 --session-api-key flag").unwrap();
        assert_eq!(options.session_api_key, "flag");
        assert!(parse("x install /tmp").is_err());
        assert!(parse("x").is_err());
    }
}
