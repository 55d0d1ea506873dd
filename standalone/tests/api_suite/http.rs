//! The wire: forms of answers, malformed requests, a server below a path.

use std::sync::Arc;

use axum::body::Body;
use bytes::Bytes;
use futures::{FutureExt, future::BoxFuture};
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt;
use kube::{
    Client, Config,
    api::{ListParams, LogParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};
use standalone::api::{EmbeddedApi, LogError, LogQuery, PodLogs, kubeconfig};
use tower::ServiceExt;

use crate::fixtures::{create_widget, message, pod, pods, server, widgets};

const WIDGETS: &str = "/apis/test.dev/v1/namespaces/default/widgets";

async fn send(
    server: &EmbeddedApi,
    request: http::request::Builder,
    body: impl Into<Body>,
) -> (StatusCode, Value) {
    let response = server
        .service()
        .oneshot(request.body(body.into()).unwrap())
        .await
        .unwrap();
    let status = response.status();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&bytes).unwrap())
}

fn post(path: &str) -> http::request::Builder {
    Request::post(path).header("content-type", "application/json")
}

#[tokio::test]
async fn malformed_bodies_get_a_status() {
    let server = server();
    let deep = "[".repeat(100_000);
    let answers = [
        (400, send(&server, post(WIDGETS), "{nonsense").await),
        (400, send(&server, post(WIDGETS), "[]").await),
        (400, send(&server, post(WIDGETS), "").await),
        (400, send(&server, post(WIDGETS), deep).await),
        (
            400,
            send(
                &server,
                post(WIDGETS),
                r#"{"kind":"Pod","apiVersion":"v1"}"#,
            )
            .await,
        ),
        (422, send(&server, post(WIDGETS), r#"{"spec":3}"#).await),
        (400, send(&server, post(WIDGETS), r#"{"metadata":3}"#).await),
        (413, send(&server, post(WIDGETS), vec![b' '; 4 << 20]).await),
        (
            415,
            send(
                &server,
                Request::post(WIDGETS).header("content-type", "text/plain"),
                "{}",
            )
            .await,
        ),
        (
            405,
            send(
                &server,
                post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions"),
                "{}",
            )
            .await,
        ),
    ];
    assert_refused(&answers);
}

#[tokio::test]
async fn malformed_patches_get_a_status() {
    let server = server();
    create_widget(&server.client(), "w").await;
    let item = format!("{WIDGETS}/w");
    let patch = |content_type: &str| Request::patch(&item).header("content-type", content_type);
    let answers = [
        (415, send(&server, patch("application/json"), "{}").await),
        (
            400,
            send(&server, patch("application/json-patch+json"), "{}").await,
        ),
        (
            422,
            send(
                &server,
                patch("application/json-patch+json"),
                r#"[{"op":"remove","path":"/x/y"}]"#,
            )
            .await,
        ),
        (
            400,
            send(&server, patch("application/merge-patch+json"), "7").await,
        ),
        (
            400,
            send(&server, patch("application/apply-patch+yaml"), "{}").await,
        ),
        (405, send(&server, Request::post(&item), "{}").await),
    ];
    assert_refused(&answers);
}

#[tokio::test]
async fn objects_cannot_be_blown_up() {
    let server = server();
    create_widget(&server.client(), "w").await;
    let patch = || {
        Request::patch(format!("{WIDGETS}/w")).header("content-type", "application/json-patch+json")
    };
    let add = |path: &str, value: Value| json!({"op": "add", "path": path, "value": value});
    let mut doubling = vec![add("/spec/podTemplate", json!({"a": "x".repeat(1000)}))];
    for step in 0..40 {
        doubling.push(json!({"op": "copy", "from": "/spec/podTemplate", "path": format!("/spec/podTemplate/c{step}")}));
    }
    let nest = |levels: usize| (0..levels).fold(json!({}), |inner, _| json!({"a": inner}));
    let deep = json!([
        add("/spec/podTemplate", nest(60)),
        add(&format!("/spec/podTemplate{}/b", "/a".repeat(60)), nest(60))
    ]);
    let answers = [
        (
            413,
            send(&server, patch(), json!(doubling).to_string()).await,
        ),
        (400, send(&server, patch(), deep.to_string()).await),
    ];
    assert_refused(&answers);
}

#[tokio::test]
async fn malformed_addresses_get_a_status() {
    let server = server();
    let get = |path: &str| Request::get(format!("{WIDGETS}{path}"));
    let answers = [
        (400, send(&server, get("?labelSelector=a%20b"), "").await),
        (
            400,
            send(&server, get("?watch=1&resourceVersion=x"), "").await,
        ),
        (400, send(&server, get("?dryRun=Some"), "").await),
        (
            406,
            send(
                &server,
                get("").header("accept", "application/vnd.kubernetes.protobuf"),
                "",
            )
            .await,
        ),
        (404, send(&server, get("/w/status/more"), "").await),
        (404, send(&server, get("/%ff%00"), "").await),
        (
            404,
            send(&server, Request::get("/apis/test.dev/v1/nothing"), "").await,
        ),
        (
            404,
            send(&server, Request::get("/apis/test.dev/v1/widgets/w"), "").await,
        ),
    ];
    assert_refused(&answers);
}

fn assert_refused(answers: &[(u16, (StatusCode, Value))]) {
    for (number, (expected, (status, body))) in answers.iter().enumerate() {
        assert_eq!(status.as_u16(), *expected, "answer {number}: {body}");
        assert!(
            body["kind"] == "Status" && body["code"] == *expected,
            "answer {number}: {body}"
        );
    }
}

#[tokio::test]
async fn warnings_are_headers() {
    let request = post(WIDGETS)
        .body(Body::from(
            r#"{"metadata":{"name":"w"},"spec":{"image":"a","oops":1}}"#,
        ))
        .unwrap();
    let response = server().service().oneshot(request).await.unwrap();
    assert_eq!(
        response.headers()["warning"],
        r#"299 - "unknown field \"spec.oops\"""#
    );
}

#[tokio::test]
async fn kubectl_gets_tables() {
    let server = server();
    create_widget(&server.client(), "w").await;
    let accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
    let (_, table) = send(&server, Request::get(WIDGETS).header("accept", accept), "").await;
    let names: Vec<_> = table["columnDefinitions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|column| &column["name"])
        .collect();
    assert_eq!(names, ["Name", "Phase", "Ready", "Replicas", "Age"]);
    assert_eq!(
        table["rows"][0]["cells"],
        json!(["w", null, null, null, "0s"])
    );
    assert_eq!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
}

#[tokio::test]
async fn discovery_answers_kube_and_kubectl() {
    let server = server();
    let client = server.client();
    assert_eq!(client.apiserver_version().await.unwrap().major, "1");
    let groups = client.list_api_groups().await.unwrap().groups;
    assert!(groups.iter().any(|group| group.name == "test.dev"));
    let discovery = kube::Discovery::new(client).run().await.unwrap();
    assert!(
        discovery
            .get("test.dev")
            .unwrap()
            .recommended_kind("Widget")
            .is_some()
    );
    for path in [
        "/openapi/v3",
        "/openapi/v3/apis/test.dev/v1",
        "/openapi/v2",
        "/api/v1",
        "/apis/test.dev",
    ] {
        assert_eq!(send(&server, Request::get(path), "").await.0, 200, "{path}");
    }
    let (status, _) = send(
        &server,
        Request::builder().method(Method::DELETE).uri("/api/v1"),
        "",
    )
    .await;
    assert_eq!(status, 405);
}

#[tokio::test]
async fn the_server_works_below_a_path() {
    let server = server();
    let app = axum::Router::new().nest("/secret", server.router());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/secret", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, app).await });
    let file = Kubeconfig::from_yaml(&kubeconfig(&url)).unwrap();
    let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
        .await
        .unwrap();
    let client = Client::try_from(config).unwrap();
    create_widget(&client, "w").await;
    assert_eq!(
        widgets(&client)
            .list(&ListParams::default())
            .await
            .unwrap()
            .items
            .len(),
        1
    );
    assert_eq!(
        message(widgets(&client).get("x").await),
        "widgets.test.dev \"x\" not found"
    );
}

struct Echo;

impl PodLogs for Echo {
    fn read<'a>(
        &'a self,
        namespace: &'a str,
        pod: &'a str,
        query: &'a LogQuery,
    ) -> BoxFuture<'a, Result<Bytes, LogError>> {
        let text = format!("{namespace}/{pod} {:?} {:?}", query.tail, query.previous);
        async move {
            if query.previous {
                Err(LogError::NotAvailable("never ran".into()))
            } else {
                Ok(text.into())
            }
        }
        .boxed()
    }
}

#[tokio::test]
async fn logs_come_from_the_node() {
    let server = server();
    let pods = pods(&server.client());
    pods.create(&PostParams::default(), &pod("p"))
        .await
        .unwrap();
    assert!(message(pods.logs("p", &LogParams::default()).await).contains("no node"));
    server.serve_logs(Arc::new(Echo));
    let tail = LogParams {
        tail_lines: Some(3),
        ..LogParams::default()
    };
    assert_eq!(
        pods.logs("p", &tail).await.unwrap(),
        "default/p Some(3) false"
    );
    let previous = LogParams {
        previous: true,
        ..LogParams::default()
    };
    assert_eq!(message(pods.logs("p", &previous).await), "never ran");
    let other = LogParams {
        container: Some("x".into()),
        ..LogParams::default()
    };
    assert_eq!(
        message(pods.logs("p", &other).await),
        "container x is not valid for pod p"
    );
}
