//! Content negotiation: JSON, a table for kubectl, or metadata only.

use crate::api::error::ApiError;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResponseFormat {
    Json,
    Table,
    Partial,
}

/// The first acceptable media type.
pub(crate) fn negotiate(accept: &str) -> Result<ResponseFormat, ApiError> {
    if accept.trim().is_empty() {
        return Ok(ResponseFormat::Json);
    }
    accept
        .split(',')
        .find_map(format)
        .ok_or(ApiError::NotAcceptable)
}

fn format(media: &str) -> Option<ResponseFormat> {
    let mut parts = media.split(';').map(str::trim);
    let json = matches!(
        parts.next()?,
        "application/json" | "application/*" | "*/*" | "text/plain" | "application/yaml"
    );
    let representation = parts.find_map(|part| part.strip_prefix("as="));
    match representation {
        _ if !json => None,
        None => Some(ResponseFormat::Json),
        Some("Table") => Some(ResponseFormat::Table),
        Some("PartialObjectMetadata" | "PartialObjectMetadataList") => {
            Some(ResponseFormat::Partial)
        }
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn negotiate_takes_first_supported_type() {
        let format = |accept: &str| negotiate(accept).ok();
        assert_eq!(format(""), Some(ResponseFormat::Json));
        assert_eq!(
            format("application/json;as=Table;v=v1;g=meta.k8s.io,application/json"),
            Some(ResponseFormat::Table)
        );
        assert_eq!(
            format("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"),
            Some(ResponseFormat::Partial)
        );
        assert_eq!(
            format("application/vnd.kubernetes.protobuf, application/json"),
            Some(ResponseFormat::Json)
        );
        assert_eq!(format("application/vnd.kubernetes.protobuf"), None);
    }
}
