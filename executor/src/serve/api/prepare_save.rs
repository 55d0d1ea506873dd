//! `POST /prepare_save`: ends what cannot be saved with the processes of the sandbox
//! (`docs/specs/executor.md`, section 2.10): the browser, and connections to terminals.

use std::sync::Arc;

use axum::extract::State;
use http::StatusCode;

use crate::serve::executor::Executor;

pub(super) async fn post(State(executor): State<Arc<Executor>>) -> StatusCode {
    let browser = async {
        if let Some(browser) = &executor.plugins.browser {
            browser.end_for_save().await;
        }
    };
    tokio::join!(browser, executor.terminals.disconnect());
    StatusCode::NO_CONTENT
}
