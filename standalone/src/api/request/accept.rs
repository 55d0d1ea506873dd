//! The form of an answer: plain JSON, a table for kubectl, or metadata only for watchers that need no more.

use crate::api::error::ApiError;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Json,
    Table,
    Partial,
}

/// The first media type of an `Accept` header that can be produced.
pub(crate) fn negotiate(accept: &str) -> Result<Form, ApiError> {
    if accept.trim().is_empty() {
        return Ok(Form::Json);
    }
    accept
        .split(',')
        .find_map(form)
        .ok_or(ApiError::NotAcceptable)
}

fn form(media: &str) -> Option<Form> {
    let mut parts = media.split(';').map(str::trim);
    let json = matches!(
        parts.next()?,
        "application/json" | "application/*" | "*/*" | "text/plain" | "application/yaml"
    );
    let shape = parts.find_map(|part| part.strip_prefix("as="));
    match shape {
        _ if !json => None,
        None => Some(Form::Json),
        Some("Table") => Some(Form::Table),
        Some("PartialObjectMetadata" | "PartialObjectMetadataList") => Some(Form::Partial),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_producible_form_wins() {
        let form = |accept: &str| negotiate(accept).ok();
        assert_eq!(form(""), Some(Form::Json));
        assert_eq!(
            form("application/json;as=Table;v=v1;g=meta.k8s.io,application/json"),
            Some(Form::Table)
        );
        assert_eq!(
            form("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"),
            Some(Form::Partial)
        );
        assert_eq!(
            form("application/vnd.kubernetes.protobuf, application/json"),
            Some(Form::Json)
        );
        assert_eq!(form("application/vnd.kubernetes.protobuf"), None);
    }
}
