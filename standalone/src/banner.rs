//! What the user sees when everything is up, and the file that sets the same in a shell.

use std::fmt;
use std::path::PathBuf;

/// How to reach a running standalone.
#[derive(Debug)]
pub(crate) struct Banner {
    pub(crate) api_url: String,
    pub(crate) api_key: String,
    pub(crate) kubeconfig: PathBuf,
    /// File that sets all of it: [`Banner::env`].
    pub(crate) env_file: PathBuf,
    /// A sandbox URL with a made-up id.
    pub(crate) sandbox_url: String,
}

impl Banner {
    /// A file for `.` of a shell.
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
            api_url, api_key, ..
        } = self;
        writeln!(f)?;
        writeln!(f, "  Runtime API   {api_url}")?;
        writeln!(f, "  API key       {api_key}")?;
        writeln!(
            f,
            "  Sandbox URLs  {} (also {api_url}/ID/runtime)",
            self.sandbox_url
        )?;
        writeln!(f, "  KUBECONFIG    {}", self.kubeconfig.display())?;
        writeln!(f)?;
        writeln!(f, "  Try it, in another shell:")?;
        writeln!(f)?;
        writeln!(f, "    . {}", self.env_file.display())?;
        writeln!(f, "    examples/first-session.sh")?;
        writeln!(
            f,
            "    kubectl apply -f manifests/samples/sandbox.yaml && kubectl get sbx -w"
        )?;
        writeln!(f)?;
        write!(
            f,
            "Sandbox Operator is ready. Ctrl-C ends it; what is kept is kept in the state directory."
        )
    }
}
