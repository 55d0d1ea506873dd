//! Scripted gateway with one sandbox, whose server it is as well.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use client::{Client, RuntimeInfo, Sandbox, Settings};
use serde_json::{Value, json};
use tokio::net::TcpListener;

/// Id of the sandbox.
pub(crate) const ID: &str = "abcdefghijklmnop";

/// Serves on a free port until the test ends.
pub(crate) async fn serve(router: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    address
}

pub(crate) fn client(address: SocketAddr) -> Client {
    let mut settings = Settings::new(&format!("http://{address}"), "api-key").unwrap();
    settings.recovery_timeout = Duration::from_secs(20);
    Client::new(settings).unwrap()
}

/// The sandbox as `/runtime` shows it.
pub(crate) fn info(address: SocketAddr, status: &str) -> Value {
    let pod_status = if status == "running" {
        "Ready"
    } else {
        "Not Found"
    };
    json!({
        "runtime_id": ID, "session_id": "s", "url": format!("http://{address}/{ID}"),
        "session_api_key": "session-key", "status": status, "pod_status": pod_status,
        "status_detail": null, "work_hosts": {format!("http://{address}/{ID}/work-1"): 12000},
        "incarnation": 1, "restart_count": 0, "restart_reasons": [], "container_statuses": [],
        "events": [], "pod_logs": "", "command": null, "image": "host", "working_dir": null,
        "resource_factor": 1, "runtime_class": null, "created_at": "2026-11-27T04:00:00Z",
    })
}

pub(crate) fn sandbox(address: SocketAddr) -> Sandbox {
    let info: RuntimeInfo = serde_json::from_value(info(address, "running")).unwrap();
    client(address).sandbox(info)
}

/// Path of the server in the sandbox.
pub(crate) fn path(path: &str) -> String {
    format!("/{ID}{path}")
}
