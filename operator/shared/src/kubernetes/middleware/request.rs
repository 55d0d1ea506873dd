//! Verb and resource of a request, read from its method and path (Kubernetes API concepts, resource
//! URIs).

use http::{Method, Request};

use super::Verb;

/// Resources that the operator uses. Any other is `other`, so that the labels stay few.
const RESOURCES: [&str; 13] = [
    "configmaps",
    "customresourcedefinitions",
    "events",
    "leases",
    "namespaces",
    "networkpolicies",
    "nodes",
    "persistentvolumeclaims",
    "pods",
    "runtimeclasses",
    "sandboxes",
    "sandboxpools",
    "secrets",
];

/// Verb and resource of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ApiRequest {
    pub(super) verb: Verb,
    pub(super) resource: &'static str,
}

impl ApiRequest {
    pub(super) fn read<B>(request: &Request<B>) -> Self {
        let (resource, named) = target(request.uri().path());
        let watches = request.uri().query().is_some_and(is_watch);
        let verb = match *request.method() {
            Method::GET if watches => Verb::Watch,
            Method::GET if named => Verb::Get,
            Method::GET => Verb::List,
            Method::POST => Verb::Create,
            Method::PUT => Verb::Update,
            Method::PATCH => Verb::Patch,
            Method::DELETE => Verb::Delete,
            _ => Verb::Other,
        };
        Self { verb, resource }
    }

    /// Returns whether the request belongs to a watch.
    pub(super) fn is_list_or_watch(self) -> bool {
        matches!(self.verb, Verb::List | Verb::Watch)
    }
}

/// Resource of a path, and whether the path names one object.
fn target(path: &str) -> (&'static str, bool) {
    let mut parts = path.split('/').filter(|part| !part.is_empty());
    // `/api/v1/...` or `/apis/group/version/...`, possibly below a prefix of the server.
    let skip = match parts.find(|part| matches!(*part, "api" | "apis")) {
        Some("api") => 1,
        Some(_) => 2,
        None => return ("other", true),
    };
    let mut rest = parts.skip(skip).peekable();
    let mut resource = rest.next().unwrap_or_default();
    if resource == "namespaces" {
        let namespace = rest.next();
        match rest.next() {
            Some(inner) => resource = inner,
            None => return ("namespaces", namespace.is_some()),
        }
    }
    (known_resource(resource), rest.next().is_some())
}

/// Label of a resource.
pub(super) fn known_resource(plural: &str) -> &'static str {
    let known = RESOURCES.iter().find(|known| **known == plural);
    known.copied().unwrap_or("other")
}

fn is_watch(query: &str) -> bool {
    let mut pairs = query.split('&');
    pairs.any(|pair| matches!(pair, "watch" | "watch=1" | "watch=true"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verb_and_resource_follow_api_conventions() {
        let read = |method: &str, uri: &str| {
            let request = Request::builder().method(method).uri(uri).body(()).unwrap();
            let api_request = ApiRequest::read(&request);
            (api_request.verb, api_request.resource)
        };
        let sandboxes = "/apis/openhands.dev/v1alpha1/namespaces/ns/sandboxes";
        assert_eq!(
            read("GET", "/api/v1/pods?watch=true&limit=1"),
            (Verb::Watch, "pods")
        );
        assert_eq!(read("GET", "/api/v1/pods?&limit=1"), (Verb::List, "pods"));
        assert_eq!(
            read("GET", "/api/v1/namespaces/ns/secrets/a?"),
            (Verb::Get, "secrets")
        );
        assert_eq!(
            read("GET", "/api/v1/namespaces"),
            (Verb::List, "namespaces")
        );
        assert_eq!(
            read("GET", "/api/v1/namespaces/ns"),
            (Verb::Get, "namespaces")
        );
        assert_eq!(read("POST", sandboxes), (Verb::Create, "sandboxes"));
        let status = format!("{sandboxes}/a/status?fieldManager=m");
        assert_eq!(read("PATCH", &status), (Verb::Patch, "sandboxes"));
        assert_eq!(
            read("DELETE", &format!("{sandboxes}/a")),
            (Verb::Delete, "sandboxes")
        );
        assert_eq!(
            read("GET", "/api/v1/namespaces/ns/widgets"),
            (Verb::List, "other")
        );
        assert_eq!(read("GET", "/prefix/api/v1/pods"), (Verb::List, "pods"));
        assert_eq!(read("GET", "/version"), (Verb::Get, "other"));
    }
}
