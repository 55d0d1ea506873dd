//! Writer and verb of a request, so that tests can assert which component wrote.

use http::{Method, StatusCode, header, request::Parts};
use serde_json::Value;

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

/// Request without its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestInfo {
    pub verb: Verb,
    /// Plural name, such as `pods`.
    pub resource: String,
    pub subresource: Option<String>,
    /// Absent for collections and for names that the server generates.
    pub name: Option<String>,
    /// Field manager, or the product token of the user agent.
    pub manager: String,
    pub user_agent: String,
    /// True for a watch from a revision, which has no initial objects.
    pub(super) is_resumed: bool,
}

/// Write request and its outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    pub request: RequestInfo,
    pub status: StatusCode,
    /// False for failures, dry runs and writes that changed nothing.
    pub changed: bool,
}

impl RequestInfo {
    pub fn is_write(&self) -> bool {
        !matches!(self.verb, Verb::Get | Verb::List | Verb::Watch)
    }

    pub(super) fn parse(parts: &Parts, body: &[u8]) -> Self {
        let segments: Vec<_> = parts.uri.path().trim_matches('/').split('/').collect();
        let rest = match segments.as_slice() {
            ["api", _, "namespaces", _, rest @ ..] | ["apis", _, _, "namespaces", _, rest @ ..]
                if !rest.is_empty() =>
            {
                rest
            }
            ["api", _, rest @ ..] | ["apis", _, _, rest @ ..] => rest,
            other => other,
        };
        let text = |at: usize| rest.get(at).map(|&segment| segment.to_owned());
        let query = parts.uri.query().unwrap_or_default();
        let parameter = |name: &str| {
            let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            let found = pairs.find(|(key, _)| *key == name);
            found.map(|(_, value)| value.to_owned())
        };
        let is_watch = matches!(parameter("watch").as_deref(), Some("true" | "1"));
        let name = text(1);
        let verb = match parts.method {
            Method::POST => Verb::Create,
            Method::PUT => Verb::Update,
            Method::PATCH => Verb::Patch,
            Method::DELETE if name.is_some() => Verb::Delete,
            Method::DELETE => Verb::DeleteCollection,
            _ if name.is_some() => Verb::Get,
            _ if is_watch => Verb::Watch,
            _ => Verb::List,
        };
        let in_body = || {
            let body: Value = serde_json::from_slice(body).ok()?;
            Some(body["metadata"]["name"].as_str()?.to_owned())
        };
        let user_agent = parts.headers.get(header::USER_AGENT);
        let user_agent = user_agent
            .and_then(|agent| agent.to_str().ok())
            .unwrap_or_default();
        let product = user_agent.split('/').next().unwrap_or_default();
        let revision = parameter("resourceVersion").unwrap_or_default();
        Self {
            verb,
            resource: text(0).unwrap_or_default(),
            subresource: text(2),
            name: name.or_else(in_body),
            manager: parameter("fieldManager").unwrap_or_else(|| product.to_owned()),
            user_agent: user_agent.to_owned(),
            is_resumed: !matches!(revision.as_str(), "" | "0")
                && parameter("sendInitialEvents").as_deref() != Some("true"),
        }
    }
}
