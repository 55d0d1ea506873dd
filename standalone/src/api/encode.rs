//! Encoding of responses in the format that the client accepts; warnings become headers.

use std::{borrow::Cow, sync::Arc};

use axum::{body::Body, response::Response};
use http::{HeaderValue, StatusCode, header};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};

use super::{
    ApiState,
    error::ApiError,
    object,
    request::{Request, ResponseFormat},
    table,
};

/// Encodes one object. Later watch events omit the headers of tables, or kubectl prints them again.
pub(crate) fn object<'a>(
    request: &Request,
    stored: &'a Value,
    now: Timestamp,
    headers: bool,
) -> Cow<'a, Value> {
    let kind = &request.target.kind;
    match request.format {
        ResponseFormat::Json => kind.to_own(stored),
        ResponseFormat::Partial => Cow::Owned(table::partial(stored)),
        ResponseFormat::Table => {
            let revision = object::resource_version(stored).unwrap_or_default();
            let meta = json!({"resourceVersion": revision});
            let include = request.options.include;
            let rows = table::rows(&kind.columns, &[kind.to_own(stored)], now, include);
            Cow::Owned(table::table(&kind.columns, &rows, &meta, headers))
        }
    }
}

pub(crate) fn object_response(
    state: &ApiState,
    request: &Request,
    status: StatusCode,
    stored: &Value,
    warnings: &[String],
) -> Response {
    let mut response = json(status, &object(request, stored, state.clock.now(), true));
    for value in warnings.iter().filter_map(|text| warning(text)) {
        response.headers_mut().append(header::WARNING, value);
    }
    response
}

fn warning(text: &str) -> Option<HeaderValue> {
    let letters = text.chars().filter(|letter| !letter.is_control());
    let text: String = letters.take(512).collect();
    HeaderValue::from_str(&format!("299 - {}", Value::from(text))).ok()
}

/// List that borrows its items, because they may be many.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct List<'a> {
    kind: String,
    api_version: String,
    metadata: Value,
    items: Vec<Cow<'a, Value>>,
}

/// Response with objects and the continue token of the next page.
pub(crate) fn list_response(
    state: &ApiState,
    request: &Request,
    items: &[Arc<Value>],
    revision: u64,
    continue_token: Option<String>,
) -> Response {
    let kind = &request.target.kind;
    let mut metadata = json!({"resourceVersion": revision.to_string()});
    if let Some(continue_token) = continue_token {
        metadata["continue"] = json!(continue_token);
    }
    let mut list = List {
        kind: format!("{}List", kind.name),
        api_version: kind.api_version(),
        metadata,
        items: items.iter().map(|item| kind.to_own(item)).collect(),
    };
    match request.format {
        ResponseFormat::Json => json(StatusCode::OK, &list),
        ResponseFormat::Partial => {
            "PartialObjectMetadataList".clone_into(&mut list.kind);
            "meta.k8s.io/v1".clone_into(&mut list.api_version);
            for item in &mut list.items {
                *item = Cow::Owned(table::partial(item));
            }
            json(StatusCode::OK, &list)
        }
        ResponseFormat::Table => {
            let (now, include) = (state.clock.now(), request.options.include);
            let rows = table::rows(&kind.columns, &list.items, now, include);
            let table = table::table(&kind.columns, &rows, &list.metadata, true);
            json(StatusCode::OK, &table)
        }
    }
}

pub(crate) fn failure(error: &ApiError) -> Response {
    json(error.code(), &error.to_status())
}

/// Response in JSON. Serialization cannot fail, because values have string keys.
pub(crate) fn json(status: StatusCode, value: &impl Serialize) -> Response {
    let body = serde_json::to_vec(value).unwrap_or_default();
    let mut response = ok("application/json", body);
    *response.status_mut() = status;
    response
}

pub(crate) fn ok(content_type: &'static str, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    let content_type = HeaderValue::from_static(content_type);
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, content_type);
    response
}
