//! OpenAPI documents for `kubectl explain` and apply. They tell kubectl to leave field validation
//! to the server.

use axum::response::Response;
use http::{StatusCode, header, request::Parts};
use serde_json::{Map, Value, json};

use super::path;
use crate::api::{
    encode,
    error::ApiError,
    registry::{Kind, Registry},
};

const TITLE: &str = "Sandbox Operator standalone";
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Media type of version 2 that kubectl asks for.
const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";

/// Its media type in responses, where `@` is not allowed.
const PROTOBUF_RESPONSE: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// Query parameters of a patch. kubectl looks for them before it uses them.
const PATCH_PARAMETERS: [&str; 4] = ["dryRun", "fieldManager", "fieldValidation", "force"];

/// Index of the version 3 documents, one per API version.
pub(super) fn index(registry: &Registry) -> Value {
    let paths = registry.versions().into_iter().map(|(group, version)| {
        let path = path(group, version);
        let url = format!("/openapi/v3/{path}?hash={VERSION}");
        (path, json!({"serverRelativeURL": url}))
    });
    json!({"paths": paths.collect::<Map<_, _>>()})
}

/// Version 3 document of an API version.
pub(super) fn document(registry: &Registry, group: &str, version: &str) -> Option<Value> {
    let kinds: Vec<_> = registry.of_version(group, version).collect();
    let paths: Map<_, _> = kinds.iter().flat_map(|kind| paths_of(kind)).collect();
    let schemas = schemas(
        kinds.iter().copied().map(AsRef::as_ref),
        "#/components/schemas/",
    );
    (!kinds.is_empty()).then(|| {
        json!({"openapi": "3.0.0", "info": info(), "paths": paths,
            "components": {"schemas": schemas}})
    })
}

/// Version 2 in JSON for older clients, or in protobuf without resources. kubectl reads the latter
/// before it applies a `kind: List`, and then leaves validation to the server.
pub(super) fn version_2(registry: &Registry, parts: &Parts) -> Result<Response, ApiError> {
    let accept = parts.headers.get(header::ACCEPT);
    let accept = accept
        .and_then(|value| value.to_str().ok())
        .unwrap_or("*/*");
    if accept.contains("json") || accept.contains("*/*") {
        let kinds = registry.kinds().iter().map(AsRef::as_ref);
        let document = json!({"swagger": "2.0", "info": info(), "paths": {},
            "definitions": schemas(kinds, "#/definitions/")});
        Ok(encode::json(StatusCode::OK, &document))
    } else if accept.contains(PROTOBUF) {
        Ok(encode::ok(PROTOBUF_RESPONSE, version_2_protobuf()))
    } else {
        Err(ApiError::NotAcceptable)
    }
}

/// Field 1 is `swagger`, field 2 `info` with title and version.
fn version_2_protobuf() -> Vec<u8> {
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
    let group = match kind.group.as_str() {
        "" => "io.k8s.api.core".to_owned(),
        group => group.split('.').rev().collect::<Vec<_>>().join("."),
    };
    format!("{group}.{}.{}", kind.version, kind.name)
}

fn identity(kind: &Kind) -> Value {
    json!({"group": kind.group, "version": kind.version, "kind": kind.name})
}

/// Schemas of the kinds and of their metadata, which refer to each other below `root`.
fn schemas<'a>(kinds: impl Iterator<Item = &'a Kind>, root: &str) -> Map<String, Value> {
    let schemas = kinds.map(|kind| (schema_name(kind), schema(kind, root)));
    schemas
        .chain([(OBJECT_META.to_owned(), object_meta())])
        .collect()
}

fn text(description: &str) -> Value {
    json!({"type": "string", "description": description})
}

fn object_meta() -> Value {
    let map = |description: &str| {
        json!({"type": "object", "description": description,
            "additionalProperties": {"type": "string"}})
    };
    json!({"type": "object", "description": "ObjectMeta is metadata that all persisted resources \
        must have.",
        "x-kubernetes-preserve-unknown-fields": true,
        "properties": {"name": text("Unique within a namespace."),
            "namespace": text("The space the name is unique in."),
            "labels": map("Keys and values to select objects by."),
            "annotations": map("Keys and values for tools.")}})
}

fn schema(kind: &Kind, root: &str) -> Value {
    let mut schema = match kind.schema() {
        Some(schema) => schema.document().clone(),
        None => json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}),
    };
    schema["x-kubernetes-group-version-kind"] = json!([identity(kind)]);
    let properties = &mut schema["properties"];
    properties["apiVersion"] = text("The versioned schema of this representation of an object.");
    properties["kind"] = text("The REST resource this object represents.");
    properties["metadata"] = json!({"description": "Standard object's metadata.", "default": {},
        "allOf": [{"$ref": format!("{root}{OBJECT_META}")}]});
    schema
}

/// Paths of a kind: kubectl finds the kind of a resource by `get`, and parameters by `patch`.
fn paths_of(kind: &Kind) -> [(String, Value); 2] {
    let scope = if kind.namespaced {
        "namespaces/{namespace}/"
    } else {
        ""
    };
    let base = path(&kind.group, &kind.version);
    let collection = format!("/{base}/{scope}{}", kind.plural);
    let item = json!({"get": operation(kind, "get", &[]),
        "patch": operation(kind, "patch", &PATCH_PARAMETERS)});
    let list = json!({"get": operation(kind, "list", &[])});
    [(format!("{collection}/{{name}}"), item), (collection, list)]
}

fn operation(kind: &Kind, action: &str, parameters: &[&str]) -> Value {
    let schema = json!({"type": "string", "uniqueItems": true});
    let parameters = parameters.iter();
    let parameters = parameters.map(|name| json!({"name": name, "in": "query", "schema": schema}));
    let reference = json!({"$ref": format!("#/components/schemas/{}", schema_name(kind))});
    json!({
        "x-kubernetes-action": action, "x-kubernetes-group-version-kind": identity(kind),
        "parameters": parameters.collect::<Vec<_>>(),
        "responses": {"200": {"description": "OK",
            "content": {"application/json": {"schema": reference}}}},
    })
}
