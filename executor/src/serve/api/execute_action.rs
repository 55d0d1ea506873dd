//! `POST /execute_action`: one action in, one observation out.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use serde_json::{Map, Value};

use super::body::receive;
use super::error::{invalid, issue, missing};
use crate::serve::action::Action;
use crate::serve::executor::{ExecuteError, Executor};
use crate::serve::observation::Observation;

/// Limit of a request body. The content of a file is part of a `write` action.
const MAX_BODY_BYTES: usize = 256 << 20;

pub(super) async fn post(State(executor): State<Arc<Executor>>, body: Body) -> Response {
    let (body, _budget) = match receive(body, MAX_BODY_BYTES).await {
        Ok(received) => received,
        Err(error) => return error.into_response(),
    };
    let envelope = match envelope(&body) {
        Ok(envelope) => envelope,
        Err(error) => return invalid(&[error]),
    };
    drop(body);
    match execute(&executor, &envelope).await {
        Ok(observation) => Json(observation).into_response(),
        Err(error) => error.into_response(),
    }
}

async fn execute(
    executor: &Arc<Executor>,
    envelope: &Map<String, Value>,
) -> Result<Observation, ExecuteError> {
    executor.execute(Action::parse(envelope)?).await
}

/// Returns the value of `action`, which must be an object, or a validation error.
pub(super) fn envelope(body: &[u8]) -> Result<Map<String, Value>, String> {
    const LOCATION: &str = "'body', 'action'";
    const NO_JSON: &str = "{'type': 'json_invalid', 'loc': ('body', 0), 'msg': 'JSON decode error', \
        'input': {}, 'ctx': {'error': 'Expecting value'}}";
    const NO_OBJECT: &str = "Input should be a valid dictionary or object to extract fields from";
    if body.is_empty() {
        return Err(missing("'body',"));
    }
    match serde_json::from_slice(body).map_err(|_| NO_JSON)? {
        Value::Object(mut request) => match request.remove("action") {
            Some(Value::Object(action)) => Ok(action),
            Some(other) => {
                let message = "Input should be a valid dictionary";
                Err(issue("dict_type", LOCATION, message, &other))
            }
            None => Err(issue(
                "missing",
                LOCATION,
                "Field required",
                &request.into(),
            )),
        },
        other => Err(issue("model_attributes_type", "'body',", NO_OBJECT, &other)),
    }
}
