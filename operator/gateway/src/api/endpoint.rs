//! Endpoints with their documentation. Routes and OpenAPI document come from one list, so that
//! they cannot differ.

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::routing::MethodRouter;
use schemars::{JsonSchema, Schema, SchemaGenerator};

use super::Api;

pub(super) type MakeSchema = fn(&mut SchemaGenerator) -> Schema;

pub(super) const SANDBOXES: &str = "Sandboxes";
pub(super) const SNAPSHOTS: &str = "Snapshots";
pub(super) const IMAGES: &str = "Images";
pub(super) const WARM_CONFIGS: &str = "Warm runtime configs";
pub(super) const OPERATION: &str = "Operation";
pub(super) const ADMINISTRATION: &str = "Administration";

/// Groups of endpoints with their descriptions, in the order of the document.
pub(super) const TAGS: [(&str, &str); 6] = [
    (SANDBOXES, "Start, find and stop sandboxes."),
    (
        SNAPSHOTS,
        "Keep the state of a running sandbox, and start others from it.",
    ),
    (IMAGES, "Calls of clients that name no image."),
    (
        WARM_CONFIGS,
        "Configurations that clients may start sandboxes from.",
    ),
    (OPERATION, "Health and documentation."),
    (ADMINISTRATION, "Calls of the administrator."),
];

/// Handler and documentation of one method of one path.
#[derive(Debug)]
pub(super) struct Endpoint {
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    pub(super) tag: &'static str,
    /// `operationId` of the document.
    pub(super) id: &'static str,
    pub(super) summary: &'static str,
    pub(super) access: Access,
    pub(super) query: Vec<Parameter>,
    pub(super) request: Option<MakeSchema>,
    /// JSON of a request body.
    pub(super) example: Option<&'static str>,
    pub(super) success: (u16, Option<MakeSchema>),
    /// The response is a stream of server-sent events.
    pub(super) is_event_stream: bool,
    pub(super) failures: &'static [u16],
    route: MethodRouter<Arc<Api>>,
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
    pub(super) required: bool,
    pub(super) repeated: bool,
}

impl Endpoint {
    pub(super) fn new(
        tag: &'static str,
        method: &'static str,
        path: &'static str,
        route: MethodRouter<Arc<Api>>,
    ) -> Self {
        Self {
            method,
            path,
            tag,
            id: "",
            summary: "",
            access: Access::Tenant,
            query: Vec::new(),
            request: None,
            example: None,
            success: (200, None),
            is_event_stream: false,
            failures: &[401, 503],
            route,
        }
    }

    pub(super) fn documented(mut self, id: &'static str, summary: &'static str) -> Self {
        (self.id, self.summary) = (id, summary);
        self
    }

    pub(super) fn access(mut self, access: Access) -> Self {
        self.access = access;
        self
    }

    pub(super) fn query(
        mut self,
        name: &'static str,
        description: &'static str,
        repeated: bool,
    ) -> Self {
        self.query.push(Parameter {
            name,
            description,
            required: !repeated,
            repeated,
        });
        self
    }

    pub(super) fn optional_query(mut self, name: &'static str, description: &'static str) -> Self {
        self.query.push(Parameter {
            name,
            description,
            required: false,
            repeated: false,
        });
        self
    }

    pub(super) fn request_body<T: JsonSchema>(mut self, example: &'static str) -> Self {
        self.request = Some(SchemaGenerator::subschema_for::<T>);
        self.example = Some(example);
        self
    }

    pub(super) fn response<T: JsonSchema>(mut self, code: u16) -> Self {
        self.success = (code, Some(SchemaGenerator::subschema_for::<T>));
        self
    }

    pub(super) fn empty_response(mut self, code: u16) -> Self {
        self.success = (code, None);
        self
    }

    pub(super) fn event_stream(mut self) -> Self {
        self.is_event_stream = true;
        self
    }

    pub(super) fn errors(mut self, codes: &'static [u16]) -> Self {
        self.failures = codes;
        self
    }

    pub(super) fn max_body(mut self, bytes: usize) -> Self {
        self.route = self.route.layer(DefaultBodyLimit::max(bytes));
        self
    }

    pub(super) fn mount(self, router: Router<Arc<Api>>) -> Router<Arc<Api>> {
        router.route(self.path, self.route)
    }
}
