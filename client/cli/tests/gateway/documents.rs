//! JSON documents that scripts read. A snapshot has every key, and a key that is there stays.

use std::sync::atomic::{AtomicU32, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::{program, serve};

fn runtime(url: &str) -> Value {
    json!({
        "runtime_id": "abcdefghijklmnop", "session_id": "demo", "url": format!("{url}/abcdefghijklmnop"),
        "session_api_key": "secret", "status": "running", "pod_status": "Ready", "persisted": {"level": "Root"},
    })
}

/// The n-th reading of the figures of a sandbox.
fn server_info(n: u32) -> Value {
    json!({
        "uptime": 10 + 2 * n, "idle_time": 0, "plugins": {"jupyter": "ready"},
        "resources": {
            "cpu_percent": 1.5, "memory": {"rss": 1, "vms": 2, "percent": 0.5},
            "disk": {"total": 9, "used": 4, "free": 5, "percent": 44.5},
            "io": {"read_bytes": 7, "write_bytes": 8},
        },
        "sandbox": {
            "cpu_seconds": 4 + 3 * n, "memory": {"used": 1, "limit": null}, "disk": {"used": 1, "total": 2},
        },
    })
}

/// A Secret with one API key.
fn api_keys() -> Value {
    let key = json!({
        "name": "alice", "sha256": "ab".repeat(32), "createdAt": "2026-11-27T03:00:00Z", "maxSandboxes": 2,
    });
    json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "sandbox-api-keys"},
        "data": {"keys.json": STANDARD.encode(json!([key]).to_string())},
    })
}

/// Returns the output of a command. One server is the gateway, the sandbox and the API server.
fn document(args: &[&str]) -> String {
    let readings = AtomicU32::new(0);
    let url = serve(move |line, _, url| {
        Some(match line.split([' ', '?']).nth(1).unwrap() {
            "/list" => json!({"total": 1, "runtimes": [runtime(url)]}),
            "/sessions/demo" => runtime(url),
            "/abcdefghijklmnop/server_info" => {
                server_info(readings.fetch_add(1, Ordering::Relaxed))
            }
            "/api/warm-runtime-configs" => json!({"configs": [{"name": "debian"}]}),
            "/api/v1/namespaces/sandbox-operator/secrets/sandbox-api-keys" => api_keys(),
            other => json!({"unexpected": other}),
        })
    });
    let kubeconfig = tempfile::NamedTempFile::new().unwrap();
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "test",
        "clusters": [{"name": "test", "cluster": {"server": url}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "users": [{"name": "test", "user": {}}],
    });
    std::fs::write(kubeconfig.path(), config.to_string()).unwrap();
    let output = program(&url, args)
        .env("KUBECONFIG", kubeconfig.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.replace(&url, "http://gateway")
}

#[test]
fn keys_of_describe_and_list_are_stable() {
    let sandbox = document(&["describe", "demo", "-o", "json"]);
    insta::assert_snapshot!(sandbox, @r#"
    {
      "runtime_id": "abcdefghijklmnop",
      "session_id": "demo",
      "url": "http://gateway/abcdefghijklmnop",
      "status": "running",
      "pod_status": "Ready",
      "status_detail": null,
      "work_hosts": {},
      "persisted": {
        "level": "Root",
        "at": null,
        "size": null,
        "reason": null
      },
      "restored": null,
      "incarnation": 0,
      "restart_count": 0,
      "restart_reasons": [],
      "container_statuses": [],
      "events": [],
      "pod_logs": "",
      "command": null,
      "image": null,
      "working_dir": null,
      "resource_factor": 1.0,
      "requested_cpu_millicores": null,
      "requested_memory_bytes": null,
      "runtime_class": null,
      "created_at": null,
      "started_at": null,
      "scheduled_at": null,
      "container_started_at": null,
      "ready_at": null,
      "idle_since": null
    }
    "#);
    let parse = |text: &str| serde_json::from_str::<Value>(text).unwrap();
    let list = parse(&document(&["list", "-o", "json"]));
    assert_eq!(list, json!({"total": 1, "runtimes": [parse(&sandbox)]}));
}

#[test]
fn keys_of_top_are_stable() {
    insta::assert_snapshot!(document(&["top", "-o", "json"]), @r#"
    {
      "sandboxes": [
        {
          "cpu_cores": 1.5,
          "runtime_id": "abcdefghijklmnop",
          "server": {
            "idle_time": 0.0,
            "plugins": {
              "jupyter": "ready"
            },
            "resources": {
              "cpu_percent": 1.5,
              "disk": {
                "free": 5,
                "percent": 44.5,
                "total": 9,
                "used": 4
              },
              "io": {
                "read_bytes": 7,
                "write_bytes": 8
              },
              "memory": {
                "percent": 0.5,
                "rss": 1,
                "vms": 2
              }
            },
            "sandbox": {
              "cpu_seconds": 7.0,
              "disk": {
                "total": 2,
                "used": 1
              },
              "memory": {
                "limit": null,
                "used": 1
              }
            },
            "shell": null,
            "uptime": 12.0
          },
          "session_id": "demo"
        }
      ]
    }
    "#);
}

#[test]
fn keys_of_pools_are_stable() {
    insta::assert_snapshot!(document(&["pools", "-o", "json"]), @r#"
    {
      "pools": [
        {
          "command": null,
          "count": 0,
          "environment": {},
          "fs_group": null,
          "image": "",
          "name": "debian",
          "run_as_group": null,
          "run_as_user": null,
          "source": "",
          "working_dir": null
        }
      ]
    }
    "#);
}

#[test]
fn keys_of_the_list_of_api_keys_are_stable() {
    insta::assert_snapshot!(document(&["keys", "list", "-o", "json"]), @r#"
    [
      {
        "callsPerSecond": null,
        "createdAt": "2026-11-27T03:00:00Z",
        "expiresAt": null,
        "fault": null,
        "id": "abababab",
        "imageBuilds": null,
        "maxCpu": null,
        "maxMemory": null,
        "maxSandboxes": 2,
        "maxTotalSandboxes": null,
        "maxWaiting": null,
        "name": "alice",
        "registryPrefix": null,
        "urlForm": null
      }
    ]
    "#);
}
