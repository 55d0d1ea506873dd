//! `GET /openapi.json` and `GET /docs`: the OpenAPI document, generated from the endpoints and
//! their types, and a page that shows it.

use axum::Extension;
use axum::response::{Html, IntoResponse as _, Response};
use axum::routing::get;
use bytes::Bytes;
use http::{HeaderValue, header};
use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};

use super::endpoint::{Access, Endpoint, MakeSchema, OPERATION, TAGS};
use super::error::ErrorBody;

/// Page that shows the document without any external request.
const PAGE: &str = include_str!("openapi/docs.html");
/// The page may run its own script and call this server, nothing else, not even send a form.
const PAGE_POLICY: &str = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; \
     form-action 'none'; base-uri 'none'; frame-ancestors 'none'";

#[derive(Debug, Clone)]
pub(super) struct Document(Bytes);

impl Document {
    pub(super) fn of(endpoints: &[Endpoint]) -> Self {
        // Serializing names and JSON values cannot fail.
        let json = serde_json::to_vec(&describe(endpoints)).unwrap_or_default();
        Self(json.into())
    }
}

pub(super) fn endpoints() -> [Endpoint; 2] {
    [
        Endpoint::new(OPERATION, "GET", "/openapi.json", get(openapi))
            .documented("getOpenApiDocument", "Returns this document.")
            .access(Access::Public)
            .errors(&[]),
        Endpoint::new(OPERATION, "GET", "/docs", get(docs))
            .documented("showDocumentation", "Shows this document as a page.")
            .access(Access::Public)
            .errors(&[]),
    ]
}

async fn openapi(Extension(Document(document)): Extension<Document>) -> Response {
    let json = HeaderValue::from_static("application/json");
    ([(header::CONTENT_TYPE, json)], document).into_response()
}

async fn docs() -> Response {
    let policy = HeaderValue::from_static(PAGE_POLICY);
    ([(header::CONTENT_SECURITY_POLICY, policy)], Html(PAGE)).into_response()
}

/// Generates the OpenAPI 3.0 document. Its paths are in the order of the endpoints.
fn describe(endpoints: &[Endpoint]) -> impl Serialize + use<> {
    let mut schemas = SchemaSettings::openapi3().into_generator();
    let mut paths = Vec::<(String, Map<String, Value>)>::new();
    for endpoint in endpoints {
        let path = endpoint.path.replace("{*", "{");
        let method = endpoint.method.to_ascii_lowercase();
        let operation = operation(endpoint, &mut schemas);
        if let Some((_, methods)) = paths.iter_mut().find(|(known, _)| *known == path) {
            methods.insert(method, operation);
        } else {
            paths.push((path, Map::from_iter([(method, operation)])));
        }
    }
    let tags = TAGS.map(|(name, text)| json!({"name": name, "description": text}));
    OpenApi {
        openapi: "3.0.3",
        info: json!({
            "title": "Sandbox Operator: remote runtime API",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Starts, finds, pauses and stops sandboxes of AI agents.",
        }),
        servers: json!([{"url": "/", "description": "This gateway"}]),
        tags: tags.to_vec(),
        paths: Paths(paths),
        components: json!({
            "schemas": schemas.take_definitions(true),
            "securitySchemes": {
                "key": {
                    "type": "apiKey", "in": "header", "name": "X-API-Key",
                    "description": "API key of a tenant.",
                },
                "admin": {
                    "type": "http", "scheme": "bearer", "bearerFormat": "JWT",
                    "description": "Token of an administrator login.",
                },
            },
        }),
    }
}

#[derive(Serialize)]
struct OpenApi {
    openapi: &'static str,
    info: Value,
    servers: Value,
    tags: Vec<Value>,
    paths: Paths,
    components: Value,
}

/// Operations by path, as an object in this order.
struct Paths(Vec<(String, Map<String, Value>)>);

impl Serialize for Paths {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(path, methods)| (path, methods)))
    }
}

fn operation(endpoint: &Endpoint, schemas: &mut SchemaGenerator) -> Value {
    let mut operation = json!({
        "operationId": endpoint.id,
        "tags": [endpoint.tag],
        "summary": endpoint.summary,
        "parameters": parameters(endpoint),
        "responses": responses(endpoint, schemas),
    });
    if let Some(make) = endpoint.request {
        let mut content = content(make, schemas);
        let example = endpoint.example.map(serde_json::from_str::<Value>);
        if let Some(Ok(example)) = example {
            content["application/json"]["example"] = example;
        }
        operation["requestBody"] = json!({"required": true, "content": content});
    }
    operation["security"] = match endpoint.access {
        Access::Public => json!([]),
        Access::Tenant => json!([{"key": []}]),
        Access::Admin => json!([{"admin": []}]),
    };
    operation
}

