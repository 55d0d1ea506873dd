//! Operations on pages of all kinds. Most cases are data: a page, a program, and what happens.

use browser::error::StepError;
use browser::operations::Operations;
use browser::program;

mod case_file;
mod cases;
mod navigation;
mod tab_list;

async fn run_program(operations: &mut Operations, text: &str) -> Result<(), StepError> {
    for call in program::parse(text)? {
        operations.run(call.bind()?).await?;
    }
    Ok(())
}
