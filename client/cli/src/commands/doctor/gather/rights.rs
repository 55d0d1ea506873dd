//! Asks for the rights of the service accounts.

use futures::StreamExt as _;
use futures::stream;
use kube::Client;
use serde_json::json;

use super::super::facts::{Facts, Right};
use super::CONCURRENCY;
use crate::kubernetes;

/// The rights that the operator cannot do without: component, verb, API group, resource, name, and
/// true for the namespace of sandboxes.
const RIGHTS: [(&str, &str, &str, &str, &str, bool); 12] = [
    (
        "controller",
        "watch",
        "openhands.dev",
        "sandboxes",
        "",
        true,
    ),
    (
        "controller",
        "patch",
        "openhands.dev",
        "sandboxes/status",
        "",
        true,
    ),
    ("controller", "create", "", "pods", "", true),
    ("controller", "delete", "", "pods", "", true),
    (
        "controller",
        "create",
        "",
        "persistentvolumeclaims",
        "",
        true,
    ),
    ("controller", "create", "", "secrets", "", true),
    (
        "controller",
        "update",
        "coordination.k8s.io",
        "leases",
        "sandbox-operator-controller",
        false,
    ),
    (
        "controller",
        "get",
        "",
        "secrets",
        "sandbox-operator-root-key",
        false,
    ),
    ("gateway", "watch", "openhands.dev", "sandboxes", "", true),
    ("gateway", "create", "openhands.dev", "sandboxes", "", true),
    (
        "gateway",
        "get",
        "",
        "secrets",
        "sandbox-operator-root-key",
        false,
    ),
    ("gateway", "watch", "", "secrets", "sandbox-api-keys", false),
];

pub(super) async fn read(client: &Client, facts: &Facts) -> Vec<Right> {
    stream::iter(RIGHTS)
        .map(
            |(component, verb, group, resource, name, is_of_sandboxes)| async move {
                let own = Some(facts.namespace.as_str());
                // None asks for all namespaces.
                let namespace = if is_of_sandboxes {
                    facts.sandboxes.as_deref()
                } else {
                    own
                };
                let account = format!("{}-{component}", facts.name);
                let (kind, sub) = resource.split_once('/').unwrap_or((resource, ""));
                let user = format!("system:serviceaccount:{}:{account}", facts.namespace);
                let review = json!({"apiVersion": "authorization.k8s.io/v1",
                "kind": "SubjectAccessReview", "spec": {"user": user, "resourceAttributes":
                {"namespace": namespace.unwrap_or_default(), "verb": verb, "group": group,
                 "resource": kind, "subresource": sub, "name": name}}});
                let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
                let response = kubernetes::post(client, path, &review).await;
                let scope = namespace.unwrap_or("all namespaces");
                Right {
                    text: format!("{account}: {verb} {resource} {name}")
                        .trim_end()
                        .to_owned()
                        + " in "
                        + scope,
                    is_allowed: response.map(|review| review.body["status"]["allowed"] == true),
                }
            },
        )
        .buffered(CONCURRENCY)
        .collect()
        .await
}
