//! Launch of a kernel: finds a Python, starts it and runs the setup cells.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::cell::JupyterError;
use super::interpreter::candidates;
use super::kernel::{CellOutcome, Kernel, KernelError};
use super::output::Output;
use crate::serve::plugins::agent_skills::{self, AgentSkills};
use crate::serve::plugins::plugin::Plugin as _;
use crate::serve::python_environment::{self, Variables};
use crate::serve::shell::LaunchContext;

/// Setup cell. Its last line of output is the path of the interpreter.
const FIRST_CELL: &str = "%colors nocolor\nimport sys\nprint()\nprint(sys.executable)";

#[derive(Debug, Clone)]
pub(super) struct Launcher {
    pub(super) start: LaunchContext,
    pub(super) skills: Option<Arc<AgentSkills>>,
    /// Timeout of the start, and again of the setup cells.
    pub(super) limit: Duration,
}

#[derive(Debug)]
pub(super) struct Launched {
    pub(super) kernel: Kernel,
    pub(super) interpreter: String,
}

impl Launcher {
    /// Launches a kernel with the first Python that can run one.
    pub(super) async fn launch(self) -> Result<Launched, JupyterError> {
        if let Some(skills) = &self.skills {
            skills.prepare().await;
        }
        let path = self.start.variable("PATH").unwrap_or_default();
        let mut failures = Vec::new();
        let working_dir = self.start.working_dir.clone();
        let find = self
            .start
            .identity
            .run(move || candidates(&path.to_string_lossy(), &working_dir));
        let found = tokio::time::timeout(self.limit, find).await;
        let found = found.unwrap_or_else(|elapsed| Err(elapsed.into()));
        for python in found.map_err(|error| JupyterError::NoKernel(error.to_string()))? {
            match self.launch_with(&python).await {
                Ok(launched) => return Ok(launched),
                Err(error) => {
                    tracing::warn!(python = %python.display(), %error, "cannot start a kernel");
                    failures.push((python, error));
                }
            }
        }
        Err(no_kernel(&failures))
    }

    async fn launch_with(&self, python: &Path) -> Result<Launched, KernelError> {
        let variables = self.skills.as_ref().map(|skills| skills.environment());
        let mut variables = variables.unwrap_or_default();
        add_code_dir(&mut variables, Path::new("/"));
        let mut kernel = Kernel::start(python, &self.start, &variables, self.limit).await?;
        match self.run_setup_cells(&mut kernel).await {
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

    /// Runs the setup cells and returns the path of the interpreter.
    async fn run_setup_cells(&self, kernel: &mut Kernel) -> Result<String, KernelError> {
        let deadline = Some(Instant::now() + self.limit);
        let (ending, output) = kernel.run(FIRST_CELL, deadline).await?;
        if ending != CellOutcome::Done {
            return Err(KernelError::Silent);
        }
        if self.skills.is_some() {
            let (_, Output { text, .. }) = kernel.run(agent_skills::IMPORT, deadline).await?;
            if !text.is_empty() {
                tracing::warn!(text, "cannot load the agent skills");
            }
        }
        let interpreter = output.text.trim_end().lines().last().unwrap_or_default();
        Ok(interpreter.to_owned())
    }
}

/// Puts the code of the Python server, if the image has it, in front of `PYTHONPATH`.
fn add_code_dir(variables: &mut Variables, root: &Path) {
    let Some(code) = python_environment::code_dir(root) else {
        return;
    };
    let set = variables.iter().position(|(name, _)| *name == "PYTHONPATH");
    let before = match set {
        Some(index) => Some(variables.remove(index).1),
        None => std::env::var_os("PYTHONPATH").filter(|path| !path.is_empty()),
    };
    let entries = before.iter().flat_map(std::env::split_paths);
    let path = std::env::join_paths(std::iter::once(code).chain(entries));
    variables.extend(path.ok().map(|path| ("PYTHONPATH", path)));
}

fn no_kernel(failures: &[(PathBuf, KernelError)]) -> JupyterError {
    let mut text = "No Python in this sandbox can run a Jupyter kernel.".to_owned();
    for (python, error) in failures {
        let _ = write!(text, "\n{}: {error}", python.display());
    }
    text.push_str("\nInstall the package ipykernel, for example with `pip install ipykernel`, and run the cell again.");
    JupyterError::NoKernel(text)
}
