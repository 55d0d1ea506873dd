//! An endpoint with its documentation: what is routed and what the OpenAPI document says come from
//! one list, so neither can have what the other lacks.

use std::sync::Arc;

use axum::Router;
use axum::handler::Handler;
use axum::routing::{MethodFilter, MethodRouter, on};
use http::Method;
use schemars::{JsonSchema, Schema, SchemaGenerator};

use super::Api;

/// Makes the schema of a type.
pub(super) type MakeSchema = fn(&mut SchemaGenerator) -> Schema;

/// A method of a path: who answers, and what there is to know about it.
#[derive(Debug)]
pub(super) struct Endpoint {
    pub(super) path: &'static str,
    pub(super) method: Method,
    pub(super) summary: &'static str,
    pub(super) access: Access,
    pub(super) query: Vec<Parameter>,
    pub(super) request: Option<MakeSchema>,
    pub(super) success: (u16, Option<MakeSchema>),
    pub(super) failures: &'static [u16],
    route: MethodRouter<Arc<Api>>,
}

/// Who may call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    Anybody,
    /// Header `X-API-Key`.
    Tenant,
    /// Header `Authorization: Bearer`.
    Admin,
}

/// A parameter of the query.
#[derive(Debug)]
pub(super) struct Parameter {
    pub(super) name: &'static str,
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
            summary: "",
            access: Access::Tenant,
            query: Vec::new(),
            request: None,
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

    pub(super) fn says(mut self, summary: &'static str) -> Self {
        self.summary = summary;
        self
    }

    pub(super) fn open_to(mut self, access: Access) -> Self {
        self.access = access;
        self
    }

    pub(super) fn query(mut self, name: &'static str) -> Self {
        let repeated = false;
        self.query.push(Parameter { name, repeated });
        self
    }

    pub(super) fn repeated_query(mut self, name: &'static str) -> Self {
        let repeated = true;
        self.query.push(Parameter { name, repeated });
        self
    }

    pub(super) fn takes<T: JsonSchema>(mut self) -> Self {
        self.request = Some(SchemaGenerator::subschema_for::<T>);
        self
    }

    pub(super) fn answers<T: JsonSchema>(mut self, code: u16) -> Self {
        self.success = (code, Some(SchemaGenerator::subschema_for::<T>));
        self
    }

    /// Status codes of its errors.
    pub(super) fn fails(mut self, codes: &'static [u16]) -> Self {
        self.failures = codes;
        self
    }

    /// Adds it to a router.
    pub(super) fn mount(self, router: Router<Arc<Api>>) -> Router<Arc<Api>> {
        router.route(self.path, self.route)
    }
}
