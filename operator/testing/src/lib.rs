//! Fake Kubernetes API for unit tests: objects by path, with version checks and injectable faults. And
//! a collector of spans.

#![allow(clippy::unwrap_used, reason = "a fake for tests")]

mod captured_log;
mod event_reader;
mod fake_collector;
pub mod image_build;

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::sync::Arc;

use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};

pub use captured_log::CapturedLog;
pub use event_reader::{EventReader, ReceivedEvent};
pub use fake_collector::{CollectorBehavior, FakeCollector, ReceivedSpan};

/// Fake API server; clones share its state.
#[derive(Debug, Clone, Default)]
pub struct FakeApi(Arc<Mutex<FakeApiState>>);

#[derive(Debug, Default)]
struct FakeApiState {
    objects: BTreeMap<String, Value>,
    version: u64,
    faults: VecDeque<(u16, String)>,
    unavailable: bool,
    silent: bool,
    created_at: Option<String>,
    calls: Vec<(Method, String)>,
    /// Logs of Pods, by the path of the log.
    logs: BTreeMap<String, String>,
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

    /// Makes the next calls fail with these status codes.
    pub fn fail(&self, codes: impl IntoIterator<Item = u16>) {
        for code in codes {
            self.fail_with(code, "Injected");
        }
    }

    /// Makes one of the next calls fail with this status code and message.
    pub fn fail_with(&self, code: u16, message: &str) {
        self.0.lock().faults.push_back((code, message.to_owned()));
    }

    /// Makes every request fail, or succeed again.
    pub fn set_unavailable(&self, unavailable: bool) {
        self.0.lock().unavailable = unavailable;
    }

    /// Leaves requests without a response.
    pub fn set_silent(&self, silent: bool) {
        self.0.lock().silent = silent;
    }

    /// Sets the creation time of objects, which is a fixed one otherwise.
    pub fn set_creation_time(&self, created_at: &str) {
        self.0.lock().created_at = Some(created_at.to_owned());
    }

    /// Method and path of all requests so far.
    pub fn calls(&self) -> Vec<(Method, String)> {
        self.0.lock().calls.clone()
    }

    /// Returns all objects.
    pub fn objects(&self) -> Vec<Value> {
        self.0.lock().objects.values().cloned().collect()
    }

    /// Returns the object at this path, which must exist.
    pub fn object(&self, path: &str) -> Value {
        self.0.lock().objects[path].clone()
    }

    /// Stores an object without checks and returns it with its new version.
    pub fn put(&self, path: &str, object: Value) -> Value {
        self.0.lock().store(path, object).1
    }

    pub fn delete(&self, path: &str) {
        self.0.lock().objects.remove(path);
    }

    /// Sets the log of a Pod by its path, such as `/api/v1/namespaces/ns/pods/a/log`. A reader that
    /// follows it gets what there is, as if the connection had broken then.
    pub fn set_log(&self, path: &str, log: &str) {
        self.0.lock().logs.insert(path.to_owned(), log.to_owned());
    }

    async fn answer(&self, request: Request<Body>) -> Response<Body> {
        let (head, body) = request.into_parts();
        if self.0.lock().silent {
            return std::future::pending().await;
        }
        let body = body.collect().await.unwrap().to_bytes();
        // The status is part of the object here.
        let path = head.uri.path();
        let path = path.strip_suffix("/status").unwrap_or(path);
        if let Some(log) = self
            .0
            .lock()
            .log(path, head.uri.query().unwrap_or_default())
        {
            return Response::new(Body::from(log.into_bytes()));
        }
        let sent: Value = serde_json::from_slice(&body).unwrap_or_default();
        let (code, object) = self.0.lock().act(&head.method, path, sent);
        let body = Body::from(serde_json::to_vec(&object).unwrap());
        Response::builder().status(code).body(body).unwrap()
    }
}

