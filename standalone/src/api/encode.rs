//! Encoding of responses in the format that the client accepts; warnings become headers.

use std::{borrow::Cow, sync::Arc};

use axum::{body::Body, response::Response};
use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};

use super::{
    ApiState,
    error::ApiError,
    object,
    registry::Kind,
    request::{Request, ResponseFormat},
    table::{self, Include},
    verb_result::VerbResult,
};

/// Inputs of the encoding besides the result.
#[derive(Clone, Debug)]
pub(crate) struct ResponseEncoder {
    pub(crate) kind: Arc<Kind>,
    pub(crate) format: ResponseFormat,
    pub(crate) include: Include,
    pub(crate) now: Timestamp,
}

impl ResponseEncoder {
    pub(crate) fn of(state: &ApiState, request: &Request) -> Self {
        let format = if request.target.subresource.is_some() {
            ResponseFormat::Json
        } else {
            request.format
        };
        Self {
            kind: request.target.kind.clone(),
            format,
            include: request.options.include,
            now: state.clock.now(),
        }
    }

    /// Encodes one object.
    pub(crate) fn object<'a>(&self, stored: &'a Value, headers: bool) -> Cow<'a, Value> {
        match self.format {
            ResponseFormat::Json => self.kind.to_own(stored),
            ResponseFormat::Partial => Cow::Owned(table::partial(stored)),
            ResponseFormat::Table => {
                let revision = object::resource_version(stored).unwrap_or_default();
                let object = self.kind.to_own(stored);
                let meta = json!({"resourceVersion": revision});
                Cow::Owned(self.table(&[object], &meta, headers))
            }
        }
    }

    fn list(&self, items: &[Arc<Value>], revision: u64, continue_token: Option<&str>) -> Bytes {
        let mut meta = json!({"resourceVersion": revision.to_string()});
        if let Some(continue_token) = continue_token {
            meta["continue"] = json!(continue_token);
        }
        let items: Vec<_> = items.iter().map(|item| self.kind.to_own(item)).collect();
        match self.format {
            ResponseFormat::Json => bytes(&List::new(
                &self.kind.api_version(),
                format!("{}List", self.kind.name),
                meta,
                &items,
            )),
            ResponseFormat::Partial => {
                let items: Vec<_> = items
                    .iter()
                    .map(|item| Cow::Owned(table::partial(item)))
                    .collect();
                bytes(&List::new(
                    "meta.k8s.io/v1",
                    "PartialObjectMetadataList".to_owned(),
                    meta,
                    &items,
                ))
            }
            ResponseFormat::Table => bytes(&self.table(&items, &meta, true)),
        }
    }

    fn table(&self, objects: &[Cow<'_, Value>], meta: &Value, headers: bool) -> Value {
        let objects = objects.iter().map(AsRef::as_ref);
        table::table(
            &self.kind.columns,
            objects,
            meta,
            self.now,
            (self.include, headers),
        )
    }
}

/// List that borrows its items, because they may be many.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct List<'a> {
    kind: String,
    api_version: &'a str,
    metadata: Value,
    items: &'a [Cow<'a, Value>],
}

impl<'a> List<'a> {
    fn new(
        api_version: &'a str,
        kind: String,
        metadata: Value,
        items: &'a [Cow<'a, Value>],
    ) -> Self {
        Self {
            kind,
            api_version,
            metadata,
            items,
        }
    }
}

/// Serializes as JSON. Cannot fail, because values have string keys.
pub(crate) fn bytes(value: &impl Serialize) -> Bytes {
    serde_json::to_vec(value).unwrap_or_default().into()
}

pub(crate) fn encode(encoder: &ResponseEncoder, result: VerbResult) -> Response {
    match result {
        VerbResult::Object {
            object,
            created,
            warnings,
            ..
        } => {
            let status = if created {
                StatusCode::CREATED
            } else {
                StatusCode::OK
            };
            let mut response = json(status, &encoder.object(&object, true));
            warnings
                .iter()
                .filter_map(|text| warning(text))
                .for_each(|value| {
                    response.headers_mut().append(header::WARNING, value);
                });
            response
        }
        VerbResult::List {
            items,
            revision,
            continue_token,
        } => with_body(
            StatusCode::OK,
            "application/json",
            encoder
                .list(&items, revision, continue_token.as_deref())
                .into(),
        ),
        VerbResult::Status { status, .. } => json(StatusCode::OK, &status),
        VerbResult::Plain(value) => json(StatusCode::OK, &value),
        VerbResult::Text(text) => with_body(StatusCode::OK, "text/plain", text),
        VerbResult::Watch(body) => with_body(StatusCode::OK, "application/json", body),
    }
}

fn warning(text: &str) -> Option<HeaderValue> {
    let text: String = text
        .chars()
        .filter(|letter| !letter.is_control())
        .take(512)
        .collect();
    HeaderValue::from_str(&format!("299 - {}", Value::from(text))).ok()
}

pub(crate) fn failure(error: &ApiError) -> Response {
    let mut response = json(error.code(), &error.to_status());
    if error.code() == StatusCode::TOO_MANY_REQUESTS {
        response
            .headers_mut()
            .insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}

pub(crate) fn json(status: StatusCode, value: &Value) -> Response {
    with_body(status, "application/json", bytes(value).into())
}

pub(crate) fn with_body(status: StatusCode, content_type: &'static str, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
