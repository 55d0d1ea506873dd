//! The action `run_ipython`. Cells wait for no command: the kernel is beside the shell, and only
//! follows it from directory to directory.

use super::{ExecuteError, Executor};
use crate::serve::action::RunCell;
use crate::serve::observation::Observation;
use crate::serve::plugins::jupyter::{self, JupyterError, Request};

impl Executor {
    pub(super) async fn run_cell(&self, cell: RunCell) -> Result<Observation, ExecuteError> {
        let kernel = self.plugins.jupyter.as_ref().ok_or(JupyterError::Absent)?;
        let directory = self.working_dir.lock().clone();
        let request = Request {
            code: &cell.code,
            timeout: cell.timeout,
            directory: &directory,
        };
        let answer = match kernel.run(request).await {
            Ok(answer) => answer,
            Err(JupyterError::NoKernel(text)) => return Ok(Observation::error(text)),
            Err(error) => return Err(error.into()),
        };
        let extra = cell.include_extra.then_some(directory.as_path());
        let content = jupyter::content(&answer, extra);
        Ok(Observation::run_cell(
            cell.code,
            content,
            answer.output.images,
        ))
    }
}
