//! Fake Kubernetes API for unit tests: get, create, replace, merge and delete of objects by path,
//! with version checks. It can be made unavailable.

#![allow(clippy::unwrap_used, reason = "a fake for tests")]

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;

use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};

/// Fake API server.
#[derive(Debug, Clone, Default)]
pub struct FakeApi(Arc<Mutex<FakeApiState>>);

#[derive(Debug, Default)]
struct FakeApiState {
    objects: HashMap<String, Value>,
    version: u64,
    unavailable: bool,
}

impl FakeApi {
    pub fn client(&self) -> Client {
        let api = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let api = api.clone();
            async move { Ok::<_, Infallible>(api.answer(request).await) }
        });
        Client::new(service, "ns")
    }

    /// Makes every request fail, or succeed again.
    pub fn set_unavailable(&self, unavailable: bool) {
        self.0.lock().unavailable = unavailable;
    }

    /// Returns all objects.
    pub fn objects(&self) -> Vec<Value> {
        self.0.lock().objects.values().cloned().collect()
    }

    async fn answer(&self, request: Request<Body>) -> Response<Body> {
        let (head, body) = request.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let sent: Value = serde_json::from_slice(&body).unwrap_or_default();
        let (code, object) = self.0.lock().act(&head.method, head.uri.path(), sent);
        let body = Body::from(serde_json::to_vec(&object).unwrap());
        Response::builder().status(code).body(body).unwrap()
    }
}

impl FakeApiState {
    fn act(&mut self, method: &Method, path: &str, sent: Value) -> (StatusCode, Value) {
        if self.unavailable {
            return failure(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable");
        }
        let name = sent["metadata"]["name"].as_str().unwrap_or_default();
        let version = |object: &Value| object["metadata"]["resourceVersion"].clone();
        match *method {
            Method::POST if self.objects.contains_key(&format!("{path}/{name}")) => {
                failure(StatusCode::CONFLICT, "AlreadyExists")
            }
            Method::POST => self.store(format!("{path}/{name}"), sent),
            Method::PUT if self.objects.get(path).map(version) != Some(version(&sent)) => {
                failure(StatusCode::CONFLICT, "Conflict")
            }
            Method::PUT => self.store(path.to_owned(), sent),
            Method::PATCH => match self.objects.get(path).cloned() {
                Some(mut object) => {
                    merge(&mut object, sent);
                    self.store(path.to_owned(), object)
                }
                None => failure(StatusCode::NOT_FOUND, "NotFound"),
            },
            Method::DELETE => match self.objects.remove(path) {
                Some(object) => (StatusCode::OK, object),
                None => failure(StatusCode::NOT_FOUND, "NotFound"),
            },
            _ => match self.objects.get(path) {
                Some(object) => (StatusCode::OK, object.clone()),
                None => failure(StatusCode::NOT_FOUND, "NotFound"),
            },
        }
    }

    fn store(&mut self, path: String, mut object: Value) -> (StatusCode, Value) {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.objects.insert(path, object.clone());
        (StatusCode::OK, object)
    }
}

/// Applies a merge patch (RFC 7386).
fn merge(object: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
        *object = patch;
        return;
    };
    for (name, value) in patch {
        merge(&mut object[name], value);
    }
}

fn failure(code: StatusCode, reason: &str) -> (StatusCode, Value) {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": reason, "reason": reason, "code": code.as_u16(),
    });
    (code, status)
}
