use std::pin::pin;

use futures::{Stream, StreamExt, TryStreamExt};
use kube::{
    Client, ResourceExt,
    api::{DynamicObject, ListParams, WatchEvent, WatchParams},
};
use serde_json::json;

use super::fixtures::{ApiExt as _, api_error, create_widget, pod, pods, server, widgets};

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
    let events = widgets(client).watch(params, version).await.unwrap();
    Box::pin(events.map(describe))
}

async fn next<const N: usize>(events: &mut (impl Stream<Item = String> + Unpin)) -> [String; N] {
    let events: Vec<_> = events.take(N).collect().await;
    events.try_into().unwrap()
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
    widgets(&client).remove("a").await;
    assert_eq!(next(&mut events).await, ["+b", "~a", "-a:x"]);
}

#[tokio::test(start_paused = true)]
async fn watch_selector_maps_changes_to_added_and_deleted() {
    let client = server().client();
    let params = WatchParams::default().labels("l=x");
    let mut events = watch(&client, &params, "0").await;
    create_widget(&client, "a").await;
    for value in ["x", "x", "y", "x"] {
        label(&client, "a", Some(value)).await;
    }
    // The object that left the selector is sent as it was.
    assert_eq!(next(&mut events).await, ["+a", "-a:x", "+a"]);
}

#[tokio::test(start_paused = true)]
async fn watch_resumes_and_gets_410_after_compaction() {
    let server = server();
    let client = server.client();
    let first = create_widget(&client, "a").await;
    let first = first.resource_version().unwrap();
    create_widget(&client, "b").await;
    let mut events = watch(&client, &WatchParams::default(), &first).await;
    assert_eq!(events.next().await.unwrap(), "+b");

    server.compact();
    let mut late = watch(&client, &WatchParams::default(), &first).await;
    assert_eq!(late.next().await.unwrap(), "!410");
    assert_eq!(late.next().await, None);
    create_widget(&client, "c").await;
    // A live watch has missed nothing.
    assert_eq!(events.next().await.unwrap(), "+c");
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
    let all: Vec<_> = events.by_ref().collect().await;
    assert_eq!(all, [bookmark.clone(), bookmark]);
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
    let bookmark = format!("@{}", server.revision());
    assert_eq!(next(&mut events).await, ["+a", &bookmark]);
}

#[tokio::test(start_paused = true)]
async fn metadata_watch_sends_partial_objects() {
    let client = server().client();
    pods(&client).add(&pod("p")).await;
    let params = WatchParams::default();
    let events = pods(&client).watch_metadata(&params, "0").await.unwrap();
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
    let mut params = ListParams::default().limit(2);
    let mut pages = Vec::new();
    let mut revision = String::new();
    loop {
        let page = api.list(&params).await.unwrap();
        let names: Vec<_> = page.items.iter().map(ResourceExt::name_any).collect();
        pages.push(names);
        revision = page.metadata.resource_version.unwrap_or(revision);
        let Some(next) = page.metadata.continue_ else {
            break;
        };
        params = params.continue_token(&next);
        // A watch from the list's revision sees objects created between pages.
        create_widget(&client, &format!("a{}", pages.len())).await;
    }
    assert_eq!(pages, [vec!["a", "b"], vec!["c", "d"], vec!["e"]]);
    let mut events = watch(&client, &WatchParams::default(), &revision).await;
    assert_eq!(next(&mut events).await, ["+a1", "+a2"]);

    server.compact();
    for (token, code) in [(&*format!("{revision}.default/b"), 410), ("nonsense", 400)] {
        let params = ListParams::default().continue_token(token);
        assert_eq!(api_error(api.list(&params).await).0, code, "{token}");
    }
}
