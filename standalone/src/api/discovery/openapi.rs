//! OpenAPI documents for `kubectl explain` and apply. They tell kubectl to leave field validation
//! to the server.

use serde_json::{Map, Value, json};

use super::path;
use crate::api::registry::{Kind, Registry};

/// Index of the version 3 documents, one per API version.
pub(super) fn index(registry: &Registry) -> Value {
    let paths: Map<_, _> = registry
        .versions()
        .into_iter()
        .map(|(group, version)| {
            let path = path(group, version);
            let url = format!("/openapi/v3{path}?hash={}", env!("CARGO_PKG_VERSION"));
            (
                path.trim_start_matches('/').to_owned(),
                json!({"serverRelativeURL": url}),
            )
        })
        .collect();
    json!({"paths": paths})
}

pub(super) fn document(registry: &Registry, group: &str, version: &str) -> Option<Value> {
    let kinds: Vec<_> = registry.of_version(group, version).collect();
    let paths: Map<_, _> = kinds.iter().flat_map(|kind| paths_of(kind)).collect();
    let schemas: Map<_, _> = kinds
        .iter()
        .map(|kind| (schema_name(kind), schema(kind, "#/components/schemas/")))
        .chain(common())
        .collect();
    (!kinds.is_empty()).then(|| {
        json!({"openapi": "3.0.0", "info": info(), "paths": paths,
        "components": {"schemas": schemas}})
    })
}

/// Version 2 document, for older clients.
pub(super) fn version_2(registry: &Registry) -> Value {
    let definitions: Map<_, _> = registry
        .kinds()
        .iter()
        .map(|kind| (schema_name(kind), schema(kind, "#/definitions/")))
        .chain(common())
        .collect();
    json!({"swagger": "2.0", "info": info(), "paths": {}, "definitions": definitions})
}

const TITLE: &str = "Sandbox Operator standalone";
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Media type of version 2 that kubectl asks for.
pub(super) const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";

/// Its media type in responses, where `@` is not allowed.
pub(super) const PROTOBUF_RESPONSE: &str =
    "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// Version 2 without resources: field 1 is `swagger`, field 2 `info` with title and version.
pub(super) fn version_2_protobuf() -> Vec<u8> {
    let field = |number: u8, content: &[u8]| {
        // Every content is shorter than 128 bytes, so its length is one byte.
        let length = u8::try_from(content.len()).unwrap_or_default();
        [&[number << 3 | 2, length], content].concat()
    };
    let info = [field(1, TITLE.as_bytes()), field(2, VERSION.as_bytes())].concat();
    [field(1, b"2.0"), field(2, &info)].concat()
}

fn info() -> Value {
    json!({"title": TITLE, "version": VERSION})
}

fn schema_name(kind: &Kind) -> String {
    let group = if kind.group.is_empty() {
        "io.k8s.api.core".to_owned()
    } else {
        kind.group.split('.').rev().collect::<Vec<_>>().join(".")
    };
    format!("{group}.{}.{}", kind.version, kind.name)
}

fn identity(kind: &Kind) -> Value {
    json!({"group": kind.group, "version": kind.version, "kind": kind.name})
}

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

fn common() -> impl Iterator<Item = (String, Value)> {
    let text = |description: &str| json!({"type": "string", "description": description});
    let map = |description: &str| {
        json!({"type": "object", "description": description,
        "additionalProperties": {"type": "string"}})
    };
    let meta = json!({"type": "object", "description": "ObjectMeta is metadata that all persisted \
        resources must have.",
        "x-kubernetes-preserve-unknown-fields": true,
        "properties": {"name": text("Unique within a namespace."),
            "namespace": text("The space the name is unique in."),
            "labels": map("Keys and values to select objects by."),
                "annotations": map("Keys and values for tools.")}});
    std::iter::once((OBJECT_META.to_owned(), meta))
}

fn schema(kind: &Kind, definitions: &str) -> Value {
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let mut schema = kind
        .schema()
        .map_or(open, |schema| schema.document().clone());
    schema["x-kubernetes-group-version-kind"] = json!([identity(kind)]);
    if !schema["properties"].is_object() {
        schema["properties"] = json!({});
    }
    let described = |description: &str| json!({"type": "string", "description": description});
    schema["properties"]["apiVersion"] =
        described("The versioned schema of this representation of an object.");
    schema["properties"]["kind"] = described("The REST resource this object represents.");
    schema["properties"]["metadata"] = json!({"description": "Standard object's metadata.",
        "default": {},
        "allOf": [{"$ref": format!("{definitions}{OBJECT_META}")}]});
    schema
}

fn paths_of(kind: &Kind) -> Vec<(String, Value)> {
    let base = path(&kind.group, &kind.version);
    let scope = if kind.namespaced {
        "/namespaces/{namespace}"
    } else {
        ""
    };
    let collection = format!("{base}{scope}/{}", kind.plural);
    let item = json!({
        "get": operation(kind, "get", &[]),
        "put": operation(kind, "put", &WRITE),
        "patch": operation(kind, "patch", &["dryRun", "fieldManager", "fieldValidation", "force"]),
        "delete": operation(kind, "delete", &["dryRun", "gracePeriodSeconds", "propagationPolicy"]),
    });
    let list =
        json!({"get": operation(kind, "list", &[]), "post": operation(kind, "post", &WRITE)});
    vec![
        (
            format!("{base}/{}", kind.plural),
            json!({"get": operation(kind, "list", &[])}),
        ),
        (format!("{collection}/{{name}}"), item),
        (collection, list),
    ]
    .into_iter()
    .rev()
    .collect()
}

const WRITE: [&str; 3] = ["dryRun", "fieldManager", "fieldValidation"];

fn operation(kind: &Kind, action: &str, parameters: &[&str]) -> Value {
    let parameters: Vec<_> = parameters
        .iter()
        .map(|name| {
            json!({"name": name, "in": "query",
        "schema": {"type": "string", "uniqueItems": true}})
        })
        .collect();
    let reference = json!({"$ref": format!("#/components/schemas/{}", schema_name(kind))});
    json!({
        "x-kubernetes-action": action, "x-kubernetes-group-version-kind": identity(kind),
            "parameters": parameters,
        "responses": {"200": {"description": "OK",
            "content": {"application/json": {"schema": reference}}}},
    })
}
