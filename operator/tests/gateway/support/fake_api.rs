//! The part of the Kubernetes API that the gateway uses, with injectable faults: create, get and
//! merge-patch of Sandboxes, and `SandboxPool`s.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use crds::Sandbox;
use crds::sandbox::SandboxStatus;
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};

/// A fake API server; clones share its state.
#[derive(Clone, Default)]
pub(crate) struct FakeApi {
    state: Arc<Mutex<FakeApiState>>,
}

#[derive(Default)]
struct FakeApiState {
    objects: BTreeMap<String, Value>,
    pools: BTreeMap<String, Value>,
    version: u64,
    faults: VecDeque<u16>,
    unavailable: bool,
    silent: bool,
    calls: Vec<(Method, String)>,
}

impl FakeApi {
    pub(crate) fn client(&self) -> kube::Client {
        let api = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let api = api.clone();
            async move { api.answer(request).await }
        });
        kube::Client::new(service, "sandboxes")
    }

    /// Makes the next calls fail with these status codes.
    pub(crate) fn fail(&self, codes: impl IntoIterator<Item = u16>) {
        self.state.lock().faults.extend(codes);
    }

    /// Makes every call fail.
    pub(crate) fn set_unavailable(&self, unavailable: bool) {
        self.state.lock().unavailable = unavailable;
    }

    /// Leaves calls without a response.
    pub(crate) fn set_silent(&self, silent: bool) {
        self.state.lock().silent = silent;
    }

    /// Method and object name of all calls so far.
    pub(crate) fn calls(&self) -> Vec<(Method, String)> {
        self.state.lock().calls.clone()
    }

    pub(crate) fn get(&self, name: &str) -> Sandbox {
        serde_json::from_value(self.state.lock().objects[name].clone()).unwrap()
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.state.lock().objects.keys().cloned().collect()
    }

    pub(crate) fn delete(&self, name: &str) {
        self.state.lock().objects.remove(name);
    }

    /// Stores an object, as kubectl would.
    pub(crate) fn put(&self, sandbox: &Sandbox) -> Sandbox {
        let mut state = self.state.lock();
        let object = serde_json::to_value(sandbox).unwrap();
        let name = sandbox.metadata.name.clone().unwrap();
        serde_json::from_value(state.store(&name, object)).unwrap()
    }

    /// Stores a pool, as kubectl would.
    pub(crate) fn put_pool(&self, name: &str, spec: &Value) {
        let object = json!({"metadata": {"name": name}, "spec": spec});
        self.state.lock().store_pool(name, object);
    }

    /// Writes a status, as the controller would.
    pub(crate) fn set_status(&self, name: &str, status: &SandboxStatus) -> Sandbox {
        let mut state = self.state.lock();
        let mut object = state.objects[name].clone();
        object["status"] = serde_json::to_value(status).unwrap();
        serde_json::from_value(state.store(name, object)).unwrap()
    }

    async fn answer(&self, request: Request<Body>) -> Result<Response<Full<Bytes>>, Infallible> {
        let (parts, body) = request.into_parts();
        if self.state.lock().silent {
            return std::future::pending().await;
        }
        let body = body.collect().await.unwrap().to_bytes();
        let (code, answer) = self
            .state
            .lock()
            .answer(&parts.method, parts.uri.path(), &body);
        let answer = Full::from(answer.to_string());
        Ok(Response::builder().status(code).body(answer).unwrap())
    }
}

impl FakeApiState {
    fn answer(&mut self, method: &Method, path: &str, body: &Bytes) -> (u16, Value) {
        let rest = path
            .strip_prefix("/apis/openhands.dev/v1alpha1/namespaces/sandboxes/")
            .unwrap_or_else(|| panic!("unexpected path {path}"));
        let (plural, name) = rest.split_once('/').unwrap_or((rest, ""));
        let name = name.to_owned();
        if plural == "sandboxpools" && !self.unavailable {
            return self.answer_pools(method, &name, body);
        }
        self.calls.push((method.clone(), name.clone()));
        if self.unavailable {
            return failure(503, "ServiceUnavailable");
        }
        if let Some(code) = self.faults.pop_front() {
            return failure(code, "Injected");
        }
        match (method.as_str(), name.as_str()) {
            ("POST", "") => self.create(serde_json::from_slice(body).unwrap()),
            ("GET", name) => match self.objects.get(name) {
                Some(object) => (200, object.clone()),
                None => failure(404, "NotFound"),
            },
            ("PATCH", name) => self.patch(name, &serde_json::from_slice(body).unwrap()),
            other => panic!("unexpected call {other:?}"),
        }
    }

    fn answer_pools(&mut self, method: &Method, name: &str, body: &Bytes) -> (u16, Value) {
        let sent = || serde_json::from_slice::<Value>(body).unwrap();
        match (method.as_str(), name) {
            ("GET", "") => {
                let items: Vec<_> = self.pools.values().collect();
                (200, json!({"metadata": {}, "items": items}))
            }
            ("POST", "") => {
                let object = sent();
                let name = object["metadata"]["name"].as_str().unwrap().to_owned();
                self.store_pool(&name, object)
            }
            (method, name) => match (method, self.pools.get(name).cloned()) {
                (_, None) => failure(404, "NotFound"),
                ("GET", Some(pool)) => (200, pool),
                ("DELETE", Some(pool)) => {
                    self.pools.remove(name);
                    (200, pool)
                }
                ("PATCH", Some(mut pool)) => {
                    merge(&mut pool, sent());
                    self.store_pool(name, pool)
                }
                other => panic!("unexpected call {other:?}"),
            },
        }
    }

    fn store_pool(&mut self, name: &str, mut object: Value) -> (u16, Value) {
        object["metadata"]["uid"] = name.into();
        self.pools.insert(name.to_owned(), object.clone());
        (201, object)
    }

    fn create(&mut self, object: Value) -> (u16, Value) {
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        if self.objects.contains_key(&name) {
            return failure(409, "AlreadyExists");
        }
        (201, self.store(&name, object))
    }

    fn patch(&mut self, name: &str, patch: &Value) -> (u16, Value) {
        let Some(mut object) = self.objects.get(name).cloned() else {
            return failure(404, "NotFound");
        };
        if patch["metadata"]["uid"] != object["metadata"]["uid"] {
            return failure(409, "Conflict");
        }
        let state = patch["spec"]["state"].as_str();
        if object["spec"]["state"] == "Stopped" && state.is_some_and(|state| state != "Stopped") {
            return failure(422, "Invalid");
        }
        merge(&mut object, patch.clone());
        (200, self.store(name, object))
    }

    fn store(&mut self, name: &str, mut object: Value) -> Value {
        self.version += 1;
        let metadata = &mut object["metadata"];
        metadata["resourceVersion"] = self.version.to_string().into();
        if metadata["uid"].is_null() {
            metadata["uid"] = format!("uid-{}", self.version).into();
            metadata["creationTimestamp"] = "2026-01-02T03:04:05Z".into();
        }
        metadata["namespace"] = "sandboxes".into();
        self.objects.insert(name.to_owned(), object.clone());
        object
    }
}

/// A merge patch (RFC 7386).
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

fn failure(code: u16, reason: &str) -> (u16, Value) {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure",
        "code": code, "reason": reason, "message": "injected",
    });
    (code, status)
}
