//! Discovery: versions, groups, resources, schemas and health. kubectl reads it before every
//! command and stops if a document is missing.

mod openapi;

use axum::response::Response;
use http::{Method, StatusCode, header, request::Parts};
use serde_json::{Value, json};

use super::{
    ApiState,
    encode::{failure, json as json_response, with_body},
    error::ApiError,
    registry::{Kind, Registry},
};

/// Responds to discovery paths; `None` for resource paths.
pub(super) fn answer(state: &ApiState, parts: &Parts) -> Option<Response> {
    let segments: Vec<_> = parts.uri.path().trim_matches('/').split('/').collect();
    let registry = &state.registry;
    let document = match segments.as_slice() {
        [""] => Some(json!({"paths": paths(registry)})),
        ["version"] => Some(version()),
        ["healthz" | "readyz" | "livez", ..] => {
            return Some(with_body(StatusCode::OK, "text/plain", "ok".into()));
        }
        ["api"] => Some(
            json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}),
        ),
        ["apis"] => Some(groups(registry)),
        ["api", "v1"] => resources(registry, "", "v1"),
        ["apis", group] => describe_group(registry, group),
        ["apis", group, version] => resources(registry, group, version),
        ["openapi", "v2"] => return Some(openapi_v2(registry, parts)),
        ["openapi", "v3"] => Some(openapi::index(registry)),
        ["openapi", "v3", "api", "v1"] => openapi::document(registry, "", "v1"),
        ["openapi", "v3", "apis", group, version] => openapi::document(registry, group, version),
        _ => return None,
    };
    Some(match document {
        _ if parts.method != Method::GET && parts.method != Method::HEAD => {
            failure(&ApiError::MethodNotAllowed)
        }
        Some(document) => json_response(StatusCode::OK, &document),
        None => failure(&ApiError::UnknownPath),
    })
}

/// Version 2 in JSON, or in protobuf without resources. kubectl reads the latter before it applies
/// a `kind: List`, and then leaves validation to the server.
fn openapi_v2(registry: &Registry, parts: &Parts) -> Response {
    let accept = parts.headers.get(header::ACCEPT);
    let accept = accept
        .and_then(|value| value.to_str().ok())
        .unwrap_or("*/*");
    if accept.contains("json") || accept.contains("*/*") {
        json_response(StatusCode::OK, &openapi::version_2(registry))
    } else if accept.contains(openapi::PROTOBUF) {
        let document = openapi::version_2_protobuf();
        with_body(StatusCode::OK, openapi::PROTOBUF_RESPONSE, document.into())
    } else {
        failure(&ApiError::NotAcceptable)
    }
}

fn version() -> Value {
    json!({"major": "1", "minor": "37", "gitVersion": concat!("v1.37.0+standalone-",
        env!("CARGO_PKG_VERSION")), "gitCommit": "",
        "gitTreeState": "clean", "buildDate": "", "goVersion": "", "compiler": "rustc",
            "platform": "linux/amd64"})
}

fn paths(registry: &Registry) -> Vec<String> {
    let versions = registry
        .versions()
        .into_iter()
        .map(|(group, version)| path(group, version));
    versions
        .chain(["/healthz", "/openapi/v3", "/version"].map(str::to_owned))
        .collect()
}

fn path(group: &str, version: &str) -> String {
    if group.is_empty() {
        format!("/api/{version}")
    } else {
        format!("/apis/{group}/{version}")
    }
}

fn groups(registry: &Registry) -> Value {
    let mut names: Vec<_> = registry
        .versions()
        .into_iter()
        .map(|(group, _)| group)
        .filter(|group| !group.is_empty())
        .collect();
    names.dedup();
    let groups: Vec<_> = names
        .into_iter()
        .map(|name| group(registry, name))
        .collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

fn group(registry: &Registry, name: &str) -> Value {
    let versions = registry
        .versions()
        .into_iter()
        .filter(|(group, _)| *group == name);
    let versions: Vec<_> = versions
        .map(|(group, version)| {
            json!({"groupVersion": format!("{group}/{version}"),
        "version": version})
        })
        .collect();
    json!({"name": name, "versions": versions, "preferredVersion": versions[0]})
}

fn describe_group(registry: &Registry, name: &str) -> Option<Value> {
    registry
        .versions()
        .iter()
        .any(|(group, _)| *group == name)
        .then(|| {
            let mut group = group(registry, name);
            group["kind"] = json!("APIGroup");
            group["apiVersion"] = json!("v1");
            group
        })
}

fn resources(registry: &Registry, group: &str, version: &str) -> Option<Value> {
    let resources: Vec<_> = registry
        .of_version(group, version)
        .flat_map(|kind| entries(kind))
        .collect();
    let name = if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    };
    (!resources.is_empty()).then(|| {
        json!({"kind": "APIResourceList", "apiVersion": "v1",
        "groupVersion": name, "resources": resources})
    })
}

fn entries(kind: &Kind) -> Vec<Value> {
    let all = [
        "create",
        "delete",
        "deletecollection",
        "get",
        "list",
        "patch",
        "update",
        "watch",
    ];
    let verbs = if kind.read_only {
        vec!["get", "list", "watch"]
    } else {
        all.to_vec()
    };
    let mut main = entry(kind, "", &kind.name, &verbs);
    main["singularName"] = json!(kind.singular);
    main["shortNames"] = json!(kind.short_names);
    main["categories"] = json!(kind.categories);
    let mut entries = vec![main];
    if kind.status {
        entries.push(entry(
            kind,
            "/status",
            &kind.name,
            &["get", "patch", "update"],
        ));
    }
    if kind.scale.is_some() {
        let mut scale = entry(kind, "/scale", "Scale", &["get", "patch", "update"]);
        (scale["group"], scale["version"]) = (json!("autoscaling"), json!("v1"));
        entries.push(scale);
    }
    if kind.is_pod() {
        entries.push(entry(kind, "/log", "Pod", &["get"]));
        entries.push(entry(kind, "/binding", "Binding", &["create"]));
        let mut eviction = entry(kind, "/eviction", "Eviction", &["create"]);
        (eviction["group"], eviction["version"]) = (json!("policy"), json!("v1"));
        entries.push(eviction);
    }
    entries
}

fn entry(kind: &Kind, subresource: &str, of: &str, verbs: &[&str]) -> Value {
    json!({"name": format!("{}{subresource}", kind.plural), "singularName": "",
        "namespaced": kind.namespaced,
        "kind": of, "verbs": verbs})
}
