//! Errors of requests and their Kubernetes Status. Clients branch on code and reason and people
//! search for the message, so all three follow the real server.

use http::StatusCode;
use serde::Serialize;
use serde_json::{Value, json};

use super::store::JournalError;

#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum ApiError {
    #[error("{} \"{name}\" not found", .of.qualified())]
    NotFound { of: QualifiedName, name: String },
    #[error("the server could not find the requested resource")]
    UnknownPath,
    #[error("{} \"{name}\" already exists", .of.qualified())]
    AlreadyExists { of: QualifiedName, name: String },
    #[error("Operation cannot be fulfilled on {} \"{name}\": {message}", .of.qualified())]
    Conflict {
        of: QualifiedName,
        name: String,
        message: String,
    },
    #[error("{} \"{name}\" is invalid: {}", .kind.qualified(), join(.causes))]
    Invalid {
        kind: QualifiedName,
        name: String,
        causes: Vec<Cause>,
    },
    /// JSON patch whose operations do not fit the object.
    #[error("{0}")]
    Unprocessable(String),
    #[error("{0}")]
    BadRequest(String),
    #[error("{0}")]
    Forbidden(String),
    #[error("{0}")]
    Expired(String),
    #[error("the server does not allow this method on the requested resource")]
    MethodNotAllowed,
    #[error("the body of the request was in an unknown format - accepted media types include: {0}")]
    UnsupportedMediaType(String),
    #[error("only the following media types are accepted: application/json")]
    NotAcceptable,
    #[error("{0}")]
    TooManyRequests(String),
    #[error("Request entity too large: limit is {0}")]
    TooLarge(usize),
    #[error("{0}")]
    Internal(String),
    /// An apply that would change fields of other managers.
    #[error("{}", apply_conflict(.0))]
    ApplyConflict(Vec<Cause>),
}

impl From<JournalError> for ApiError {
    fn from(error: JournalError) -> Self {
        tracing::error!(%error, "cannot store a change");
        Self::Internal(error.to_string())
    }
}

/// Resource or kind with its API group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct QualifiedName {
    pub(crate) group: String,
    pub(crate) item: String,
}

impl QualifiedName {
    pub(crate) fn qualified(&self) -> String {
        if self.group.is_empty() {
            self.item.clone()
        } else {
            format!("{}.{}", self.item, self.group)
        }
    }
}

/// One invalid field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Cause {
    pub(crate) reason: CauseReason,
    pub(crate) field: String,
    pub(crate) message: String,
}

/// Reason of a cause, as the server names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[allow(clippy::enum_variant_names, reason = "names of Kubernetes")]
pub(crate) enum CauseReason {
    FieldValueRequired,
    FieldValueInvalid,
    FieldValueTypeInvalid,
    FieldValueNotSupported,
    FieldValueDuplicate,
    FieldValueTooLong,
    FieldValueTooMany,
    FieldValueForbidden,
    FieldManagerConflict,
}

impl Cause {
    pub(crate) fn new(
        reason: CauseReason,
        field: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        Self {
            reason,
            field: field.into(),
            message: message.into(),
        }
    }

    pub(crate) fn required(field: impl Into<String>) -> Self {
        Self::new(CauseReason::FieldValueRequired, field, "Required value")
    }

    pub(crate) fn duplicate(field: impl Into<String>, value: &str) -> Self {
        let message = format!("Duplicate value: {value}");
        Self::new(CauseReason::FieldValueDuplicate, field, message)
    }

    /// `Invalid value: …: why`, the most common shape.
    pub(crate) fn invalid(
        field: impl Into<String>,
        value: impl Into<Value>,
        message: &str,
    ) -> Self {
        let message = format!("Invalid value: {}: {message}", value.into());
        Self::new(CauseReason::FieldValueInvalid, field, message)
    }
}

fn join(causes: &[Cause]) -> String {
    let lines = causes
        .iter()
        .map(|cause| format!("{}: {}", cause.field, cause.message));
    let lines: Vec<_> = lines.collect();
    match lines.as_slice() {
        [line] => line.clone(),
        lines => format!("[{}]", lines.join(", ")),
    }
}

fn apply_conflict(causes: &[Cause]) -> String {
    let lines = causes
        .iter()
        .map(|cause| format!("{}: {}", cause.message, cause.field));
    let lines: Vec<_> = lines.collect();
    let plural = if lines.len() == 1 { "" } else { "s" };
    format!(
        "Apply failed with {} conflict{plural}: {}",
        lines.len(),
        lines.join(", ")
    )
}

impl ApiError {
    pub(crate) fn code(&self) -> StatusCode {
        self.code_and_reason().0
    }

    fn code_and_reason(&self) -> (StatusCode, &'static str) {
        match self {
            Self::NotFound { .. } | Self::UnknownPath => (StatusCode::NOT_FOUND, "NotFound"),
            Self::AlreadyExists { .. } => (StatusCode::CONFLICT, "AlreadyExists"),
            Self::Conflict { .. } | Self::ApplyConflict(_) => (StatusCode::CONFLICT, "Conflict"),
            Self::Invalid { .. } | Self::Unprocessable(_) => {
                (StatusCode::UNPROCESSABLE_ENTITY, "Invalid")
            }
            Self::BadRequest(_) => (StatusCode::BAD_REQUEST, "BadRequest"),
            Self::Forbidden(_) => (StatusCode::FORBIDDEN, "Forbidden"),
            Self::Expired(_) => (StatusCode::GONE, "Expired"),
            Self::MethodNotAllowed => (StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed"),
            Self::UnsupportedMediaType(_) => {
                (StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType")
            }
            Self::TooManyRequests(_) => (StatusCode::TOO_MANY_REQUESTS, "TooManyRequests"),
            Self::NotAcceptable => (StatusCode::NOT_ACCEPTABLE, "NotAcceptable"),
            Self::TooLarge(_) => (StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge"),
            Self::Internal(_) => (StatusCode::INTERNAL_SERVER_ERROR, "InternalError"),
        }
    }

    /// Kubernetes Status of this error.
    pub(crate) fn to_status(&self) -> Value {
        let (code, reason) = self.code_and_reason();
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.to_string(), "reason": reason, "code": code.as_u16(),
        });
        match self {
            Self::NotFound { of, name }
            | Self::AlreadyExists { of, name }
            | Self::Conflict { of, name, .. } => {
                status["details"] = json!({"name": name, "group": of.group, "kind": of.item});
            }
            Self::Invalid { kind, name, causes } => {
                status["details"] = json!({"name": name, "group": kind.group, "kind": kind.item,
                    "causes": causes});
            }
            Self::ApplyConflict(causes) => status["details"] = json!({"causes": causes}),
            _ => {}
        }
        status
    }
}
