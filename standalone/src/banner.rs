//! Startup message, and the file that sets the same values in a shell.

use std::fmt;
use std::path::PathBuf;

/// Addresses and credentials of a running standalone.
#[derive(Debug)]
pub(crate) struct Banner {
    pub(crate) api_url: String,
    pub(crate) api_key: String,
    pub(crate) kubeconfig: PathBuf,
    /// File with the content of [`Banner::env`].
    pub(crate) env_file: PathBuf,
    /// Example of a sandbox URL.
    pub(crate) sandbox_url: String,
    pub(crate) has_console: bool,
}

impl Banner {
    /// Content of a file for the shell command `.`.
    pub(crate) fn env(&self) -> String {
        format!(
            "export SANDBOX_API_URL='{}'\nexport SANDBOX_API_KEY='{}'\nexport KUBECONFIG='{}'\n",
            self.api_url,
            self.api_key,
            self.kubeconfig.display()
        )
    }
}

impl fmt::Display for Banner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            api_url,
            api_key,
            kubeconfig,
            env_file,
            sandbox_url,
            has_console,
        } = self;
        let console = if *has_console {
            format!("\n  Console       {api_url}/console/")
        } else {
            String::new()
        };
        write!(
            f,
            "
  Runtime API   {api_url}{console}
  API key       {api_key}
  Sandbox URLs  {sandbox_url} (also {api_url}/ID/runtime)
  KUBECONFIG    {}

  Try it, in another shell:

    . {}
    examples/first-session.sh
    kubectl apply -f manifests/samples/sandbox.yaml && kubectl get sbx -w

Sandbox Operator is ready. Press Ctrl-C to stop it; data stays in the state directory.",
            kubeconfig.display(),
            env_file.display()
        )
    }
}
