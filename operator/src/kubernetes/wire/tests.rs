//! What the wire does to requests, in virtual time.

use axum::body::Body as Answer;
use bytes::Bytes;
use futures::StreamExt as _;
use http_body_util::BodyExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::PostParams;
use serde_json::json;

use super::*;
use crate::kubernetes::fake::FakeApi;

fn vitals() -> Arc<Vitals> {
    let vitals = Arc::new(Vitals::default());
    vitals.health.begin("pods", "pods".into());
    vitals
}

fn pod() -> Pod {
    serde_json::from_value(json!({"metadata": {"name": "a"}})).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_write_is_only_sent_while_the_tenure_holds() {
    let (api, vitals, tenure) = (FakeApi::default(), vitals(), Arc::new(Tenure::default()));
    let client = observed(&api.client(), &vitals, Some(tenure.clone()));
    let pods: Api<Pod> = Api::default_namespaced(client);
    let create = || async { pods.create(&PostParams::default(), &pod()).await };
    assert!(matches!(create().await, Err(kube::Error::Service(_))));
    assert!(pods.get_opt("a").await.unwrap().is_none());

    tenure.extend(Instant::now() + Duration::from_secs(4));
    create().await.unwrap();
    tokio::time::advance(Duration::from_secs(5)).await;
    let params = PostParams::default();
    let replaced = pods
        .replace("a", &params, &pods.get("a").await.unwrap())
        .await;
    assert!(matches!(replaced, Err(kube::Error::Service(_))));
    let text = vitals.metrics.encode().unwrap();
    for line in [
        r#"requests_total{verb="create",resource="pods",outcome="fenced"} 1"#,
        r#"requests_total{verb="create",resource="pods",outcome="ok"} 1"#,
        r#"requests_total{verb="update",resource="pods",outcome="fenced"} 1"#,
    ] {
        assert!(text.contains(line), "{line} is missing in\n{text}");
    }
}

/// A server that accepts requests and answers with this body, or not at all.
fn mute(body: Option<fn() -> Answer>) -> Client {
    let service = tower::service_fn(move |_: Request<Body>| async move {
        match body {
            Some(body) => Ok::<_, BoxError>(Response::new(body())),
            None => std::future::pending().await,
        }
    });
    Client::new(service, "ns")
}

#[tokio::test(start_paused = true)]
async fn a_server_that_says_nothing_is_given_up() {
    let vitals = vitals();
    let began = Instant::now();
    let pods: Api<Pod> = Api::default_namespaced(observed(&mute(None), &vitals, None));
    let params = kube::api::ListParams::default();
    assert!(pods.list(&params).await.is_err());
    assert_eq!(began.elapsed(), LONGEST);
    let watch = pods.watch(&kube::api::WatchParams::default(), "0").await;
    assert!(watch.is_err());
    assert_eq!(began.elapsed(), LONGEST * 2);
    let text = vitals.metrics.encode().unwrap();
    assert!(
        text.contains(r#"{verb="watch",resource="pods",outcome="no_answer"} 1"#),
        "{text}"
    );
}

fn endless() -> Answer {
    Answer::from_stream(futures::stream::pending::<Result<Bytes, BoxError>>())
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_does_not_end_is_given_up_and_a_watch_is_not() {
    let vitals = vitals();
    let client = observed(&mute(Some(endless)), &vitals, None);
    let began = Instant::now();
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    assert!(pods.list(&kube::api::ListParams::default()).await.is_err());
    assert_eq!(began.elapsed(), LONGEST);

    let request = Request::get("/api/v1/pods?watch=true")
        .body(Body::empty())
        .unwrap();
    let mut body = client.send(request).await.unwrap().into_body();
    let silent = timeout(Duration::from_hours(1), body.frame()).await;
    assert!(silent.is_err());
}

fn bookmarks() -> Answer {
    Answer::from_stream(futures::stream::repeat(()).then(|()| async {
        tokio::time::sleep(Duration::from_mins(1)).await;
        Ok::<_, BoxError>(Bytes::from_static(b"{}"))
    }))
}

#[tokio::test(start_paused = true)]
async fn every_piece_of_a_watch_is_a_sign_of_life() {
    let vitals = vitals();
    let client = observed(&mute(Some(bookmarks)), &vitals, None);
    let request = Request::get("/api/v1/pods?watch=true")
        .body(Body::empty())
        .unwrap();
    let mut body = client.send(request).await.unwrap().into_body();
    for _ in 0..30 {
        body.frame().await.unwrap().unwrap();
        assert_eq!(vitals.health.ages(), [("pods", Duration::ZERO)]);
    }
    assert!(vitals.health.stuck().is_empty());
    drop(body);
    tokio::time::advance(Duration::from_mins(11)).await;
    assert_eq!(vitals.health.stuck().len(), 1);
}
