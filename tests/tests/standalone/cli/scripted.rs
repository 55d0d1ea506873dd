//! A scripted gateway with one sandbox, for calls of the command on a terminal.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::{Json, Router};
use parking_lot::Mutex;
use pty_process::{Pty, Size};
use serde_json::{Value, json};
use tests::binaries::binary;
use tokio::net::TcpListener;
use tokio::process::Child;
use tokio::sync::Semaphore;

const ID: &str = "abcdefghijklmnop";

/// Gateway with the sandbox `demo`.
pub(super) struct Gateway {
    info: Mutex<Value>,
    /// Requests wait while it has no permit.
    pub(super) gate: Semaphore,
    address: SocketAddr,
}

impl Gateway {
    pub(super) async fn start(is_open: bool) -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let info = json!({
            "runtime_id": ID, "session_id": "demo", "url": format!("http://{address}/{ID}"),
            "session_api_key": "key", "status": "paused", "pod_status": "Not Found",
            "work_hosts": {format!("http://{address}/{ID}/work-1"): 12000},
        });
        let gateway = Arc::new(Self {
            info: Mutex::new(info),
            gate: Semaphore::new(usize::from(is_open)),
            address,
        });
        let router = Router::new()
            .fallback(answer)
            .with_state(Arc::clone(&gateway));
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        gateway
    }

    pub(super) fn change(&self, fields: Value) {
        let Value::Object(fields) = fields else {
            panic!("{fields}");
        };
        self.info.lock().as_object_mut().unwrap().extend(fields);
    }

    /// Address of a path of the sandbox.
    pub(super) fn url(&self, path: &str) -> String {
        format!("http://{}/{ID}/{path}", self.address)
    }

    /// Runs the command on a terminal.
    pub(super) fn run(&self, args: &[&str]) -> (Pty, Child) {
        let (pty, pts) = pty_process::open().unwrap();
        pty.resize(Size::new(30, 120)).unwrap();
        let child = pty_process::Command::new(binary("sandbox"))
            .args(args)
            .env("SANDBOX_API_URL", format!("http://{}", self.address))
            .env("SANDBOX_API_KEY", "key")
            .spawn(pts)
            .unwrap();
        (pty, child)
    }
}

async fn answer(State(gateway): State<Arc<Gateway>>, request: Request) -> Response {
    drop(gateway.gate.acquire().await.unwrap());
    let path = request.uri().path();
    match path {
        "/pause" => gateway.change(json!({"status": "paused", "pausing": true})),
        "/resume" => gateway.change(json!({"status": "starting", "status_detail": "pulling it"})),
        _ if path.starts_with("/runtime") || path.starts_with("/sessions/demo") => {}
        _ if path.ends_with("/vscode/connection_token") => {
            return Json(json!({"token": "t"})).into_response();
        }
        _ => {
            let is_sandbox = path.starts_with(&format!("/{ID}"));
            let status = if is_sandbox {
                StatusCode::SERVICE_UNAVAILABLE
            } else {
                StatusCode::NOT_FOUND
            };
            return (status, Json(json!({"detail": "not now"}))).into_response();
        }
    }
    Json(gateway.info.lock().clone()).into_response()
}
