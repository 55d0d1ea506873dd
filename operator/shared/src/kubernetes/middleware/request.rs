//! Verb and resource of a request, read from its method and path (Kubernetes API concepts, resource
//! URIs).

use http::{Method, Request, Uri};

/// Resources that the operator uses. Any other is `other`, so that the labels stay few.
const RESOURCES: [&str; 15] = [
    "configmaps",
    "customresourcedefinitions",
    "events",
    "imagebuilds",
    "leases",
    "namespaces",
    "networkpolicies",
    "nodes",
    "persistentvolumeclaims",
    "pods",
    "runtimeclasses",
    "sandboxes",
    "sandboxpools",
    "sandboxsnapshots",
    "secrets",
];

/// Verb and resource of a request, as RBAC and metrics name them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ApiRequest {
    pub(super) verb: &'static str,
    pub(super) resource: &'static str,
    /// The response is a log, and goes on with the container.
    pub(super) is_followed_log: bool,
}

impl ApiRequest {
    pub(super) fn read<B>(request: &Request<B>) -> Self {
        let (resource, named) = target(request.uri().path());
        let watches = request.uri().query().is_some_and(is_watch);
        let verb = match *request.method() {
            Method::GET if watches => "watch",
            Method::GET if named => "get",
            Method::GET => "list",
            Method::POST => "create",
            Method::PUT => "update",
            Method::PATCH => "patch",
            Method::DELETE => "delete",
            _ => "other",
        };
        Self {
            verb,
            resource,
            is_followed_log: is_followed_log(request.uri()),
        }
    }

    /// Returns whether the request belongs to a watch.
    pub(super) fn is_list_or_watch(self) -> bool {
        matches!(self.verb, "list" | "watch")
    }

    pub(super) fn is_write(self) -> bool {
        matches!(self.verb, "create" | "update" | "patch" | "delete")
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

/// Name of a resource in health and metrics: its plural, or `other`.
pub fn known_resource(plural: &str) -> &'static str {
    let known = RESOURCES.iter().find(|known| **known == plural);
    known.copied().unwrap_or("other")
}

fn is_watch(query: &str) -> bool {
    let mut pairs = query.split('&');
    pairs.any(|pair| matches!(pair, "watch" | "watch=1" | "watch=true"))
}

fn is_followed_log(uri: &Uri) -> bool {
    let mut pairs = uri.query().unwrap_or_default().split('&');
    uri.path().ends_with("/log") && pairs.any(|pair| pair == "follow=true")
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
        let (one, status) = (
            format!("{sandboxes}/a"),
            format!("{sandboxes}/a/status?x=y"),
        );
        for (method, uri, expected) in [
            ("GET", "/api/v1/pods?watch=true&limit=1", ("watch", "pods")),
            ("GET", "/api/v1/pods?&limit=1", ("list", "pods")),
            (
                "GET",
                "/api/v1/namespaces/ns/secrets/a?",
                ("get", "secrets"),
            ),
            ("GET", "/api/v1/namespaces", ("list", "namespaces")),
            ("GET", "/api/v1/namespaces/ns", ("get", "namespaces")),
            ("POST", sandboxes, ("create", "sandboxes")),
            ("PATCH", &status, ("patch", "sandboxes")),
            ("DELETE", &one, ("delete", "sandboxes")),
            ("GET", "/api/v1/namespaces/ns/widgets", ("list", "other")),
            ("GET", "/prefix/api/v1/pods", ("list", "pods")),
            ("GET", "/version", ("get", "other")),
        ] {
            assert_eq!(read(method, uri), expected, "{method} {uri}");
        }
    }
}
