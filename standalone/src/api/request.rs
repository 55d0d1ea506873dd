//! From an HTTP request to what it asks for: a verb on a resource, options, and the form of the answer. Nothing below
//! here looks at URLs or headers again.

mod accept;
mod options;
mod path;

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method, header};

pub(crate) use accept::{Form, negotiate};
pub(crate) use options::{FieldValidation, Options};
pub use path::Subresource;
pub(crate) use path::Target;

use super::{error::ApiError, registry::Registry};

/// What a request does, by the names that access rules use for it.
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

/// A request about a resource.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) verb: Verb,
    pub(crate) target: Target,
    pub(crate) options: Options,
    pub(crate) form: Form,
    /// Without parameters.
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
        let options = Options::parse(&parts.uri)?;
        Ok(Self {
            verb: verb(&parts.method, &target, &options)?,
            target,
            options,
            form: negotiate(&text(&parts.headers, header::ACCEPT))?,
            content_type: content_type(&parts.headers),
            user_agent: text(&parts.headers, header::USER_AGENT),
            body,
        })
    }

    /// Who writes: the field manager, or the first word of the user agent.
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

fn verb(method: &Method, target: &Target, options: &Options) -> Result<Verb, ApiError> {
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
