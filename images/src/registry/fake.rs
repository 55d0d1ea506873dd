//! Registry of this process, for tests, which misbehaves on demand.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use http::header::AUTHORIZATION;
use parking_lot::Mutex;
use tokio::net::TcpListener;

use super::{Registry, RegistrySettings};
use crate::Reference;

type Handler = Box<dyn Fn(&str, &Request) -> http::Response<Body> + Send + Sync>;

/// Registry whose answers come from a function of the path and the request.
pub(crate) struct FakeRegistry {
    pub(crate) host: String,
    pub(crate) seen: Arc<Seen>,
    task: tokio::task::JoinHandle<()>,
}

pub(crate) struct Seen {
    handler: Handler,
    pub(crate) requests: Mutex<Vec<(String, Option<String>)>>,
}

impl Drop for FakeRegistry {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl FakeRegistry {
    pub(crate) async fn start(
        handler: impl Fn(&str, &Request) -> http::Response<Body> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let seen = Arc::new(Seen {
            handler: Box::new(handler),
            requests: Mutex::default(),
        });
        let router = Router::new().fallback(answer).with_state(Arc::clone(&seen));
        let task = tokio::spawn(async { axum::serve(listener, router).await.unwrap() });
        Self { host, seen, task }
    }

    pub(crate) fn registry(&self) -> Registry {
        let settings = RegistrySettings {
            insecure: [self.host.clone()].into(),
            ..RegistrySettings::default()
        };
        Registry::with_pause(&settings, Duration::from_millis(1)).unwrap()
    }

    pub(crate) fn reference(&self, rest: &str) -> Reference {
        format!("{}/{rest}", self.host).parse().unwrap()
    }

    /// Paths and queries of the requests so far.
    pub(crate) fn paths(&self) -> Vec<String> {
        let requests = self.seen.requests.lock();
        requests.iter().map(|(path, _)| path.clone()).collect()
    }
}

async fn answer(State(seen): State<Arc<Seen>>, request: Request) -> http::Response<Body> {
    let path = request.uri().to_string();
    let authorization = request.headers().get(AUTHORIZATION);
    let authorization = authorization.map(|value| value.to_str().unwrap().to_owned());
    seen.requests.lock().push((path.clone(), authorization));
    (seen.handler)(&path, &request)
}

pub(crate) fn response(
    status: u16,
    headers: &[(&str, &str)],
    body: impl Into<Body>,
) -> http::Response<Body> {
    let mut response = http::Response::builder().status(status);
    for (name, value) in headers {
        response = response.header(*name, *value);
    }
    response.body(body.into()).unwrap()
}
