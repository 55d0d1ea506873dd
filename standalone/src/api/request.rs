//! Parsing of HTTP requests: verb, resource, options, body and response format. Later stages do not
//! read URLs or headers.

mod accept;
mod body;
mod options;
mod path;

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method, header};
use serde_json::Value;

pub(crate) use accept::{ResponseFormat, negotiate};
pub(crate) use body::{json_object, yaml_object};
pub(crate) use options::{FieldValidation, RequestOptions};
pub use path::Subresource;
pub(crate) use path::Target;

use super::{error::ApiError, registry::Registry};

/// Verb of a request, named as in RBAC rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verb {
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
    pub fn is_write(self) -> bool {
        !matches!(self, Self::Get | Self::List | Self::Watch)
    }
}

/// Parsed request for a resource.
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
    pub(crate) fn parse(
        registry: &Arc<Registry>,
        parts: &http::request::Parts,
        body: Bytes,
    ) -> Result<Self, ApiError> {
        let target = Target::parse(registry, parts.uri.path())?;
        let options = RequestOptions::parse(&parts.uri)?;
        options.selector.check_fields(&target.kind.selectable)?;
        Ok(Self {
            verb: verb(&parts.method, &target, &options)?,
            target,
            options,
            format: negotiate(&text(&parts.headers, header::ACCEPT))?,
            content_type: content_type(&parts.headers),
            user_agent: text(&parts.headers, header::USER_AGENT),
            body,
        })
    }

    /// The object in the body.
    pub(crate) fn decode_body(&self) -> Result<Value, ApiError> {
        body::decode(&self.content_type, &self.body)
    }

    /// Field manager, or the product token of the user agent.
    pub(crate) fn manager(&self) -> &str {
        let agent = self
            .user_agent
            .split('/')
            .next()
            .filter(|agent| !agent.is_empty())
            .unwrap_or("unknown");
        self.options.field_manager.as_deref().unwrap_or(agent)
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

fn text(headers: &HeaderMap, name: header::HeaderName) -> String {
    headers
        .get(name)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default()
        .to_owned()
}

fn content_type(headers: &HeaderMap) -> String {
    let value = text(headers, header::CONTENT_TYPE);
    value
        .split(';')
        .next()
        .unwrap_or_default()
        .trim()
        .to_ascii_lowercase()
}
