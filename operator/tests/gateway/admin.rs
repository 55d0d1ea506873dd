//! Warm runtime configs, administration, images and the document, as clients see them.

use crate::support::socket_fixture::SocketFixture;
use axum::body::Body;
use http::Request;
use operator::gateway::ApiSettings;
use ring::pbkdf2;
use serde_json::{Value, json};
use testing::FakeApi;

use crate::support::gateway_fixture::{GatewayFixture, KEY, read};

const PASSWORD: &str = "open sesame";
const CONFIGS: &str = "/api/warm-runtime-configs";
const STORED_CONFIGS: &str = "/api/admin/warm-runtime-configs";

fn settings() -> ApiSettings {
    ApiSettings {
        admin_password: Some(PASSWORD.to_owned().into()),
        ..ApiSettings::default()
    }
}

/// Stores a pool, as kubectl would.
fn put_pool(api: &FakeApi, name: &str, spec: &Value) {
    let path = "/apis/openhands.dev/v1alpha1/namespaces/sandboxes/sandboxpools";
    let object = json!({"metadata": {"name": name}, "spec": spec});
    api.put(&format!("{path}/{name}"), object);
}

fn administered(api: &FakeApi) -> GatewayFixture {
    GatewayFixture::of(api, settings())
}

/// Sends a call with this bearer token and without an API key.
async fn call(fixture: &GatewayFixture, token: &str, target: &str, body: Value) -> (u16, Value) {
    let (method, path) = target.split_once(' ').unwrap();
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("host", "api.example.com")
        .header("authorization", format!("Bearer {token}"))
        .body(Body::from(body.to_string()))
        .unwrap();
    read(fixture.send(request).await).await
}

/// Logs in with challenge and proof.
async fn login(fixture: &GatewayFixture, password: &str) -> (u16, Value) {
    let (code, challenge) = call(fixture, "", "GET /api/admin/challenge", Value::Null).await;
    assert_eq!(code, 200, "{challenge}");
    let text = |field: &str| challenge[field].as_str().unwrap().to_owned();
    let rounds = u32::try_from(challenge["iterations"].as_u64().unwrap()).unwrap();
    let salt = text("salt") + &text("challenge");
    let mut hash = [0; 32];
    pbkdf2::derive(
        pbkdf2::PBKDF2_HMAC_SHA256,
        rounds.try_into().unwrap(),
        salt.as_bytes(),
        password.as_bytes(),
        &mut hash,
    );
    let hash = data_encoding::HEXLOWER.encode(&hash);
    let answer = json!({"challenge": challenge["challenge"], "hash": hash});
    call(fixture, "", "POST /api/admin/login", answer).await
}

#[tokio::test]
async fn administrator_logs_in_and_stores_configs() {
    let fixture = administered(&FakeApi::default());
    let (code, answer) = login(&fixture, PASSWORD).await;
    assert_eq!(code, 200);
    let token = answer["token"].as_str().unwrap();
    let config = json!({
        "image": "i", "environment": {"A": "1"}, "working_dir": "/workspace/project",
        "run_as_user": 10001, "fs_group": 10001, "count": 2,
    });
    let stored = json!({
        "name": "v1_current", "image": "i", "command": null, "environment": {"A": "1"},
        "working_dir": "/workspace/project", "run_as_user": 10001, "run_as_group": null,
        "fs_group": 10001, "count": 2, "source": "db",
    });
    let put = format!("PUT {STORED_CONFIGS}/v1%5Fcurrent");
    let answer = call(&fixture, token, &put, config).await;
    assert_eq!(answer, (200, stored.clone()));
    let object = fixture.api.objects()[0]["metadata"]["name"].clone();
    let id = object.as_str().unwrap().strip_prefix("config-");
    assert!(id.is_some_and(crds::names::is_runtime_id), "{object}");
    assert_eq!(fixture.found(CONFIGS).await, json!({"configs": [stored]}));

    let prestart = || fixture.api.objects()[0]["spec"]["prestart"].clone();
    let server = json!({"image": "i", "command": ["/usr/local/bin/openhands-agent-server"]});
    assert_eq!(call(&fixture, token, &put, server).await.0, 200);
    assert_eq!(prestart(), "AgentServer");
    let command = json!({"image": "j", "command": ["a", "b"]});
    let (code, changed) = call(&fixture, token, &put, command).await;
    let fields = ["command", "environment", "run_as_user"].map(|field| &changed[field]);
    assert_eq!((code, json!(fields)), (200, json!([["a", "b"], {}, null])));
    assert_eq!(fixture.found(CONFIGS).await, json!({"configs": [changed]}));
    assert_eq!(prestart(), Value::Null);

    let delete = put.replace("PUT", "DELETE");
    let (code, answer) = call(&fixture, token, &delete, Value::Null).await;
    assert!(code == 200 && answer["message"].is_string(), "{answer}");
    assert_eq!(fixture.found(CONFIGS).await, json!({"configs": []}));
    assert_eq!(call(&fixture, token, &delete, Value::Null).await.0, 404);

    let (code, keys) = call(&fixture, token, "GET /api/admin/api-keys", Value::Null).await;
    let default = json!({
        "id": "default", "name": "default", "key_value": "",
        "max_runtimes": null, "remaining_credits": null,
    });
    assert_eq!((code, &keys[0]), (200, &default));
}

