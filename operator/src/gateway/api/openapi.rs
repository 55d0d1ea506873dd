//! `GET /openapi.json` and `GET /docs`: the API described by the types that serve it. No client
//! reads it; people do.

use std::collections::BTreeMap;

use axum::Extension;
use axum::response::{Html, IntoResponse as _, Response};
use bytes::Bytes;
use http::{HeaderValue, header};
use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::endpoint::{Access, Endpoint, MakeSchema};
use super::error::ErrorBody;

/// A page that shows the document and needs nothing from elsewhere.
const PAGE: &str = include_str!("openapi/docs.html");
/// The page may run its own script and read the document; nothing else.
const PAGE_POLICY: &str =
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'";

/// The document as it is sent.
#[derive(Debug, Clone)]
pub(super) struct Document(Bytes);

impl Document {
    /// Describes the endpoints.
    pub(super) fn of(endpoints: &[Endpoint]) -> Self {
        Self(describe(endpoints).to_string().into())
    }
}

pub(super) fn document_endpoint() -> Endpoint {
    Endpoint::get("/openapi.json", openapi)
        .says("This document.")
        .open_to(Access::Anybody)
        .fails(&[])
}

pub(super) fn page_endpoint() -> Endpoint {
    Endpoint::get("/docs", docs)
        .says("This document as a page.")
        .open_to(Access::Anybody)
        .fails(&[])
}

async fn openapi(Extension(Document(document)): Extension<Document>) -> Response {
    let json = HeaderValue::from_static("application/json");
    ([(header::CONTENT_TYPE, json)], document).into_response()
}

async fn docs() -> Response {
    let policy = HeaderValue::from_static(PAGE_POLICY);
    ([(header::CONTENT_SECURITY_POLICY, policy)], Html(PAGE)).into_response()
}

/// The document, OpenAPI 3.0.
pub(super) fn describe(endpoints: &[Endpoint]) -> Value {
    let mut schemas = SchemaSettings::openapi3().into_generator();
    let mut paths: BTreeMap<String, Map<String, Value>> = BTreeMap::new();
    for endpoint in endpoints {
        let path = endpoint.path.replace("{*", "{");
        let method = endpoint.method.as_str().to_ascii_lowercase();
        let operation = operation(endpoint, &mut schemas);
        paths.entry(path).or_default().insert(method, operation);
    }
    json!({
        "openapi": "3.0.3",
        "info": {
            "title": "Sandbox Operator: remote runtime API",
            "version": env!("CARGO_PKG_VERSION"),
        },
        "paths": paths,
        "components": {
            "schemas": schemas.take_definitions(true),
            "securitySchemes": {
                "key": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
                "admin": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
            },
        },
    })
}

fn operation(endpoint: &Endpoint, schemas: &mut SchemaGenerator) -> Value {
    let mut operation = json!({
        "summary": endpoint.summary,
        "parameters": parameters(endpoint),
        "responses": responses(endpoint, schemas),
    });
    if let Some(make) = endpoint.request {
        let content = content(make, schemas);
        operation["requestBody"] = json!({"required": true, "content": content});
    }
    operation["security"] = match endpoint.access {
        Access::Anybody => json!([]),
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
        json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}})
    });
    let query = endpoint.query.iter().map(|parameter| {
        let text = json!({"type": "string"});
        let schema = if parameter.repeated {
            json!({"type": "array", "items": text})
        } else {
            text
        };
        json!({"name": parameter.name, "in": "query", "schema": schema})
    });
    path.chain(query).collect()
}

fn responses(endpoint: &Endpoint, schemas: &mut SchemaGenerator) -> Value {
    let (code, success) = endpoint.success;
    let mut responses = Map::new();
    let mut answer = json!({"description": reason(code)});
    if let Some(make) = success {
        answer["content"] = content(make, schemas);
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
    json!({"application/json": {"schema": make(schemas)}})
}

fn reason(code: u16) -> &'static str {
    let code = http::StatusCode::from_u16(code).ok();
    code.and_then(|code| code.canonical_reason())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::api::endpoints;

    #[test]
    fn the_document_is_as_it_was() {
        insta::assert_json_snapshot!(describe(&endpoints()));
    }

    #[test]
    fn every_reference_leads_somewhere() {
        let document = describe(&endpoints());
        let text = document.to_string();
        let mut references = text.split("\"$ref\":\"#").skip(1);
        assert!(references.clone().count() > 10);
        assert!(references.all(|rest| {
            let pointer = rest.split('"').next().unwrap();
            document.pointer(pointer).is_some()
        }));
    }

    #[test]
    fn every_endpoint_says_what_it_is_for() {
        for endpoint in endpoints() {
            assert!(endpoint.summary.ends_with('.'), "{}", endpoint.path);
        }
    }
}
