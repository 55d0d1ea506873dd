//! The command line. Every flag is also an environment variable.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use clap::Parser;
use operator::args::LifecycleArgs;
use operator::gateway::SettingsArgs;
use operator::urls::UrlForm;

/// Sandbox Operator on one machine, without a cluster.
#[derive(Debug, Parser)]
#[command(version)]
pub struct Args {
    /// Directory of everything that survives a restart. One process at a time.
    #[arg(long, env = "SANDBOX_STATE_DIR", default_value = ".state")]
    pub state_dir: PathBuf,

    /// Address of the gateway. On 0.0.0.0, connections from other machines are refused unless
    /// `--public` is given: loopback URLs need all of 127.0.0.0/8.
    #[arg(long, env = "SANDBOX_LISTEN", default_value = "0.0.0.0:5000")]
    pub listen: SocketAddr,

    /// Accept connections from other machines.
    #[arg(long, env = "SANDBOX_PUBLIC")]
    pub public: bool,

    /// Address of the embedded Kubernetes-style API.
    #[arg(long, env = "SANDBOX_API_LISTEN", default_value = "127.0.0.1:5001")]
    pub api_listen: SocketAddr,

    /// Form of sandbox URLs: nested, path, loopback, or auto: nested below `localhost` if names
    /// below it resolve here, else loopback.
    #[arg(long, env = "SANDBOX_URL_FORM", default_value = "auto")]
    pub url_form: FormChoice,

    /// Root directory for an image name: NAME=DIRECTORY. Other images get the host's own /usr.
    #[arg(long = "image", value_name = "NAME=DIRECTORY")]
    pub images: Vec<ImageRoot>,

    /// Refuse images that no --image names.
    #[arg(long, env = "SANDBOX_NO_HOST_IMAGE")]
    pub no_host_image: bool,

    /// The executor binary. Default: `sandbox-executor` beside this program.
    #[arg(long, env = "SANDBOX_EXECUTOR")]
    pub executor: Option<PathBuf>,

    #[command(flatten)]
    pub settings: SettingsArgs,

    #[command(flatten)]
    pub lifecycle: LifecycleArgs,
}

/// `auto` or a form.
#[derive(Debug, Clone, Copy)]
pub enum FormChoice {
    Auto,
    Form(UrlForm),
}

impl FromStr for FormChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            text => text.parse().map(Self::Form),
        }
    }
}

/// An image name and the directory that stands for it.
#[derive(Debug, Clone)]
pub struct ImageRoot {
    pub name: String,
    pub directory: PathBuf,
}

impl FromStr for ImageRoot {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, directory) = text
            .split_once('=')
            .ok_or_else(|| format!("{text:?} is not NAME=DIRECTORY"))?;
        let directory = PathBuf::from(directory);
        if !directory.is_dir() {
            return Err(format!("{} is no directory", directory.display()));
        }
        Ok(Self {
            name: name.into(),
            directory,
        })
    }
}
