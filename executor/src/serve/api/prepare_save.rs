//! `POST /prepare_save`: ends what cannot be saved with the processes of the sandbox
//! (`docs/specs/executor.md`, section 2.10).

use std::sync::Arc;

use axum::extract::State;
use http::StatusCode;

use crate::serve::executor::Executor;

pub(super) async fn post(State(executor): State<Arc<Executor>>) -> StatusCode {
    if let Some(browser) = &executor.plugins.browser {
        browser.end_for_save().await;
    }
    StatusCode::NO_CONTENT
}