/// The rules of the CRD are held by a test with a real API server (`replay_admin.rs`).
#[tokio::test]
async fn invalid_warm_configs_are_rejected() {
    let fixture = administered(&FakeApi::default());
    let token = login(&fixture, PASSWORD).await.1["token"].clone();
    let token = token.as_str().unwrap();
    let good = json!({"image": "debian:12", "command": ["true"], "working_dir": "/workspace"});
    let put = format!("PUT {STORED_CONFIGS}/a");
    for (fields, values) in [
        (
            "run_as_user run_as_group fs_group",
            json!(["x", 1.5, [], u64::MAX]),
        ),
        (
            "image command environment working_dir",
            json!([7, true, [7]]),
        ),
        (
            "environment",
            json!([{"": "x"}, {"A=B": "x"}, {"A": "\u{0}"}, {"A": 1}]),
        ),
        ("image", json!([null])),
        ("fuse_s3_mount", json!([true])),
        ("count", json!(["x", 1.5, -1, [], u64::MAX])),
    ] {
        for field in fields.split(' ') {
            for value in values.as_array().unwrap() {
                let mut config = good.clone();
                config[field] = value.clone();
                let (code, answer) = call(&fixture, token, &put, config).await;
                assert_eq!(code, 400, "{field}={value}: {answer}");
                assert!(answer["detail"].is_string(), "{answer}");
            }
        }
    }
    for body in [json!(null), json!([]), json!({}), json!("a")] {
        assert_eq!(call(&fixture, token, &put, body).await.0, 400);
    }
    let long = "x".repeat(129);
    let refused = format!("%00 a%0Ab %ff {long}");
    for (names, status) in [(&*refused, 400), ("a%2Fb a/b .. %C3%BC a%20b", 200)] {
        for name in names.split(' ') {
            let put = format!("PUT {STORED_CONFIGS}/{name}");
            let stored = call(&fixture, token, &put, good.clone()).await.0;
            assert_eq!(stored, status, "{name}");
            let delete = put.replace("PUT", "DELETE");
            let deleted = call(&fixture, token, &delete, Value::Null).await.0;
            assert_eq!(deleted == 200, status == 200, "{name}: {deleted}");
        }
    }
    assert!(fixture.api.objects().is_empty());
}

#[tokio::test]
async fn admin_api_requires_password_and_token() {
    let fixture = administered(&FakeApi::default());
    assert_eq!(login(&fixture, "guess").await.0, 401);
    let logins = json!([
        {}, [], {"challenge": ""}, {"challenge": 7, "hash": "00"}, {"challenge": "x", "hash": null},
        {"challenge": "x", "hash": "00"}, {"challenge": "\u{0}", "hash": "zz"},
        {"challenge": "ü.ü.ü", "hash": "ü"},
    ]);
    for body in logins.as_array().unwrap() {
        let (code, answer) = call(&fixture, "", "POST /api/admin/login", body.clone()).await;
        assert_eq!(code, 400, "{answer}");
        assert!(answer["detail"].is_string());
    }
    let closed = GatewayFixture::new();
    let long = "a".repeat(16_000);
    for request in [
        "PUT /api/admin/warm-runtime-configs/a",
        "DELETE /api/admin/warm-runtime-configs/a",
        "GET /api/admin/api-keys",
    ] {
        for token in ["", KEY, "x", "a.b.c", "e30.e30.e30", "....", &long] {
            let (code, answer) = call(&fixture, token, request, json!({})).await;
            assert_eq!(code, 401, "{request}");
            assert!(answer["detail"].is_string());
        }
        let (code, answer) = call(&closed, "", request, json!({})).await;
        assert_eq!(code, 403, "{request}");
        assert!(answer["detail"].as_str().unwrap().contains("admin"));
    }
    let (code, _) = call(&closed, "", "GET /api/admin/challenge", Value::Null).await;
    assert_eq!(code, 403);
}

#[tokio::test]
async fn login_bodies_are_small_and_not_read_while_admin_api_is_disabled() {
    let fixture = SocketFixture::new().await;
    let head = "POST /api/admin/login HTTP/1.1\nHost: gateway\nContent-Length: 2000000\n\n";
    let mut client = fixture.client(head).await;
    assert!(client.head().await.starts_with("http/1.1 403 "));
    let enabled = administered(&FakeApi::default());
    let large = json!({"challenge": "x".repeat(5000), "hash": ""});
    let (code, _) = call(&enabled, "", "POST /api/admin/login", large).await;
    assert_eq!(code, 413);
}

