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
        may_change_thread(operations.run(call.bind()?)).await?;
    }
    Ok(())
}

fn may_change_thread<F: Future + Send>(future: F) -> F {
    future
}
