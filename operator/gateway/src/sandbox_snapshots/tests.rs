//! Selectors and pages, which the fake API of other tests does not know, and the limit of lists.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::join_all;
use http::{Request, Response};
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use testing::FakeApi;

use super::*;

/// Access to an API server that answers the pages in turn, the last one for ever, and the queries
/// that it got.
fn snapshots(pages: Vec<Value>) -> (Snapshots, Arc<Mutex<Vec<String>>>) {
    let queries = Arc::<Mutex<Vec<String>>>::default();
    let (seen, pages) = (queries.clone(), Arc::new(pages));
    let service = tower::service_fn(move |request: Request<Body>| {
        let mut seen = seen.lock();
        let page = pages.get(seen.len()).or(pages.last()).unwrap();
        let body = serde_json::to_vec(page).unwrap();
        seen.push(request.uri().query().unwrap_or_default().to_owned());
        async move { Ok::<_, Infallible>(Response::new(Body::from(body))) }
    });
    let client = kube::Client::new(service, "ns");
    (Snapshots::new(&client, "ns"), queries)
}

fn object(name: &str, tenant: &str) -> Value {
    let status = json!({"phase": "Ready", "tenant": tenant, "template": {"image": "i"}});
    json!({"metadata": {"name": name}, "spec": {"sandbox": "s"}, "status": status})
}

fn page(token: &str, items: &[Value]) -> Value {
    json!({"metadata": {"continue": token}, "items": items})
}

#[tokio::test]
async fn list_has_all_pages_of_labelled_and_unlabelled_snapshots() {
    let (snapshots, queries) = snapshots(vec![
        page("next", &[object("b", "t")]),
        page("", &[object("c", "t"), object("moved", "other")]),
        page("", &[object("a", "t"), object("foreign", "other")]),
    ]);
    let listed = snapshots.list("t").await.unwrap();
    let names: Vec<_> = listed.iter().map(kube::ResourceExt::name_any).collect();
    assert_eq!(names, ["a", "b", "c"]);
    let templates = listed.iter().map(|snapshot| snapshot.status.as_ref());
    assert!(templates.flatten().all(|status| status.template.is_none()));
    let label = names::tenant_label("t");
    let own = format!("&labelSelector=openhands.dev%2Ftenant%3D{label}&limit=10");
    assert_eq!(
        *queries.lock(),
        [
            own.clone(),
            format!("{own}&continue=next"),
            "&labelSelector=%21openhands.dev%2Ftenant&limit=10".to_owned(),
        ]
    );
}

#[tokio::test]
async fn list_reads_a_bounded_number_of_pages() {
    let (snapshots, queries) = snapshots(vec![page("next", &[object("a", "other")])]);
    assert!(snapshots.list("t").await.unwrap().is_empty());
    assert_eq!(queries.lock().len(), 2 * MAX_PAGES);
}

#[tokio::test]
async fn snapshots_of_a_tenant_are_counted_by_label() {
    let full: Vec<_> = (0..100).map(|n| object(&n.to_string(), "t")).collect();
    let (snapshots, queries) = snapshots(vec![page("", &full[1..]), page("more", &full)]);
    snapshots.check_count("t").await.unwrap();
    let rejected = snapshots.check_count("t").await;
    assert!(matches!(rejected, Err(SnapshotError::TooMany { max: 100 })));
    let label = names::tenant_label("t");
    let expected = format!("&labelSelector=openhands.dev%2Ftenant%3D{label}&limit=100");
    assert_eq!(*queries.lock(), [&*expected, &*expected]);
}

#[tokio::test(start_paused = true)]
async fn lists_of_one_tenant_leave_room_for_others() {
    let api = FakeApi::default();
    api.set_silent(true);
    let snapshots = Snapshots::new(&api.client(), "ns");
    let mut waiting = pin!(join_all(
        (0..MAX_LISTS_PER_TENANT).map(|_| snapshots.list("a"))
    ));
    assert!(futures::poll!(waiting.as_mut()).is_pending());
    assert!(matches!(snapshots.list("a").now_or_never(), Some(Err(_))));
    assert!(snapshots.list("b").now_or_never().is_none());
    assert!(waiting.await.iter().all(Result::is_err));
    assert!(snapshots.list("a").now_or_never().is_none());
}
