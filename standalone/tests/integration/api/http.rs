//! HTTP: response formats, malformed requests, a server below a path.

use std::{io, sync::Arc};

use axum::body::Body;
use futures::{FutureExt, StreamExt, future::BoxFuture, stream};
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use kube::{
    Client, Config,
    api::{ListParams, LogParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};
use standalone::api::{
    ContainerPath, EmbeddedApi, ExecCommand, Kubelet, LogError, LogQuery, LogStream, Session,
    kubeconfig,
};
use tower::ServiceExt;

use super::fixtures::{ApiExt as _, create_widget, message, pod, pods, server, widgets};

const WIDGETS: &str = "/apis/test.dev/v1/namespaces/default/widgets";

async fn send(
    server: &EmbeddedApi,
    request: http::request::Builder,
    body: impl Into<Body>,
) -> (StatusCode, Value) {
    let request = request.body(body.into()).unwrap();
    let response = server.clone().oneshot(request).await.unwrap();
    let status = response.status();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&bytes).unwrap())
}

fn post(path: &str) -> http::request::Builder {
    Request::post(path).header("content-type", "application/json")
}

#[tokio::test]
async fn malformed_body_returns_status() {
    let server = server();
    let deep = "[".repeat(100_000);
    for (code, body) in [
        (400, "{nonsense"),
        (400, "[]"),
        (400, ""),
        (400, &deep),
        (400, r#"{"kind":"Pod","apiVersion":"v1"}"#),
        (422, r#"{"spec":3}"#),
        (400, r#"{"metadata":3}"#),
        (413, &" ".repeat(4 << 20)),
    ] {
        reject(&server, code, post(WIDGETS), body.to_owned()).await;
    }
    let text = Request::post(WIDGETS).header("content-type", "text/plain");
    reject(&server, 415, text, "{}").await;
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    reject(&server, 405, post(definitions), "{}").await;
}

#[tokio::test]
async fn malformed_patch_returns_status() {
    let server = server();
    create_widget(&server.client(), "w").await;
    let item = format!("{WIDGETS}/w");
    let patch = |content_type: &str| Request::patch(&item).header("content-type", content_type);
    let missing = r#"[{"op":"remove","path":"/x/y"}]"#;
    for (code, content_type, body) in [
        (415, "application/json", "{}"),
        (400, "application/json-patch+json", "{}"),
        (422, "application/json-patch+json", missing),
        (400, "application/merge-patch+json", "7"),
        (400, "application/apply-patch+yaml", "{}"),
    ] {
        reject(&server, code, patch(content_type), body).await;
    }
    reject(&server, 405, Request::post(&item), "{}").await;
}

#[tokio::test]
async fn patch_cannot_inflate_object() {
    let server = server();
    create_widget(&server.client(), "w").await;
    let patch = || {
        Request::patch(format!("{WIDGETS}/w")).header("content-type", "application/json-patch+json")
    };
    let add = |path: &str, value: Value| json!({"op": "add", "path": path, "value": value});
    let mut doubling = vec![add("/spec/podTemplate", json!({"a": "x".repeat(1000)}))];
    for step in 0..40 {
        doubling.push(json!({"op": "copy", "from": "/spec/podTemplate",
            "path": format!("/spec/podTemplate/c{step}")}));
    }
    let nest = |levels: usize| (0..levels).fold(json!({}), |inner, _| json!({"a": inner}));
    let deep = json!([
        add("/spec/podTemplate", nest(60)),
        add(&format!("/spec/podTemplate{}/b", "/a".repeat(60)), nest(60))
    ]);
    reject(&server, 413, patch(), json!(doubling).to_string()).await;
    reject(&server, 400, patch(), deep.to_string()).await;
}

#[tokio::test]
async fn malformed_url_returns_status() {
    let server = server();
    for (code, rest) in [
        (400, "?labelSelector=a%20b"),
        (400, "?watch=1&resourceVersion=x"),
        (400, "?dryRun=Some"),
        (400, "?fieldSelector=spec.image%3Da"),
        (404, "/w/status/more"),
        (404, "/%ff%00"),
    ] {
        reject(&server, code, Request::get(format!("{WIDGETS}{rest}")), "").await;
    }
    for path in ["/nothing", "/widgets/w"] {
        let request = Request::get(format!("/apis/test.dev/v1{path}"));
        reject(&server, 404, request, "").await;
    }
    let protobuf = "application/vnd.kubernetes.protobuf";
    let request = Request::get(WIDGETS).header("accept", protobuf);
    reject(&server, 406, request, "").await;
}

async fn reject(
    server: &EmbeddedApi,
    code: u16,
    request: http::request::Builder,
    body: impl Into<Body>,
) {
    let (status, answer) = send(server, request, body).await;
    assert_eq!(status.as_u16(), code, "{answer}");
    assert!(
        answer["kind"] == "Status" && answer["code"] == code,
        "{answer}"
    );
}

#[tokio::test]
async fn warnings_are_sent_as_headers() {
    let body = json!({"metadata": {"name": "w"}, "spec": {"image": "a", "oops": 1}});
    let request = post(WIDGETS).body(Body::from(body.to_string())).unwrap();
    let response = server().oneshot(request).await.unwrap();
    let warning = r#"299 - "unknown field \"spec.oops\"""#;
    assert_eq!(response.headers()["warning"], warning);
}

#[tokio::test]
async fn list_returns_table_for_kubectl() {
    let server = server();
    create_widget(&server.client(), "w").await;
    let accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
    let (_, table) = send(&server, Request::get(WIDGETS).header("accept", accept), "").await;
    let columns = table["columnDefinitions"].as_array().unwrap().iter();
    let names: Vec<_> = columns.map(|column| &column["name"]).collect();
    assert_eq!(names, ["Name", "Phase", "Ready", "Replicas", "Age"]);
    let row = &table["rows"][0];
    assert_eq!(row["cells"], json!(["w", null, null, null, "0s"]));
    assert_eq!(row["object"]["kind"], "PartialObjectMetadata");
}

#[tokio::test]
async fn discovery_serves_kube_and_kubectl() {
    let server = server();
    let client = server.client();
    assert_eq!(client.apiserver_version().await.unwrap().major, "1");
    let groups = client.list_api_groups().await.unwrap().groups;
    assert!(groups.iter().any(|group| group.name == "test.dev"));
    let discovery = kube::Discovery::new(client).run().await.unwrap();
    let group = discovery.get("test.dev").unwrap();
    assert!(group.recommended_kind("Widget").is_some());
    for path in [
        "/openapi/v3",
        "/openapi/v3/apis/test.dev/v1",
        "/openapi/v2",
        "/api/v1",
        "/apis/test.dev",
    ] {
        assert_eq!(send(&server, Request::get(path), "").await.0, 200, "{path}");
    }
    reject(&server, 405, Request::delete("/api/v1"), "").await;
}

#[tokio::test]
async fn server_works_below_path() {
    let server = server();
    let app = axum::Router::new().nest("/secret", server.router());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/secret", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, app).await });
    let file = Kubeconfig::from_yaml(&kubeconfig(&url)).unwrap();
    let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await;
    let client = Client::try_from(config.unwrap()).unwrap();
    create_widget(&client, "w").await;
    let widgets = widgets(&client);
    assert_eq!(widgets.names(&ListParams::default()).await, ["w"]);
    let missing = "widgets.test.dev \"x\" not found";
    assert_eq!(message(widgets.get("x").await), missing);
}

struct Echo;

impl Kubelet for Echo {
    fn logs(
        &self,
        [namespace, pod, container]: ContainerPath,
        query: LogQuery,
    ) -> BoxFuture<'static, Result<LogStream, LogError>> {
        let text = format!("{namespace}/{pod}/{container} {:?}", query.tail);
        async move {
            if query.previous {
                Err(LogError::NotAvailable("never ran".into()))
            } else {
                Ok(stream::once(async { Ok(text.into()) }).boxed())
            }
        }
        .boxed()
    }

    fn exec(&self, _: ContainerPath, _: ExecCommand) -> BoxFuture<'static, io::Result<Session>> {
        async { Err(io::Error::other("no commands")) }.boxed()
    }
}

#[tokio::test]
async fn logs_are_read_from_node() {
    let server = server();
    let pods = pods(&server.client());
    pods.add(&pod("p")).await;
    assert!(message(pods.logs("p", &LogParams::default()).await).contains("no node"));
    server.serve_containers(Arc::new(Echo));
    let tail = LogParams {
        tail_lines: Some(3),
        ..LogParams::default()
    };
    let log = pods.logs("p", &tail).await.unwrap();
    assert_eq!(log, "default/p/c Some(3)");
    let previous = LogParams {
        previous: true,
        ..LogParams::default()
    };
    assert_eq!(message(pods.logs("p", &previous).await), "never ran");
    let other = LogParams {
        container: Some("x".into()),
        ..LogParams::default()
    };
    let refused = message(pods.logs("p", &other).await);
    assert_eq!(refused, "container x is not valid for pod p");
}

#[tokio::test]
async fn openapi_v2_is_served_as_protobuf_for_kubectl() {
    let accept = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
    let request = Request::get("/openapi/v2").header("accept", accept);
    let request = request.body(Body::empty()).unwrap();
    let response = server().oneshot(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    let media_type = response.headers()["content-type"].to_str().unwrap();
    assert!(
        !media_type.contains('@'),
        "clients cannot parse {media_type}"
    );
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    // Field 1 is `swagger`, field 2 a message that ends with the document.
    assert_eq!(bytes[..6], *b"\x0a\x032.0\x12");
    assert_eq!(usize::from(bytes[6]), bytes.len() - 7);
}
