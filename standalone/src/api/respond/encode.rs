//! Answers on the wire: the object in the form the client asked for, warnings as headers.

use std::sync::Arc;

use axum::{body::Body, response::Response};
use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::api::{
    Inner,
    error::ApiError,
    object,
    registry::Kind,
    request::{Form, Request},
    table::{self, Include},
    verbs::Answer,
};

/// What the encoding of an answer depends on.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub(crate) kind: Arc<Kind>,
    pub(crate) form: Form,
    pub(crate) include: Include,
    pub(crate) now: Timestamp,
}

impl Shape {
    pub(crate) fn of(inner: &Inner, request: &Request) -> Self {
        let form = if request.target.subresource.is_some() {
            Form::Json
        } else {
            request.form
        };
        Self {
            kind: request.target.kind.clone(),
            form,
            include: request.options.include,
            now: inner.clock.now(),
        }
    }

    /// One object of the kind.
    pub(crate) fn object(&self, stored: &Value, headers: bool) -> Value {
        match self.form {
            Form::Json => view(&self.kind, stored),
            Form::Partial => table::partial(stored),
            Form::Table => {
                let meta = json!({"resourceVersion": object::resource_version(stored).unwrap_or_default()});
                let object = view(&self.kind, stored);
                table::table(
                    &self.kind.columns,
                    std::iter::once(&object),
                    &meta,
                    self.now,
                    (self.include, headers),
                )
            }
        }
    }

    fn list(&self, items: &[Arc<Value>], revision: u64) -> Value {
        let meta = json!({"resourceVersion": revision.to_string()});
        let objects: Vec<_> = items.iter().map(|item| view(&self.kind, item)).collect();
        match self.form {
            Form::Json => {
                json!({"kind": format!("{}List", self.kind.name), "apiVersion": self.kind.api_version(), "metadata": meta, "items": objects})
            }
            Form::Partial => {
                let items: Vec<_> = objects.iter().map(table::partial).collect();
                json!({"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": meta, "items": items})
            }
            Form::Table => table::table(
                &self.kind.columns,
                objects.iter(),
                &meta,
                self.now,
                (self.include, true),
            ),
        }
    }
}

/// The object as this kind spells it.
pub(crate) fn view(kind: &Kind, stored: &Value) -> Value {
    kind.alias
        .as_ref()
        .map_or_else(|| stored.clone(), |alias| (alias.from_stored)(stored))
}

pub(crate) fn encode(shape: &Shape, answer: Answer) -> Response {
    match answer {
        Answer::Object {
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
            let mut response = json(status, &shape.object(&object, true));
            warnings
                .iter()
                .filter_map(|text| warning(text))
                .for_each(|value| {
                    response.headers_mut().append(header::WARNING, value);
                });
            response
        }
        Answer::List { items, revision } => json(StatusCode::OK, &shape.list(&items, revision)),
        Answer::Status { status, .. } => json(StatusCode::OK, &status),
        Answer::Plain(value) => json(StatusCode::OK, &value),
        Answer::Text(text) => with_body(StatusCode::OK, "text/plain", text.into()),
        Answer::Watch(body) => with_body(StatusCode::OK, "application/json", body),
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
    with_body(
        status,
        "application/json",
        Bytes::from(value.to_string()).into(),
    )
}

pub(crate) fn with_body(status: StatusCode, content_type: &'static str, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
