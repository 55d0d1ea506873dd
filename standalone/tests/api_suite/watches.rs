use std::{pin::pin, time::Duration};

use futures::{Stream, StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, ResourceExt,
    api::{DynamicObject, Patch, PatchParams, PostParams, WatchEvent, WatchParams},
    runtime::{WatchStreamExt, watcher},
};
use serde_json::json;
use tokio::time::timeout;

use crate::fixtures::{create_widget, pod, pods, server, widgets};

type Line = kube::Result<WatchEvent<DynamicObject>>;

fn describe(line: Line) -> String {
    match line {
        Ok(WatchEvent::Added(object)) => format!("+{}", object.name_any()),
        Ok(WatchEvent::Modified(object)) => format!("~{}", object.name_any()),
        Ok(WatchEvent::Deleted(object)) => format!("-{}", object.name_any()),
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
    let patch = Patch::Merge(json!({"metadata": {"labels": {"l": value}}}));
    widgets(client)
        .patch(name, &PatchParams::default(), &patch)
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_watch_tells_what_is_and_what_changes() {
    let client = server().client();
    create_widget(&client, "a").await;
    let mut events = watch(&client, &WatchParams::default(), "0").await;
    assert_eq!(events.next().await.unwrap(), "+a");
    create_widget(&client, "b").await;
    label(&client, "a", Some("x")).await;
    widgets(&client)
        .delete("a", &kube::api::DeleteParams::default())
        .await
        .unwrap();
    assert_eq!(
        events.by_ref().take(3).collect::<Vec<_>>().await,
        ["+b", "~a", "-a"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_selector_turns_changes_into_comings_and_goings() {
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
        ["+a", "-a", "+a"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_watch_resumes_where_it_was_and_not_from_oblivion() {
    let server = server();
    let client = server.client();
    let first = create_widget(&client, "a")
        .await
        .resource_version()
        .unwrap();
    create_widget(&client, "b").await;
    let mut events = watch(&client, &WatchParams::default(), &first).await;
    assert_eq!(events.next().await.unwrap(), "+b");

    server.forget_history();
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
async fn a_watch_slower_than_the_history_is_told() {
    let mut options = standalone::api::Options::for_tests(crate::fixtures::definitions());
    options.history = 3;
    let client = standalone::api::EmbeddedApi::in_memory(options).client();
    let mut events = watch(&client, &WatchParams::default(), "0").await;
    for name in ["a", "b", "c", "d", "e"] {
        create_widget(&client, name).await;
    }
    assert_eq!(events.next().await.unwrap(), "!410");
    assert_eq!(events.next().await, None);
}

#[tokio::test(start_paused = true)]
async fn bookmarks_and_the_end_come_in_time() {
    let server = server();
    let client = server.client();
    let params = WatchParams::default().timeout(150);
    let mut events = watch(&client, &params, "0").await;
    pods(&client)
        .create(&PostParams::default(), &pod("elsewhere"))
        .await
        .unwrap();
    let bookmark = format!("@{}", server.revision());
    assert_eq!(
        events.by_ref().collect::<Vec<_>>().await,
        [bookmark.clone(), bookmark]
    );
}

#[tokio::test(start_paused = true)]
async fn lists_can_be_streamed() {
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
async fn lag_holds_events_back() {
    let server = server();
    let client = server.client();
    server.faults().set_watch_lag(Duration::from_secs(5));
    let mut events = watch(&client, &WatchParams::default(), "0").await;
    create_widget(&client, "a").await;
    assert!(
        timeout(Duration::from_secs(4), events.next())
            .await
            .is_err()
    );
    let waited = tokio::time::Instant::now();
    assert_eq!(events.next().await.unwrap(), "+a");
    assert_eq!(waited.elapsed().as_secs(), 1);
}

#[tokio::test(start_paused = true)]
async fn kube_watchers_survive_drops_and_compaction() {
    let server = server();
    let client = server.client();
    let api: Api<Pod> = pods(&client);
    for config in [
        watcher::Config::default(),
        watcher::Config::default().streaming_lists(),
    ] {
        let mut names = pin!(
            watcher(api.clone(), config)
                .default_backoff()
                .applied_objects()
                .filter_map(async |pod| pod.ok())
                .map(|pod| pod.name_any())
        );
        let name = format!("p{}", server.revision());
        api.create(&PostParams::default(), &pod(&name))
            .await
            .unwrap();
        while names.next().await.unwrap() != name {}
        server.forget_history();
        server.faults().drop_watches();
        let late = format!("{name}-late");
        api.create(&PostParams::default(), &pod(&late))
            .await
            .unwrap();
        while names.next().await.unwrap() != late {}
    }
}

#[tokio::test(start_paused = true)]
async fn metadata_alone_can_be_watched() {
    let client = server().client();
    pods(&client)
        .create(&PostParams::default(), &pod("p"))
        .await
        .unwrap();
    let events = pods(&client)
        .watch_metadata(&WatchParams::default(), "0")
        .await
        .unwrap();
    let first = pin!(events).try_next().await.unwrap();
    assert!(matches!(first, Some(WatchEvent::Added(meta)) if meta.name_any() == "p"));
}

#[tokio::test(start_paused = true)]
async fn a_long_list_comes_in_pages_and_nothing_is_missed_meanwhile() {
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
        // What is made behind the reader's back is told by a watch from there.
        create_widget(&client, &format!("a{}", pages.len())).await;
    }
    assert_eq!(pages, [vec!["a", "b"], vec!["c", "d"], vec!["e"]]);
    let mut events = watch(&client, &WatchParams::default(), &revision).await;
    assert_eq!(events.next().await.unwrap(), "+a1");
    assert_eq!(events.next().await.unwrap(), "+a2");

    let params = kube::api::ListParams::default().continue_token("nonsense");
    assert!(matches!(api.list(&params).await, Err(kube::Error::Api(status)) if status.code == 400));
}
