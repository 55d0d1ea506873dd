//! Errors of requests and their Kubernetes Status. Clients branch on code and reason and people
//! search for the message, so all three follow the real server.

use http::StatusCode;
use serde_json::{Value, json};

use super::store::JournalError;

/// Error of a request.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ApiError {
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
    #[error("Request entity too large: limit is {0}")]
    TooLarge(usize),
    #[error("{0}")]
    Internal(String),
    /// An apply that would change fields of other managers.
    #[error("{}", apply_conflict(.0))]
    ApplyConflict(Vec<Cause>),
}

/// Broken connection: the outcome of the request is unknown.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("connection reset by the embedded API")]
pub struct Disconnected;

impl From<JournalError> for ApiError {
    fn from(error: JournalError) -> Self {
        tracing::error!(%error, "cannot store a change");
        Self::Internal(error.to_string())
    }
}

/// Resource or kind with its API group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QualifiedName {
    pub group: String,
    pub item: String,
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    pub reason: CauseReason,
    pub field: String,
    pub message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CauseReason {
    Required,
    Invalid,
    TypeInvalid,
    NotSupported,
    Duplicate,
    TooLong,
    TooMany,
    Forbidden,
    FieldManagerConflict,
}

impl CauseReason {
    fn name(self) -> &'static str {
        match self {
            Self::Required => "FieldValueRequired",
            Self::Invalid => "FieldValueInvalid",
            Self::TypeInvalid => "FieldValueTypeInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Duplicate => "FieldValueDuplicate",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::Forbidden => "FieldValueForbidden",
            Self::FieldManagerConflict => "FieldManagerConflict",
        }
    }
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

    /// `Invalid value: …: why`, the most common shape.
    pub(crate) fn invalid(field: impl Into<String>, value: &Value, message: &str) -> Self {
        Self::new(
            CauseReason::Invalid,
            field,
            format!("Invalid value: {value}: {message}"),
        )
    }
}

fn join(causes: &[Cause]) -> String {
    let lines: Vec<_> = causes
        .iter()
        .map(|cause| format!("{}: {}", cause.field, cause.message))
        .collect();
    if lines.len() == 1 {
        lines.concat()
    } else {
        format!("[{}]", lines.join(", "))
    }
}

impl ApiError {
    pub(crate) fn code(&self) -> StatusCode {
        match self {
            Self::NotFound { .. } | Self::UnknownPath => StatusCode::NOT_FOUND,
            Self::AlreadyExists { .. } | Self::Conflict { .. } | Self::ApplyConflict(_) => {
                StatusCode::CONFLICT
            }
            Self::Invalid { .. } | Self::Unprocessable(_) => StatusCode::UNPROCESSABLE_ENTITY,
            Self::BadRequest(_) => StatusCode::BAD_REQUEST,
            Self::Forbidden(_) => StatusCode::FORBIDDEN,
            Self::Expired(_) => StatusCode::GONE,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::UnsupportedMediaType(_) => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::NotAcceptable => StatusCode::NOT_ACCEPTABLE,
            Self::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Internal(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::NotFound { .. } | Self::UnknownPath => "NotFound",
            Self::AlreadyExists { .. } => "AlreadyExists",
            Self::Conflict { .. } | Self::ApplyConflict(_) => "Conflict",
            Self::Invalid { .. } | Self::Unprocessable(_) => "Invalid",
            Self::BadRequest(_) => "BadRequest",
            Self::Forbidden(_) => "Forbidden",
            Self::Expired(_) => "Expired",
            Self::MethodNotAllowed => "MethodNotAllowed",
            Self::UnsupportedMediaType(_) => "UnsupportedMediaType",
            Self::NotAcceptable => "NotAcceptable",
            Self::TooLarge(_) => "RequestEntityTooLarge",
            Self::Internal(_) => "InternalError",
        }
    }

    /// Kubernetes Status of this error.
    pub fn to_status(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.to_string(), "reason": self.reason(), "code": self.code().as_u16(),
        });
        if let Some(details) = self.details() {
            status["details"] = details;
        }
        status
    }

    fn details(&self) -> Option<Value> {
        match self {
            Self::NotFound { of, name }
            | Self::AlreadyExists { of, name }
            | Self::Conflict { of, name, .. } => {
                Some(json!({"name": name, "group": of.group, "kind": of.item}))
            }
            Self::Invalid { kind, name, causes } => Some(json!({
                "name": name, "group": kind.group, "kind": kind.item,
                "causes": causes.iter().map(describe).collect::<Vec<_>>(),
            })),
            Self::ApplyConflict(causes) => {
                Some(json!({"causes": causes.iter().map(describe).collect::<Vec<_>>()}))
            }
            _ => None,
        }
    }
}

fn describe(cause: &Cause) -> Value {
    json!({"reason": cause.reason.name(), "field": cause.field, "message": cause.message})
}

fn apply_conflict(causes: &[Cause]) -> String {
    let plural = if causes.len() == 1 { "" } else { "s" };
    let lines: Vec<_> = causes
        .iter()
        .map(|cause| format!("{}: {}", cause.message, cause.field))
        .collect();
    let (count, lines) = (causes.len(), lines.join(", "));
    format!("Apply failed with {count} conflict{plural}: {lines}")
}

/// Status of a completed deletion.
pub(crate) fn success(details: &Value) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
        "details": details})
}
