//! `POST /terminals`: starts a program (`docs/specs/executor.md`, section 13.1).

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;

use crate::serve::api::body::receive;
use crate::serve::api::error::detail;
use crate::serve::executor::Executor;
use crate::serve::terminals::{CreateError, TerminalRequest};

const MAX_BODY_BYTES: usize = 64 << 10;

pub(super) async fn post(
    State(executor): State<Arc<Executor>>,
    body: Body,
) -> Result<Response, Response> {
    let received = receive(body, MAX_BODY_BYTES).await;
    let (body, _budget) = received.map_err(IntoResponse::into_response)?;
    let request = TerminalRequest::parse(&body);
    let request = request.map_err(|error| invalid(&error.to_string()))?;
    let _running = executor.activity.begin();
    let created = executor.terminals.create(&request).await;
    let terminal = created.map_err(|error| {
        let text = error.to_string();
        match error {
            CreateError::TooMany => detail(StatusCode::TOO_MANY_REQUESTS, &text),
            CreateError::Program(cause) if !cause.is_temporary() => invalid(&text),
            _ => detail(StatusCode::SERVICE_UNAVAILABLE, &text),
        }
    })?;
    Ok((StatusCode::CREATED, Json(terminal.info())).into_response())
}

fn invalid(text: &str) -> Response {
    detail(StatusCode::UNPROCESSABLE_ENTITY, text)
}
