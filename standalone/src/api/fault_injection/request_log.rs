//! Recorded requests, so that tests can assert which component wrote.

use http::StatusCode;

use crate::api::request::{Request, Subresource, Verb};

/// Request without its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestInfo {
    pub verb: Verb,
    pub group: String,
    /// Plural name, such as `pods`.
    pub resource: String,
    pub subresource: Option<Subresource>,
    pub namespace: Option<String>,
    /// Absent for collections and for names that the server generates.
    pub name: Option<String>,
    /// Field manager, or the product token of the user agent.
    pub manager: String,
    pub user_agent: String,
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
    pub(crate) fn of(request: &Request) -> Self {
        let target = &request.target;
        Self {
            verb: request.verb,
            group: target.kind.group.clone(),
            resource: target.kind.plural.clone(),
            subresource: target.subresource,
            namespace: target.namespace.clone(),
            name: target.name.clone().or_else(|| body_name(request)),
            manager: request.manager().to_owned(),
            user_agent: request.user_agent.clone(),
        }
    }

    pub fn is_write(&self) -> bool {
        self.verb.is_write()
    }
}

/// Name in the body of a create request.
fn body_name(request: &Request) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Named {
        metadata: Name,
    }
    #[derive(serde::Deserialize)]
    struct Name {
        name: Option<String>,
    }
    if request.verb != Verb::Create {
        return None;
    }
    serde_json::from_slice::<Named>(&request.body)
        .ok()?
        .metadata
        .name
}
