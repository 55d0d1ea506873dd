//! From nothing to a kernel that is ready for cells: finds a Python, starts it, teaches it.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::JupyterError;
use super::interpreter::candidates;
use super::kernel::{Ending, Kernel, KernelError};
use super::output::Output;
use crate::serve::plugins::Plugin as _;
use crate::serve::plugins::agent_skills::{self, AgentSkills};
use crate::serve::shell::Start;

/// The last line that it prints is the path of the interpreter.
const FIRST_CELL: &str = "%colors nocolor\nimport sys\nprint()\nprint(sys.executable)";

#[derive(Debug, Clone)]
pub(super) struct Launcher {
    pub(super) start: Start,
    pub(super) skills: Option<Arc<AgentSkills>>,
    /// For a kernel to answer, and again for its first cells.
    pub(super) limit: Duration,
}

#[derive(Debug)]
pub(super) struct Launched {
    pub(super) kernel: Kernel,
    pub(super) interpreter: String,
}

impl Launcher {
    /// With the first Python that can run a kernel.
    pub(super) async fn launch(self) -> Result<Launched, JupyterError> {
        if let Some(skills) = &self.skills {
            skills.prepare().await;
        }
        let path = std::env::var("PATH").unwrap_or_default();
        let mut failures = Vec::new();
        for python in candidates(&path, &self.start.working_dir) {
            match self.launch_with(&python).await {
                Ok(launched) => return Ok(launched),
                Err(error) => {
                    tracing::warn!(python = %python.display(), %error, "no kernel");
                    failures.push((python, error));
                }
            }
        }
        Err(no_kernel(&failures))
    }

    async fn launch_with(&self, python: &Path) -> Result<Launched, KernelError> {
        let variables = self.skills.as_ref().map(|skills| skills.environment());
        let variables = variables.unwrap_or_default();
        let mut kernel = Kernel::start(python, &self.start, &variables, self.limit).await?;
        match self.teach(&mut kernel).await {
            Ok(interpreter) => Ok(Launched {
                kernel,
                interpreter,
            }),
            Err(error) => {
                kernel.end().await;
                Err(error)
            }
        }
    }

    /// The first cells; the path of the interpreter.
    async fn teach(&self, kernel: &mut Kernel) -> Result<String, KernelError> {
        let deadline = Some(Instant::now() + self.limit);
        let (ending, output) = kernel.run(FIRST_CELL, deadline).await?;
        if ending != Ending::Done {
            return Err(KernelError::Silent);
        }
        if self.skills.is_some() {
            let (_, Output { text, .. }) = kernel.run(agent_skills::IMPORT, deadline).await?;
            if !text.is_empty() {
                tracing::warn!(text, "agent skills cannot be loaded");
            }
        }
        let interpreter = output.text.trim_end().lines().last().unwrap_or_default();
        Ok(interpreter.to_owned())
    }
}

fn no_kernel(failures: &[(PathBuf, KernelError)]) -> JupyterError {
    let mut text = "No Python in this sandbox can run a Jupyter kernel.".to_owned();
    for (python, error) in failures {
        let _ = write!(text, "\n{}: {error}", python.display());
    }
    text.push_str("\nInstall the package ipykernel, for example with `pip install ipykernel`, and run the cell again.");
    JupyterError::NoKernel(text)
}