#[tokio::test]
async fn stored_configs_hide_applied_ones() {
    let api = FakeApi::default();
    let file = json!({"template": {"image": "file-a"}, "replicas": 1});
    put_pool(&api, "a", &file);
    put_pool(&api, "b", &json!({"template": {"image": "file-b"}}));
    let overlay = ApiSettings {
        warm_runtime_config_overlay: true,
        ..settings()
    };
    let hiding = administered(&api);
    let images = async |fixture: &GatewayFixture| {
        let answer = fixture.found(CONFIGS).await;
        let configs = answer["configs"].as_array().unwrap().iter();
        configs.map(|c| c["image"].clone()).collect::<Vec<_>>()
    };
    let listed = hiding.found(CONFIGS).await;
    assert_eq!(listed["configs"][0]["source"], "file");
    assert_eq!(images(&hiding).await, ["file-a", "file-b"]);
    let token = login(&hiding, PASSWORD).await.1["token"].clone();
    let change = async |method: &str, name: &str, body: Value| {
        let request = format!("{method} {STORED_CONFIGS}/{name}");
        call(&hiding, token.as_str().unwrap(), &request, body)
            .await
            .0
    };
    assert_eq!(change("PUT", "a", json!({"image": "stored"})).await, 200);
    assert_eq!(images(&hiding).await, ["stored"]);
    let overlaying = GatewayFixture::of(&api, overlay);
    assert_eq!(images(&overlaying).await, ["stored", "file-b"]);
    // Applied configs are unchanged.
    assert_eq!(change("DELETE", "a", Value::Null).await, 200);
    assert_eq!(images(&hiding).await, ["file-a", "file-b"]);
    assert_eq!(change("DELETE", "b", Value::Null).await, 404);
}

#[tokio::test(start_paused = true)]
async fn warm_configs_are_cached_during_api_outage() {
    let api = FakeApi::default();
    let fixture = GatewayFixture::of(&api, ApiSettings::default());
    api.set_unavailable(true);
    assert_eq!(fixture.get(CONFIGS).await.0, 503);
    api.set_unavailable(false);
    put_pool(&api, "a", &json!({"template": {"image": "i"}}));
    let known = fixture.get(CONFIGS).await;
    assert_eq!(
        (known.0, &known.1["configs"][0]["name"]),
        (200, &json!("a"))
    );
    api.set_unavailable(true);
    tokio::time::advance(std::time::Duration::from_mins(1)).await;
    assert_eq!(fixture.get(CONFIGS).await, known);
    let (code, answer) = fixture.call_as("wrong", "GET", CONFIGS, "").await;
    assert_eq!(code, 401);
    assert!(answer["detail"].as_str().unwrap().contains("valid API key"));
}

#[tokio::test(start_paused = true)]
async fn build_endpoints_return_501() {
    let fixture = GatewayFixture::new();
    let prefix = json!({"registry_prefix": "ghcr.io/openhands"});
    assert_eq!(fixture.get("/registry_prefix").await, (200, prefix));
    let form = "--x\r\ncontext";
    let (code, answer) = fixture.call_as(KEY, "POST", "/build", form).await;
    assert_eq!(code, 501);
    let detail = answer["detail"].as_str().unwrap();
    assert!(detail.contains("runtime_container_image"), "{detail}");
    assert_eq!(fixture.get("/build_status?build_id=1").await.0, 404);
    assert_eq!(fixture.get("/build_status").await.0, 400);
    assert_eq!(fixture.call_as("wrong", "POST", "/build", "x").await.0, 401);
}

#[tokio::test(start_paused = true)]
async fn openapi_document_matches_routes() {
    let fixture = GatewayFixture::new();
    let (code, document) = fixture.call_as("", "GET", "/openapi.json", "").await;
    assert_eq!(code, 200);
    for (path, methods) in document["paths"].as_object().unwrap() {
        let path = path.replace(['{', '}'], "");
        // The page is HTML; the end of the test reads it.
        let methods = methods.as_object().unwrap().keys();
        for method in methods.filter(|_| path != "/docs") {
            let method = method.to_uppercase();
            let (code, _) = fixture.call_as("", &method, &path, "{}").await;
            let known = ![404, 405].contains(&code);
            assert!(known, "{method} {path}: {code}");
        }
    }
    let page = Request::get("/docs").header("host", "api.example.com");
    let page = fixture.send(page.body(Body::empty()).unwrap()).await;
    assert_eq!(page.headers()["content-type"], "text/html; charset=utf-8");
    assert!(page.headers().contains_key("content-security-policy"));
}
