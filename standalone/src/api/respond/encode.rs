//! Answers on the wire: the object in the form the client asked for, warnings as headers.

use std::{borrow::Cow, sync::Arc};

use axum::{body::Body, response::Response};
use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use jiff::Timestamp;
use serde::Serialize;
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
    pub(crate) fn object<'a>(&self, stored: &'a Value, headers: bool) -> Cow<'a, Value> {
        match self.form {
            Form::Json => view(&self.kind, stored),
            Form::Partial => Cow::Owned(table::partial(stored)),
            Form::Table => {
                let revision = object::resource_version(stored).unwrap_or_default();
                let object = view(&self.kind, stored);
                let meta = json!({"resourceVersion": revision});
                Cow::Owned(self.table(&[object], &meta, headers))
            }
        }
    }

    fn list(&self, items: &[Arc<Value>], revision: u64, proceed: Option<&str>) -> Bytes {
        let mut meta = json!({"resourceVersion": revision.to_string()});
        if let Some(proceed) = proceed {
            meta["continue"] = json!(proceed);
        }
        let items: Vec<_> = items.iter().map(|item| view(&self.kind, item)).collect();
        match self.form {
            Form::Json => bytes(&List::new(
                &self.kind.api_version(),
                format!("{}List", self.kind.name),
                meta,
                &items,
            )),
            Form::Partial => {
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
            Form::Table => bytes(&self.table(&items, &meta, true)),
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

/// A list on the wire; it borrows its items, which may be many.
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

/// The object as this kind spells it.
pub(crate) fn view<'a>(kind: &Kind, stored: &'a Value) -> Cow<'a, Value> {
    kind.alias.as_ref().map_or(Cow::Borrowed(stored), |alias| {
        Cow::Owned((alias.from_stored)(stored))
    })
}

/// As JSON. Values always have string keys, so there is no failure to report.
pub(crate) fn bytes(value: &impl Serialize) -> Bytes {
    serde_json::to_vec(value).unwrap_or_default().into()
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
        Answer::List {
            items,
            revision,
            proceed,
        } => with_body(
            StatusCode::OK,
            "application/json",
            shape.list(&items, revision, proceed.as_deref()).into(),
        ),
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
