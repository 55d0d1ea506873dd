//! Events: two groups with one storage, and retention.

use std::time::Duration;

use k8s_openapi::api::{core::v1 as core, events::v1 as events};
use kube::{Api, Client, api::ListParams};
use serde_json::json;
use tokio::time::advance;

use super::fixtures::{ApiExt as _, object, server};

async fn create(client: &Client, name: &str) {
    let api: Api<events::Event> = Api::default_namespaced(client.clone());
    let event = object(json!({
        "metadata": {"name": name}, "eventTime": "2026-01-01T00:00:00.000000Z",
        "regarding": {"kind": "Widget", "name": "w", "namespace": "default", "uid": "u"},
        "reason": "Ready", "note": "it is ready", "type": "Normal", "action": "Start",
        "reportingController": "test", "reportingInstance": "me",
    }));
    api.add(&event).await;
}

async fn names(client: &Client, fields: &str) -> Vec<String> {
    let api: Api<core::Event> = Api::default_namespaced(client.clone());
    api.names(&ListParams::default().fields(fields)).await
}

#[tokio::test(start_paused = true)]
async fn events_are_selected_by_object_and_share_series() {
    let client = server().client();
    create(&client, "a").await;
    let of = "involvedObject.kind=Widget,involvedObject.name=w,involvedObject.uid=u";
    assert_eq!(names(&client, of).await, ["a"]);
    assert!(names(&client, "involvedObject.name=other").await.is_empty());

    let series = json!({"series": {"count": 3, "lastObservedTime": "2026-01-01T00:05:00.000000Z"}});
    let new: Api<events::Event> = Api::default_namespaced(client.clone());
    let event = new.change("a", series).await;
    assert_eq!(event.note.as_deref(), Some("it is ready"));
    let old: Api<core::Event> = Api::default_namespaced(client.clone());
    let event = old.get("a").await.unwrap();
    assert_eq!(event.series.unwrap().count, Some(3));
    assert_eq!(event.message.as_deref(), Some("it is ready"));
}

#[tokio::test(start_paused = true)]
async fn events_expire_after_ttl() {
    let client = server().client();
    create(&client, "once").await;
    create(&client, "again").await;
    advance(Duration::from_mins(50)).await;
    let series = json!({"series": {"count": 2, "lastObservedTime": "2026-01-01T00:50:00.000000Z"}});
    let api: Api<events::Event> = Api::default_namespaced(client.clone());
    api.change("again", series).await;
    advance(Duration::from_mins(15)).await;
    create(&client, "new").await;
    assert_eq!(names(&client, "").await, ["again", "new"]);
}

#[tokio::test(start_paused = true)]
async fn events_are_bounded_to_latest_thousand() {
    let client = server().client();
    for n in 0..1250 {
        create(&client, &format!("{n:04}")).await;
    }
    let left = names(&client, "").await;
    assert!((1000..=1100).contains(&left.len()), "{}", left.len());
    assert_eq!(left[0], format!("{:04}", 1250 - left.len()));
}
