//! Launch of a kernel: finds a Python, starts it and runs the setup cells.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::JupyterError;
use super::kernel::{CellOutcome, Kernel, KernelError};
use super::output::Output;
use crate::serve::environment::EnvironmentChanges;
use crate::serve::plugins::agent_skills::{self, AgentSkills};
use crate::serve::python_environment;
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

    /// `PYTHONPATH`: the skills, then the code of the Python server, if the image has it.
    fn python_path(&self) -> Option<OsString> {
        let code = python_environment::code_dir(Path::new("/"));
        let skills = self.skills.as_ref().and_then(|skills| skills.directory());
        let added: Vec<_> = code
            .into_iter()
            .chain(skills.map(Path::to_path_buf))
            .collect();
        let before = self.start.variable("PYTHONPATH");
        let before = before.filter(|path| !path.is_empty());
        let before = before.iter().flat_map(std::env::split_paths);
        // A path with a colon cannot be in `PYTHONPATH`.
        let path =
            (!added.is_empty()).then(|| std::env::join_paths(added.into_iter().chain(before)));
        path?.ok()
    }

    fn kernel_context(&self) -> LaunchContext {
        let mut start = self.start.clone();
        let path = self.python_path().map(|path| ("PYTHONPATH", path));
        start.variables.extend(path);
        start
    }

    /// Variables for a kernel of this launcher to be one of the next. `None` if it must be
    /// started again.
    pub(super) fn changes(&self, next: &Self) -> Option<EnvironmentChanges> {
        let skills = [self, next].map(|launcher| launcher.skills.as_ref().map(Arc::as_ptr));
        let changes = self.kernel_context().changes(&next.kernel_context());
        changes.filter(|_| skills[0] == skills[1])
    }

    async fn launch_with(&self, python: &Path) -> Result<Launched, KernelError> {
        let mut kernel = Kernel::start(python, &self.kernel_context(), self.limit).await?;
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

fn no_kernel(failures: &[(PathBuf, KernelError)]) -> JupyterError {
    let mut text = "No Python in this sandbox can run a Jupyter kernel.".to_owned();
    for (python, error) in failures {
        let _ = write!(text, "\n{}: {error}", python.display());
    }
    text.push_str("\nInstall the package ipykernel, for example with `pip install ipykernel`, and run the cell again.");
    JupyterError::NoKernel(text)
}

/// Existing interpreters of `PATH`, best first. A missing `ipykernel` shows only at the start.
fn candidates(path: &str, working_dir: &Path) -> Vec<PathBuf> {
    let searched = ["python3", "python"].into_iter().flat_map(|name| {
        let entries = std::env::split_paths(path);
        let found = entries.map(|entry| working_dir.join(entry).join(name));
        found
            .filter(|path| path.is_file())
            .take(3)
            .collect::<Vec<_>>()
    });
    let mut found: Vec<PathBuf> = Vec::new();
    for python in searched {
        // `python` often links to `python3`; that of a virtual environment is not its target.
        let place = |path: &Path| fs::canonicalize(path.parent()?).ok();
        let same = |other: &PathBuf| {
            place(other) == place(&python)
                && fs::canonicalize(other).ok() == fs::canonicalize(&python).ok()
        };
        if !found.iter().any(same) {
            found.push(python);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn candidates_are_unique_and_in_path_order() {
        let root = tempfile::tempdir().unwrap();
        let place = |name: &str| root.path().join(name);
        for name in ["a", "b", "c"] {
            fs::create_dir(place(name)).unwrap();
        }
        fs::write(place("b/python3"), "").unwrap();
        symlink("python3", place("b/python")).unwrap();
        symlink(place("b/python3"), place("c/python3")).unwrap();
        let path = std::env::join_paths([place("a"), place("b"), place("c")]).unwrap();
        let found = candidates(path.to_str().unwrap(), Path::new("/"));
        assert_eq!(found, [place("b/python3"), place("c/python3")]);
        assert!(candidates("", Path::new("/nowhere")).is_empty());
    }
}
