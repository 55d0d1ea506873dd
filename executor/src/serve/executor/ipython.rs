//! The action `run_ipython`. Cells do not wait for commands; the kernel follows the shell only from
//! directory to directory.

use super::{ExecuteError, Executor};
use crate::serve::action::RunCell;
use crate::serve::observation::Observation;
use crate::serve::plugins::jupyter::{self, CellRequest, JupyterError};

impl Executor {
    pub(super) async fn run_cell(&self, cell: RunCell) -> Result<Observation, ExecuteError> {
        let kernel = self
            .plugins
            .jupyter
            .as_ref()
            .ok_or(JupyterError::NotEnabled)?;
        let directory = self.working_dir.lock().clone();
        let request = CellRequest {
            code: &cell.code,
            timeout: cell.timeout,
            directory: &directory,
        };
        let result = match kernel.run(request).await {
            Ok(result) => result,
            Err(JupyterError::NoKernel(text)) => return Ok(Observation::error(text)),
            Err(error) => return Err(error.into()),
        };
        let extra = cell.include_extra.then_some(directory.as_path());
        let content = jupyter::content(&result, extra);
        Ok(Observation::run_cell(
            cell.code,
            content,
            result.output.images,
        ))
    }
}
