//! `POST /execute_action`: one action in, one observation out.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use serde_json::{Map, Value};

use super::body::receive;
use super::error::BodyError;
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
        Err(error) => return error.into_response(),
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

/// Returns the value of `action`, which must be an object.
pub(super) fn envelope(body: &[u8]) -> Result<Map<String, Value>, BodyError> {
    if body.is_empty() {
        return Err(BodyError::Empty);
    }
    match serde_json::from_slice(body).map_err(|_| BodyError::Json)? {
        Value::Object(mut request) => match request.remove("action") {
            Some(Value::Object(action)) => Ok(action),
            Some(other) => Err(BodyError::ActionType(other)),
            None => Err(BodyError::NoAction(Value::Object(request))),
        },
        other => Err(BodyError::NoObject(other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_bodies_get_the_errors_of_the_python_server() {
        let error = |body: &str| envelope(body.as_bytes()).unwrap_err().to_string();
        assert!(error("{").contains("'json_invalid'"));
        assert!(error("").contains("'loc': ('body',)"));
        assert!(error("[1]").ends_with("'input': [1]}"));
        assert!(error("{\"x\":1}").ends_with("'input': {'x': 1}}"));
        assert!(error("{\"action\":\"x\"}").ends_with("'input': 'x'}"));
    }
}