fn parameters(endpoint: &Endpoint) -> Vec<Value> {
    let parts = endpoint.path.split('/');
    let names = parts.filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let path = names.map(|name| {
        let name = name.trim_start_matches('*');
        json!({
            "name": name, "in": "path", "required": true, "schema": {"type": "string"},
            "description": path_description(name),
        })
    });
    let query = endpoint.query.iter().map(|parameter| {
        let text = json!({"type": "string"});
        let schema = if parameter.repeated {
            json!({"type": "array", "items": text})
        } else {
            text
        };
        json!({
            "name": parameter.name, "in": "query", "required": parameter.required,
            "schema": schema, "description": parameter.description,
        })
    });
    path.chain(query).collect()
}

fn path_description(name: &str) -> &'static str {
    match name {
        "runtime_id" => "Id of the sandbox, 16 letters.",
        "snapshot_id" => "Id of the snapshot.",
        "session_id" => "Session id of the start, percent-encoded.",
        _ => "Name of the config, percent-encoded.",
    }
}

fn responses(endpoint: &Endpoint, schemas: &mut SchemaGenerator) -> Value {
    let (code, success) = endpoint.success;
    let mut responses = Map::new();
    let mut answer = json!({"description": reason(code)});
    if let Some(make) = success {
        answer["content"] = content(make, schemas);
    }
    if endpoint.is_event_stream {
        answer["content"] = json!({"text/event-stream": {"schema": {"type": "string"}}});
    }
    responses.insert(code.to_string(), answer);
    for code in endpoint.failures {
        let content = content(SchemaGenerator::subschema_for::<ErrorBody>, schemas);
        let answer = json!({"description": reason(*code), "content": content});
        responses.insert(code.to_string(), answer);
    }
    Value::Object(responses)
}

fn content(make: MakeSchema, schemas: &mut SchemaGenerator) -> Value {
    let mut schema = json!(make(schemas));
    allow_null(&mut schema);
    json!({"application/json": {"schema": schema}})
}

/// Says `nullable` in place of the type null, which OpenAPI 3.0 lacks.
fn allow_null(schema: &mut Value) {
    if let Some(items) = schema.get_mut("items") {
        allow_null(items);
    }
    let Some(choices) = schema.get_mut("anyOf").and_then(Value::as_array_mut) else {
        return;
    };
    let count = choices.len();
    choices.retain(|choice| *choice != json!({"type": "null"}));
    if choices.len() < count {
        schema["nullable"] = true.into();
    }
}

fn reason(code: u16) -> &'static str {
    let code = http::StatusCode::from_u16(code).ok();
    code.and_then(|code| code.canonical_reason())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::api::endpoint::IMAGES;
    use crate::api::endpoints;
    use shared::image_builds::ImageBuilds;

    #[test]
    fn openapi_document_matches_snapshot() {
        insta::assert_json_snapshot!(describe(&endpoints(ImageBuilds::Off)));
    }

    #[test]
    fn image_builds_match_snapshot() {
        let document = describe(&endpoints(ImageBuilds::Alias));
        let document = serde_json::to_value(document).unwrap();
        let paths = document["paths"].as_object().unwrap().iter();
        let of_images = paths.filter(|(_, path)| {
            let mut methods = path.as_object().unwrap().values();
            methods.any(|method| method["tags"][0] == IMAGES)
        });
        let of_images: Map<_, _> = of_images.map(|(p, m)| (p.clone(), m.clone())).collect();
        let schemas = &document["components"]["schemas"];
        let schemas = ["AcceptedBuild", "BuildProgress", "BuildWord", "ImageAnswer"]
            .map(|name| &schemas[name]);
        insta::assert_json_snapshot!(json!([of_images, schemas]));
    }

    #[test]
    fn every_schema_reference_resolves() {
        let document = serde_json::to_value(describe(&endpoints(ImageBuilds::Alias))).unwrap();
        let text = document.to_string();
        let mut references = text.split("\"$ref\":\"#").skip(1);
        assert!(references.clone().count() > 10);
        assert!(references.all(|rest| {
            let pointer = rest.split('"').next().unwrap();
            document.pointer(pointer).is_some()
        }));
    }

    #[test]
    fn every_endpoint_is_documented() {
        let mut ids = HashSet::new();
        for endpoint in endpoints(ImageBuilds::Alias) {
            assert!(endpoint.summary.ends_with('.'), "{}", endpoint.path);
            assert!(ids.insert(endpoint.id), "{} is not unique", endpoint.id);
            let example = endpoint.example.map(serde_json::from_str::<Value>);
            let complete = endpoint.request.is_some() == matches!(example, Some(Ok(_)));
            assert!(complete, "{} lacks a valid example", endpoint.path);
        }
    }
}
