//! Discovery: versions, groups, resources, schemas and health. kubectl reads it before every
//! command and stops if a document is missing.

mod openapi;

use axum::response::Response;
use http::{Method, StatusCode, request::Parts};
use serde_json::{Value, json};

use super::{
    encode,
    error::ApiError,
    registry::{Kind, Registry, api_version},
};

/// Responds to discovery paths; `None` for resource paths.
pub(super) fn respond(registry: &Registry, parts: &Parts) -> Option<Result<Response, ApiError>> {
    let segments: Vec<_> = parts.uri.path().trim_matches('/').split('/').collect();
    let document = match segments.as_slice() {
        [""] => Some(json!({"paths": paths(registry)})),
        ["version"] => Some(version()),
        ["healthz" | "readyz" | "livez", ..] => return Some(Ok(encode::ok("text/plain", "ok"))),
        ["api"] => Some(
            json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}),
        ),
        ["apis"] => Some(groups(registry)),
        ["api", "v1"] => resources(registry, "", "v1"),
        ["apis", name] => group(registry, name).map(|mut group| {
            group["kind"] = json!("APIGroup");
            group["apiVersion"] = json!("v1");
            group
        }),
        ["apis", group, version] => resources(registry, group, version),
        ["openapi", "v2"] => return Some(openapi::version_2(registry, parts)),
        ["openapi", "v3"] => Some(openapi::index(registry)),
        ["openapi", "v3", "api", "v1"] => openapi::document(registry, "", "v1"),
        ["openapi", "v3", "apis", group, version] => openapi::document(registry, group, version),
        _ => return None,
    };
    Some(match document {
        _ if parts.method != Method::GET && parts.method != Method::HEAD => {
            Err(ApiError::MethodNotAllowed)
        }
        Some(document) => Ok(encode::json(StatusCode::OK, &document)),
        None => Err(ApiError::UnknownPath),
    })
}

fn version() -> Value {
    json!({"major": "1", "minor": "37", "gitVersion": concat!("v1.37.0+standalone-",
        env!("CARGO_PKG_VERSION")), "gitCommit": "", "gitTreeState": "clean", "buildDate": "",
        "goVersion": "", "compiler": "rustc", "platform": "linux/amd64"})
}

fn paths(registry: &Registry) -> Vec<String> {
    let versions = registry.versions().into_iter();
    let versions = versions.map(|(group, version)| format!("/{}", path(group, version)));
    let others = ["/healthz", "/openapi/v3", "/version"].map(str::to_owned);
    versions.chain(others).collect()
}

/// Path of an API version, without the first slash.
fn path(group: &str, version: &str) -> String {
    let root = if group.is_empty() { "api" } else { "apis" };
    format!("{root}/{}", api_version(group, version))
}

fn groups(registry: &Registry) -> Value {
    let mut names: Vec<_> = registry
        .versions()
        .into_iter()
        .map(|(group, _)| group)
        .collect();
    names.dedup();
    let names = names.into_iter().filter(|name| !name.is_empty());
    let groups: Vec<_> = names.filter_map(|name| group(registry, name)).collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

fn group(registry: &Registry, name: &str) -> Option<Value> {
    let versions = registry
        .versions()
        .into_iter()
        .filter(|(group, _)| *group == name);
    let versions: Vec<_> = versions
        .map(|(group, version)| {
            json!({"groupVersion": api_version(group, version), "version": version})
        })
        .collect();
    let preferred = versions.first()?;
    Some(json!({"name": name, "versions": versions, "preferredVersion": preferred}))
}

fn resources(registry: &Registry, group: &str, version: &str) -> Option<Value> {
    let kinds = registry.of_version(group, version);
    let resources: Vec<_> = kinds.flat_map(|kind| entries(kind)).collect();
    let name = api_version(group, version);
    (!resources.is_empty()).then(|| {
        json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": name,
            "resources": resources})
    })
}

fn entries(kind: &Kind) -> Vec<Value> {
    const READ: &[&str] = &["get", "list", "watch"];
    const ALL: &[&str] = &[
        "create",
        "delete",
        "deletecollection",
        "get",
        "list",
        "patch",
        "update",
        "watch",
    ];
    const CHANGE: &[&str] = &["get", "patch", "update"];
    let entry = |subresource: &str, of: &str, verbs: &[&str]| {
        json!({"name": format!("{}{subresource}", kind.plural), "singularName": "",
            "namespaced": kind.namespaced, "kind": of, "verbs": verbs})
    };
    let of_group = |mut entry: Value, group: &str| {
        entry["group"] = json!(group);
        entry["version"] = json!("v1");
        entry
    };
    let mut main = entry("", &kind.name, if kind.read_only { READ } else { ALL });
    main["singularName"] = json!(kind.singular);
    main["shortNames"] = json!(kind.short_names);
    main["categories"] = json!(kind.categories);
    let mut entries = vec![main];
    if kind.status {
        entries.push(entry("/status", &kind.name, CHANGE));
    }
    if kind.scale.is_some() {
        entries.push(of_group(entry("/scale", "Scale", CHANGE), "autoscaling"));
    }
    if kind.is_pod() {
        entries.push(entry("/log", "Pod", &["get"]));
        entries.push(entry("/resize", "Pod", &["patch"]));
        entries.push(entry("/exec", "PodExecOptions", &["create", "get"]));
        entries.push(entry("/attach", "PodAttachOptions", &["create", "get"]));
        let options = "PodPortForwardOptions";
        entries.push(entry("/portforward", options, &["create", "get"]));
        entries.push(entry("/binding", "Binding", &["create"]));
        entries.push(of_group(
            entry("/eviction", "Eviction", &["create"]),
            "policy",
        ));
    }
    entries
}