impl FakeApiState {
    fn act(&mut self, method: &Method, path: &str, sent: Value) -> (StatusCode, Value) {
        self.calls.push((method.clone(), path.to_owned()));
        if self.unavailable {
            return failure(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable");
        }
        if let Some((code, message)) = self.faults.pop_front() {
            return failure(StatusCode::from_u16(code).unwrap(), &message);
        }
        if *method == Method::POST {
            let path = format!("{path}/{}", sent["metadata"]["name"].as_str().unwrap());
            if self.objects.contains_key(&path) {
                return failure(StatusCode::CONFLICT, "AlreadyExists");
            }
            return self.store(&path, sent);
        }
        if *method == Method::GET && path.rsplit('/').nth(2) == Some("namespaces") {
            let items = self.objects.iter().filter(|(of, _)| of.starts_with(path));
            let items: Vec<_> = items.map(|(_, object)| object).collect();
            return (StatusCode::OK, json!({"metadata": {}, "items": items}));
        }
        let Some(mut object) = self.objects.get(path).cloned() else {
            return failure(StatusCode::NOT_FOUND, "NotFound");
        };
        let differs = |field: &str| sent["metadata"][field] != object["metadata"][field];
        match *method {
            Method::PUT if differs("resourceVersion") => failure(StatusCode::CONFLICT, "Conflict"),
            Method::PUT => self.store(path, sent),
            // A change of a Sandbox names its uid, because the name may be used again.
            Method::PATCH if path.rsplit('/').nth(1) == Some("sandboxes") && differs("uid") => {
                failure(StatusCode::CONFLICT, "Conflict")
            }
            Method::PATCH if leaves_stopped(&object, &sent) => {
                failure(StatusCode::UNPROCESSABLE_ENTITY, "Invalid")
            }
            Method::PATCH => {
                merge(&mut object, sent);
                self.store(path, object)
            }
            Method::DELETE => {
                self.objects.remove(path);
                (StatusCode::OK, object)
            }
            _ => (StatusCode::OK, object),
        }
    }

    /// End of a log as the query asks for it; the previous run has none.
    fn log(&mut self, path: &str, query: &str) -> Option<String> {
        let is_available = !self.unavailable && self.faults.is_empty();
        let log = self.logs.get(path).filter(|_| is_available)?;
        if query.contains("previous=true") {
            return None;
        }
        self.calls.push((Method::GET, path.to_owned()));
        let mut parameters = query.split('&');
        let tail = parameters.find_map(|pair| pair.strip_prefix("tailLines=")?.parse().ok());
        let lines: Vec<_> = log.split_inclusive('\n').collect();
        let cut = tail.map_or(0, |tail| lines.len().saturating_sub(tail));
        Some(lines[cut..].concat())
    }

    fn store(&mut self, path: &str, mut object: Value) -> (StatusCode, Value) {
        self.version += 1;
        let metadata = &mut object["metadata"];
        metadata["resourceVersion"] = self.version.to_string().into();
        if metadata["uid"].is_null() {
            metadata["uid"] = format!("uid-{}", self.version).into();
            let created_at = self.created_at.as_deref();
            metadata["creationTimestamp"] = created_at.unwrap_or("2026-01-02T03:04:05Z").into();
            metadata["namespace"] = path.rsplit('/').nth(2).into();
        }
        self.objects.insert(path.to_owned(), object.clone());
        (StatusCode::OK, object)
    }
}

/// Returns whether a change would end the state `Stopped` of a Sandbox, which the CRD forbids.
fn leaves_stopped(object: &Value, change: &Value) -> bool {
    let state = change["spec"]["state"].as_str();
    object["spec"]["state"] == "Stopped" && state.is_some_and(|state| state != "Stopped")
}

/// Applies a merge patch (RFC 7386).
fn merge(object: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
        *object = patch;
        return;
    };
    for (name, value) in patch {
        match value {
            Value::Null => drop(object.as_object_mut().and_then(|o| o.remove(&name))),
            value => merge(&mut object[name], value),
        }
    }
}

fn failure(code: StatusCode, reason: &str) -> (StatusCode, Value) {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": reason, "reason": reason, "code": code.as_u16(),
    });
    (code, status)
}
