//! Middleware in virtual time.

use axum::body::Body as ResponseBody;
use bytes::Bytes;
use futures::StreamExt as _;
use http_body_util::BodyExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::PostParams;
use serde_json::json;

use super::*;
use testing::FakeApi;

fn vitals() -> Arc<Diagnostics> {
    let vitals = Arc::new(Diagnostics::default());
    vitals.health.add_watch("pods", "pods".into());
    vitals
}

fn pod() -> Pod {
    serde_json::from_value(json!({"metadata": {"name": "a"}})).unwrap()
}

#[tokio::test(start_paused = true)]
async fn writes_are_sent_only_while_fence_is_open() {
    let (vitals, fence) = (vitals(), Arc::new(WriteFence::default()));
    let client = FakeApi::default().client();
    let client = instrument(&client, &vitals, Some(fence.clone()));
    let pods: Api<Pod> = Api::default_namespaced(client);
    let create = || async { pods.create(&PostParams::default(), &pod()).await };
    assert!(matches!(create().await, Err(kube::Error::Service(_))));
    assert!(pods.get_opt("a").await.unwrap().is_none());

    fence.extend(Instant::now() + Duration::from_secs(4));
    create().await.unwrap();
    tokio::time::advance(Duration::from_secs(5)).await;
    let (params, stored) = (PostParams::default(), pods.get("a").await.unwrap());
    let replaced = pods.replace("a", &params, &stored).await;
    assert!(matches!(replaced, Err(kube::Error::Service(_))));
    let text = vitals.metrics.encode().unwrap();
    for line in [
        r#"requests_total{verb="create",resource="pods",outcome="fenced"} 1"#,
        r#"requests_total{verb="create",resource="pods",outcome="ok"} 1"#,
        r#"requests_total{verb="update",resource="pods",outcome="fenced"} 1"#,
        r#"request_duration_seconds_bucket{le="0.005",verb="create",resource="pods"}"#,
    ] {
        assert!(text.contains(line), "{line} is missing in\n{text}");
    }
}

/// Server that accepts requests and responds with this body, or never.
fn silent_server(body: Option<fn() -> ResponseBody>) -> Client {
    let service = tower::service_fn(move |_: Request<Body>| async move {
        match body {
            Some(body) => Ok::<_, BoxError>(Response::new(body())),
            None => std::future::pending().await,
        }
    });
    Client::new(service, "ns")
}

#[tokio::test(start_paused = true)]
async fn silent_server_times_out() {
    let vitals = vitals();
    let started = Instant::now();
    let pods: Api<Pod> = Api::default_namespaced(instrument(&silent_server(None), &vitals, None));
    let params = kube::api::ListParams::default();
    assert!(pods.list(&params).await.is_err());
    assert_eq!(started.elapsed(), RESPONSE_TIMEOUT);
    let watch = pods.watch(&kube::api::WatchParams::default(), "0").await;
    assert!(watch.is_err());
    assert_eq!(started.elapsed(), RESPONSE_TIMEOUT * 2);
    let text = vitals.metrics.encode().unwrap();
    assert!(
        text.contains(r#"{verb="watch",resource="pods",outcome="no_answer"} 1"#),
        "{text}"
    );
}

/// Body of a watch of Pods.
async fn watch(client: &Client) -> Body {
    let request = Request::get("/api/v1/pods?watch=true").body(Body::empty());
    client.send(request.unwrap()).await.unwrap().into_body()
}

fn endless() -> ResponseBody {
    ResponseBody::from_stream(futures::stream::pending::<Result<Bytes, BoxError>>())
}

#[tokio::test(start_paused = true)]
async fn endless_body_times_out_and_silent_watch_ends() {
    let vitals = vitals();
    let client = instrument(&silent_server(Some(endless)), &vitals, None);
    let started = Instant::now();
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    assert!(pods.list(&kube::api::ListParams::default()).await.is_err());
    assert_eq!(started.elapsed(), RESPONSE_TIMEOUT);

    let (mut body, started) = (watch(&client).await, Instant::now());
    assert!(body.frame().await.is_none(), "a silent watch ends");
    assert_eq!(started.elapsed(), WATCH_SILENCE_LIMIT);
}

#[tokio::test(start_paused = true)]
async fn followed_log_has_no_time_limit() {
    let vitals = vitals();
    let client = instrument(&silent_server(Some(bookmarks)), &vitals, None);
    let read = async |query: &str| {
        let request = Request::get(format!("/api/v1/namespaces/ns/pods/a/log?{query}"));
        let request = request.body(Body::empty()).unwrap();
        let body = client.send(request).await.unwrap().into_body();
        let frames = BodyStream::new(body).take(5);
        frames.collect::<Vec<_>>().await
    };
    assert!(read("container=c").await[0].is_err(), "others have one");
    let frames = read("container=c&follow=true").await;
    assert!(frames.len() == 5 && frames.iter().all(Result::is_ok));
}

fn bookmarks() -> ResponseBody {
    ResponseBody::from_stream(futures::stream::repeat(()).then(|()| async {
        tokio::time::sleep(Duration::from_mins(1)).await;
        Ok::<_, BoxError>(Bytes::from_static(b"{}"))
    }))
}

#[tokio::test(start_paused = true)]
async fn watch_frames_update_watch_health() {
    let vitals = vitals();
    let client = instrument(&silent_server(Some(bookmarks)), &vitals, None);
    let mut body = watch(&client).await;
    for _ in 0..30 {
        body.frame().await.unwrap().unwrap();
        assert_eq!(vitals.health.watch_ages(), [("pods", Duration::ZERO)]);
    }
    assert!(vitals.health.liveness_failures().is_empty());
    drop(body);
    tokio::time::advance(Duration::from_mins(11)).await;
    assert_eq!(vitals.health.liveness_failures().len(), 1);
}
