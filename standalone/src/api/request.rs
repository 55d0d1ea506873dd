//! Parsing of HTTP requests: verb, resource, options, body and response format. Later stages do not
//! read URLs or headers.

mod options;
mod path;

use bytes::Bytes;
use http::{HeaderMap, Method, header, request::Parts};
use serde_json::Value;

pub(crate) use options::{FieldValidation, RequestOptions};
pub(crate) use path::{Subresource, Target};

use super::{error::ApiError, protobuf, registry::Registry};

/// Verb of a request, named as in RBAC rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Get,
    List,
    Watch,
    Create,
    Update,
    Patch,
    Delete,
    DeleteCollection,
}

impl Verb {
    pub(crate) fn is_write(self) -> bool {
        !matches!(self, Self::Get | Self::List | Self::Watch)
    }
}

/// Representation of objects in a response: JSON, a table for kubectl, or metadata only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResponseFormat {
    Json,
    Table,
    Partial,
}

#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) verb: Verb,
    pub(crate) target: Target,
    pub(crate) options: RequestOptions,
    pub(crate) format: ResponseFormat,
    /// Media type without parameters.
    pub(crate) content_type: String,
    pub(crate) user_agent: String,
    pub(crate) body: Bytes,
}

impl Request {
    pub(crate) fn parse(registry: &Registry, parts: &Parts, body: Bytes) -> Result<Self, ApiError> {
        let target = Target::parse(registry, parts.uri.path())?;
        let options = RequestOptions::parse(&parts.uri)?;
        options.selector.check_fields(&target.kind.selectable)?;
        let verb = verb(&parts.method, &target, &options)?;
        let format = negotiate(text(&parts.headers, header::ACCEPT))?;
        let media_type = text(&parts.headers, header::CONTENT_TYPE).split(';').next();
        Ok(Self {
            verb,
            format: match target.subresource {
                None => format,
                Some(_) => ResponseFormat::Json,
            },
            target,
            options,
            content_type: media_type.unwrap_or_default().trim().to_ascii_lowercase(),
            user_agent: text(&parts.headers, header::USER_AGENT).to_owned(),
            body,
        })
    }

    /// True if the response is a WebSocket session with a Pod.
    pub(crate) fn is_session(&self) -> bool {
        use Subresource::{Attach, Exec, PortForward};
        matches!(self.target.subresource, Some(Exec | Attach | PortForward))
    }

    pub(crate) fn decode_body(&self) -> Result<Value, ApiError> {
        match self.content_type.as_str() {
            "" | "application/json" => json_object(&self.body),
            "application/yaml" => yaml_object(&self.body),
            protobuf::MEDIA_TYPE => protobuf::decode(&self.body),
            _ => Err(ApiError::UnsupportedMediaType(
                "application/json, application/yaml".to_owned(),
            )),
        }
    }

    /// Field manager, or the product token of the user agent.
    pub(crate) fn manager(&self) -> &str {
        let agent = self.user_agent.split('/').next();
        let agent = agent.filter(|agent| !agent.is_empty());
        let manager = self.options.field_manager.as_deref().or(agent);
        manager.unwrap_or("unknown")
    }
}

fn verb(method: &Method, target: &Target, options: &RequestOptions) -> Result<Verb, ApiError> {
    let named = target.name.is_some();
    match *method {
        Method::GET | Method::HEAD if named => Ok(Verb::Get),
        Method::GET if options.watch => Ok(Verb::Watch),
        Method::GET | Method::HEAD => Ok(Verb::List),
        Method::POST if !named || target.subresource.is_some() => Ok(Verb::Create),
        Method::PUT if named => Ok(Verb::Update),
        Method::PATCH if named => Ok(Verb::Patch),
        Method::DELETE if named => Ok(Verb::Delete),
        Method::DELETE => Ok(Verb::DeleteCollection),
        _ => Err(ApiError::MethodNotAllowed),
    }
}

fn text(headers: &HeaderMap, name: header::HeaderName) -> &str {
    let value = headers.get(name);
    value
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default()
}

/// The first acceptable media type.
fn negotiate(accept: &str) -> Result<ResponseFormat, ApiError> {
    if accept.trim().is_empty() {
        return Ok(ResponseFormat::Json);
    }
    let format = accept.split(',').find_map(response_format);
    format.ok_or(ApiError::NotAcceptable)
}

fn response_format(media: &str) -> Option<ResponseFormat> {
    let mut parts = media.split(';').map(str::trim);
    let json = matches!(
        parts.next()?,
        "application/json" | "application/*" | "*/*" | "text/plain" | "application/yaml"
    );
    match parts.find_map(|part| part.strip_prefix("as=")) {
        _ if !json => None,
        None => Some(ResponseFormat::Json),
        Some("Table") => Some(ResponseFormat::Table),
        Some("PartialObjectMetadata" | "PartialObjectMetadataList") => {
            Some(ResponseFormat::Partial)
        }
        Some(_) => None,
    }
}

pub(crate) fn json_object(body: &[u8]) -> Result<Value, ApiError> {
    check_object(serde_json::from_slice(body).map_err(|error| unrecognized(&error))?)
}

/// Parses a YAML or JSON object.
pub(crate) fn yaml_object(body: &[u8]) -> Result<Value, ApiError> {
    json_object(body).or_else(|_| {
        let value = serde_yaml::from_slice(body);
        check_object(
            value.map_err(|error| ApiError::BadRequest(format!("error decoding YAML: {error}")))?,
        )
    })
}

/// Error of a body that is not the JSON that it has to be.
pub(crate) fn unrecognized(error: &serde_json::Error) -> ApiError {
    ApiError::BadRequest(format!("the object provided is unrecognized: {error}"))
}

fn check_object(value: Value) -> Result<Value, ApiError> {
    if value.is_object() {
        Ok(value)
    } else {
        Err(ApiError::BadRequest(
            "the body must be an object".to_owned(),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn negotiate_takes_first_supported_type() {
        let partial = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
        let protobuf = "application/vnd.kubernetes.protobuf";
        for (accept, format) in [
            ("", Some(ResponseFormat::Json)),
            (table, Some(ResponseFormat::Table)),
            (partial, Some(ResponseFormat::Partial)),
            (
                &format!("{protobuf}, application/json"),
                Some(ResponseFormat::Json),
            ),
            (protobuf, None),
        ] {
            assert_eq!(negotiate(accept).ok(), format, "{accept}");
        }
    }
}
