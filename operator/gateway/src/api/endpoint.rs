//! Endpoints with their documentation. Routes and OpenAPI document come from one list, so that
//! they cannot differ.

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::handler::Handler;
use axum::routing::{MethodFilter, MethodRouter, on};
use http::Method;
use schemars::{JsonSchema, Schema, SchemaGenerator};

use super::Api;

/// Function that generates the schema of a type.
pub(super) type MakeSchema = fn(&mut SchemaGenerator) -> Schema;

/// Handler and documentation of one method of one path.
#[derive(Debug)]
pub(super) struct Endpoint {
    pub(super) path: &'static str,
    pub(super) method: Method,
    /// `operationId` of the document.
    pub(super) id: &'static str,
    pub(super) tag: Tag,
    pub(super) summary: &'static str,
    pub(super) access: Access,
    pub(super) query: Vec<Parameter>,
    pub(super) request: Option<MakeSchema>,
    /// JSON of a request body.
    pub(super) example: Option<&'static str>,
    pub(super) success: (u16, Option<MakeSchema>),
    pub(super) failures: &'static [u16],
    route: MethodRouter<Arc<Api>>,
}

/// Group of endpoints in the document, in its order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tag {
    Sandboxes,
    Images,
    WarmConfigs,
    Operation,
    Administration,
}

impl Tag {
    /// Name and description of each tag.
    pub(super) const ALL: [(Self, &str, &str); 5] = [
        (
            Self::Sandboxes,
            "Sandboxes",
            "Start, find and stop sandboxes.",
        ),
        (
            Self::Images,
            "Images",
            "Calls of clients that name no image.",
        ),
        (
            Self::WarmConfigs,
            "Warm runtime configs",
            "Configurations that clients may start sandboxes from.",
        ),
        (Self::Operation, "Operation", "Health and documentation."),
        (
            Self::Administration,
            "Administration",
            "Calls of the administrator.",
        ),
    ];

    pub(super) fn name(self) -> &'static str {
        let mut all = Self::ALL.into_iter();
        all.find(|(tag, ..)| *tag == self)
            .map_or("", |(_, name, _)| name)
    }
}

/// Credentials that a call needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    Public,
    /// Header `X-API-Key`.
    Tenant,
    /// Header `Authorization: Bearer`.
    Admin,
}

/// Query parameter.
#[derive(Debug)]
pub(super) struct Parameter {
    pub(super) name: &'static str,
    pub(super) description: &'static str,
    pub(super) repeated: bool,
}

impl Endpoint {
    fn new<H, T>(method: Method, filter: MethodFilter, path: &'static str, handler: H) -> Self
    where
        H: Handler<T, Arc<Api>>,
        T: 'static,
    {
        Self {
            path,
            method,
            id: "",
            tag: Tag::Sandboxes,
            summary: "",
            access: Access::Tenant,
            query: Vec::new(),
            request: None,
            example: None,
            success: (200, None),
            failures: &[401, 503],
            route: on(filter, handler),
        }
    }

    pub(super) fn get<H: Handler<T, Arc<Api>>, T: 'static>(path: &'static str, handler: H) -> Self {
        Self::new(Method::GET, MethodFilter::GET, path, handler)
    }

    pub(super) fn post<H: Handler<T, Arc<Api>>, T: 'static>(
        path: &'static str,
        handler: H,
    ) -> Self {
        Self::new(Method::POST, MethodFilter::POST, path, handler)
    }

    pub(super) fn put<H: Handler<T, Arc<Api>>, T: 'static>(path: &'static str, handler: H) -> Self {
        Self::new(Method::PUT, MethodFilter::PUT, path, handler)
    }

    pub(super) fn delete<H: Handler<T, Arc<Api>>, T: 'static>(
        path: &'static str,
        handler: H,
    ) -> Self {
        Self::new(Method::DELETE, MethodFilter::DELETE, path, handler)
    }

    /// Sets `operationId`, group and summary.
    pub(super) fn documented(mut self, tag: Tag, id: &'static str, summary: &'static str) -> Self {
        (self.tag, self.id, self.summary) = (tag, id, summary);
        self
    }

    pub(super) fn access(mut self, access: Access) -> Self {
        self.access = access;
        self
    }

    pub(super) fn query(self, name: &'static str, description: &'static str) -> Self {
        self.parameter(name, description, false)
    }

    pub(super) fn repeated_query(self, name: &'static str, description: &'static str) -> Self {
        self.parameter(name, description, true)
    }

    fn parameter(mut self, name: &'static str, description: &'static str, repeated: bool) -> Self {
        self.query.push(Parameter {
            name,
            description,
            repeated,
        });
        self
    }

    pub(super) fn request_body<T: JsonSchema>(mut self) -> Self {
        self.request = Some(SchemaGenerator::subschema_for::<T>);
        self
    }

    /// Sets an example of the request body, as JSON.
    pub(super) fn example(mut self, json: &'static str) -> Self {
        self.example = Some(json);
        self
    }

    pub(super) fn response<T: JsonSchema>(mut self, code: u16) -> Self {
        self.success = (code, Some(SchemaGenerator::subschema_for::<T>));
        self
    }

    /// Sets the status codes of errors.
    pub(super) fn errors(mut self, codes: &'static [u16]) -> Self {
        self.failures = codes;
        self
    }

    /// Limits the size of its request body.
    pub(super) fn max_body(mut self, bytes: usize) -> Self {
        self.route = self.route.layer(DefaultBodyLimit::max(bytes));
        self
    }

    /// Adds the endpoint to a router.
    pub(super) fn mount(self, router: Router<Arc<Api>>) -> Router<Arc<Api>> {
        router.route(self.path, self.route)
    }
}
