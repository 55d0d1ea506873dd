use std::pin::pin;

use futures::{Stream, StreamExt, TryStreamExt};
use kube::{
    Client, ResourceExt,
    api::{DynamicObject, WatchEvent, WatchParams},
};
use serde_json::json;

use super::fixtures::{ApiExt as _, create_widget, pod, pods, server, widgets};

type WatchResult = kube::Result<WatchEvent<DynamicObject>>;

fn describe(line: WatchResult) -> String {
    match line {
        Ok(WatchEvent::Added(object)) => format!("+{}", object.name_any()),
        Ok(WatchEvent::Modified(object)) => format!("~{}", object.name_any()),
        Ok(WatchEvent::Deleted(object)) => {
            let label = object.labels().get("l").map(|label| format!(":{label}"));
            format!("-{}{}", object.name_any(), label.unwrap_or_default())
        }
        Ok(WatchEvent::Bookmark(bookmark)) => format!("@{}", bookmark.metadata.resource_version),
        Ok(WatchEvent::Error(status)) => format!("!{}", status.code),
        Err(_) => "broken".into(),
    }
}

async fn watch(
    client: &Client,
    params: &WatchParams,
    version: &str,
) -> impl Stream<Item = String> + Unpin + use<> {
    Box::pin(
        widgets(client)
            .watch(params, version)
            .await
            .unwrap()
            .map(describe),
    )
}

async fn label(client: &Client, name: &str, value: Option<&str>) {
    let patch = json!({"metadata": {"labels": {"l": value}}});
    widgets(client).change(name, patch).await;
}

#[tokio::test(start_paused = true)]
async fn watch_sends_existing_objects_and_changes() {
    let client = server().client();
    create_widget(&client, "a").await;
    let mut events = watch(&client, &WatchParams::default(), "0").await;
    assert_eq!(events.next().await.unwrap(), "+a");
    create_widget(&client, "b").await;
    label(&client, "a", Some("x")).await;
    widgets(&client)
        .remove("a", kube::api::DeleteParams::default())
        .await;
    assert_eq!(
        events.by_ref().take(3).collect::<Vec<_>>().await,
        ["+b", "~a", "-a:x"]
    );
}

#[tokio::test(start_paused = true)]
async fn watch_selector_maps_changes_to_added_and_deleted() {
    let client = server().client();
    let params = WatchParams::default().labels("l=x");
    let mut events = watch(&client, &params, "0").await;
    create_widget(&client, "a").await;
    for value in [Some("x"), Some("x"), Some("y")] {
        label(&client, "a", value).await;
    }
    label(&client, "a", Some("x")).await;
    assert_eq!(
        events.by_ref().take(3).collect::<Vec<_>>().await,
        ["+a", "-a:x", "+a"],
        "the object that left the selector is sent as it was"
    );
}

#[tokio::test(start_paused = true)]
async fn watch_resumes_and_gets_410_after_compaction() {
    let server = server();
    let client = server.client();
    let first = create_widget(&client, "a")
        .await
        .resource_version()
        .unwrap();
    create_widget(&client, "b").await;
    let mut events = watch(&client, &WatchParams::default(), &first).await;
    assert_eq!(events.next().await.unwrap(), "+b");

    server.compact();
    let mut late = watch(&client, &WatchParams::default(), &first).await;
    assert_eq!(late.next().await.unwrap(), "!410");
    assert_eq!(late.next().await, None);
    create_widget(&client, "c").await;
    assert_eq!(
        events.next().await.unwrap(),
        "+c",
        "a live watch has missed nothing"
    );
}

#[tokio::test(start_paused = true)]
async fn slow_watch_gets_410() {
    let server = server();
    let client = server.client();
    let mut events = watch(&client, &WatchParams::default(), "0").await;
    create_widget(&client, "a").await;
    server.compact();
    assert_eq!(events.next().await.unwrap(), "!410");
    assert_eq!(events.next().await, None);
}

#[tokio::test(start_paused = true)]
async fn watch_sends_bookmarks_until_timeout() {
    let server = server();
    let client = server.client();
    let params = WatchParams::default().timeout(150);
    let mut events = watch(&client, &params, "0").await;
    pods(&client).add(&pod("elsewhere")).await;
    let bookmark = format!("@{}", server.revision());
    assert_eq!(
        events.by_ref().collect::<Vec<_>>().await,
        [bookmark.clone(), bookmark]
    );
}

#[tokio::test(start_paused = true)]
async fn streamed_list_ends_with_bookmark() {
    let server = server();
    let client = server.client();
    create_widget(&client, "a").await;
    let params = WatchParams {
        send_initial_events: true,
        ..WatchParams::default()
    };
    let mut events = watch(&client, &params, "0").await;
    assert_eq!(
        events.by_ref().take(2).collect::<Vec<_>>().await,
        ["+a".to_owned(), format!("@{}", server.revision())]
    );
}

#[tokio::test(start_paused = true)]
async fn metadata_watch_sends_partial_objects() {
    let client = server().client();
    pods(&client).add(&pod("p")).await;
    let events = pods(&client)
        .watch_metadata(&WatchParams::default(), "0")
        .await
        .unwrap();
    let first = pin!(events).try_next().await.unwrap();
    assert!(matches!(first, Some(WatchEvent::Added(meta)) if meta.name_any() == "p"));
}

#[tokio::test(start_paused = true)]
async fn paged_list_and_watch_miss_nothing() {
    let server = server();
    let client = server.client();
    for name in ["a", "b", "c", "d", "e"] {
        create_widget(&client, name).await;
    }
    let api = widgets(&client);
    let mut params = kube::api::ListParams::default().limit(2);
    let mut pages = Vec::new();
    let mut revision = String::new();
    loop {
        let page = api.list(&params).await.unwrap();
        pages.push(
            page.items
                .iter()
                .map(ResourceExt::name_any)
                .collect::<Vec<_>>(),
        );
        revision = page.metadata.resource_version.unwrap_or(revision);
        let Some(next) = page.metadata.continue_ else {
            break;
        };
        params = params.continue_token(&next);
        // A watch from the list's revision sees objects created between pages.
        create_widget(&client, &format!("a{}", pages.len())).await;
    }
    assert_eq!(pages, [vec!["a", "b"], vec!["c", "d"], vec!["e"]]);
    let first = revision.clone();
    let mut events = watch(&client, &WatchParams::default(), &revision).await;
    assert_eq!(events.next().await.unwrap(), "+a1");
    assert_eq!(events.next().await.unwrap(), "+a2");

    server.compact();
    let expired = kube::api::ListParams::default().continue_token(&format!("{first}.default/b"));
    assert!(
        matches!(api.list(&expired).await, Err(kube::Error::Api(status)) if status.code == 410)
    );
    let params = kube::api::ListParams::default().continue_token("nonsense");
    assert!(matches!(api.list(&params).await, Err(kube::Error::Api(status)) if status.code == 400));
}
