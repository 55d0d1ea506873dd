use std::time::Duration;

use futures::StreamExt;
use http::StatusCode;
use kube::{
    api::{Patch, PatchParams, PostParams, WatchParams},
    client::Client,
};
use serde_json::json;
use standalone::api::{Failure, Outage, RequestInfo, Verb};
use tokio::time::timeout;

use super::fixtures::{ApiExt as _, api_error, create_widget, server, widget, widgets};

#[tokio::test]
async fn injected_failures_apply_to_next_requests() {
    let server = server();
    let client = server.client();
    create_widget(&client, "w").await;
    server
        .faults()
        .fail_next(2, Failure::Code(StatusCode::CONFLICT), |request| {
            request.verb == Verb::Patch && request.resource == "widgets"
        });
    let patch = Patch::Merge(json!({"spec": {"replicas": 2}}));
    for expected in [Some(409), Some(409), None] {
        let result = widgets(&client)
            .patch("w", &PatchParams::apply("me"), &patch)
            .await;
        assert_eq!(expected, result.is_err().then(|| api_error(result).0));
    }
    let writes = server.faults().writes();
    let patches: Vec<_> = writes
        .iter()
        .filter(|write| write.request.verb == Verb::Patch)
        .collect();
    assert_eq!(
        patches
            .iter()
            .map(|write| (write.status.as_u16(), write.changed))
            .collect::<Vec<_>>(),
        [(409, false), (409, false), (200, true)]
    );
    assert!(
        patches.iter().all(
            |write| write.request.manager == "me" && write.request.name.as_deref() == Some("w")
        )
    );
}

#[tokio::test]
async fn injected_response_loss_executes_request() {
    let server = server();
    let client = server.client();
    server
        .faults()
        .fail_next(1, Failure::DropResponse, |request| {
            request.verb == Verb::Create
        });
    assert!(
        widgets(&client)
            .create(&PostParams::default(), &widget("w"))
            .await
            .is_err()
    );
    assert!(widgets(&client).get("w").await.is_ok());
    server
        .faults()
        .fail_next(1, Failure::Refuse, RequestInfo::is_write);
    assert!(
        widgets(&client)
            .create(&PostParams::default(), &widget("x"))
            .await
            .is_err()
    );
    assert!(!widgets(&client).exists("x").await);
}

async fn get(client: &Client) -> kube::Result<Option<kube::api::DynamicObject>> {
    widgets(client).get_opt("w").await
}

#[tokio::test(start_paused = true)]
async fn outage_refuses_or_hangs_requests() {
    let server = server();
    let client = server.client();
    let mut events = widgets(&client)
        .watch(&WatchParams::default(), "0")
        .await
        .unwrap()
        .boxed();
    server.faults().set_outage(Outage::Hang);
    create_widget_later(&server).await;
    assert!(
        timeout(Duration::from_secs(30), get(&client))
            .await
            .is_err()
    );
    assert!(
        timeout(Duration::from_secs(30), events.next())
            .await
            .is_err()
    );
    server.faults().set_outage(Outage::Refuse);
    assert!(matches!(get(&client).await, Err(kube::Error::Service(_))));
    assert!(events.next().await.unwrap().is_err());
    assert!(events.next().await.is_none());
    server.faults().set_outage(Outage::None);
    assert!(get(&client).await.is_ok());
}

/// Starts a write that waits for the end of the outage.
async fn create_widget_later(server: &standalone::api::TestApi) {
    let client = server.client();
    tokio::spawn(async move {
        widgets(&client)
            .create(&PostParams::default(), &widget("later"))
            .await
    });
    tokio::task::yield_now().await;
}

#[tokio::test(start_paused = true)]
async fn latency_delays_requests() {
    let server = server();
    server.faults().set_latency(Duration::from_millis(20));
    let start = tokio::time::Instant::now();
    get(&server.client()).await.unwrap();
    assert_eq!(start.elapsed(), Duration::from_millis(20));
}
