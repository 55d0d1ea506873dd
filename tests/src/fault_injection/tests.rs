use std::pin::pin;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use tokio::time::{Instant, timeout};

use super::*;

fn server() -> (TestApi, Api<ConfigMap>) {
    let server = TestApi::new(&[]);
    let configs = Api::default_namespaced(server.client());
    (server, configs)
}

async fn create(configs: &Api<ConfigMap>, name: &str) -> kube::Result<ConfigMap> {
    let config = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
    configs.create(&PostParams::default(), &config).await
}

#[tokio::test]
async fn injected_failures_apply_to_next_requests() {
    let (server, configs) = server();
    create(&configs, "c").await.unwrap();
    let fault = Failure::Code(StatusCode::CONFLICT);
    server.faults().fail_next(2, fault, |request| {
        request.verb == Verb::Patch && request.resource == "configmaps"
    });
    let patch = Patch::Merge(json!({"data": {"k": "v"}}));
    for expected in [Some(409), Some(409), None, None] {
        let result = configs.patch("c", &PatchParams::apply("me"), &patch).await;
        let code = result.err().map(|error| match error {
            kube::Error::Api(status) => status.code,
            other => panic!("not an answer of the server: {other}"),
        });
        assert_eq!(code, expected);
    }
    let mut writes = server.faults().writes();
    assert_eq!(writes.remove(0).request.name.as_deref(), Some("c"));
    let outcomes = writes
        .iter()
        .map(|write| (write.status.as_u16(), write.changed));
    let expected = [(409, false), (409, false), (200, true), (200, false)];
    assert_eq!(
        outcomes.collect::<Vec<_>>(),
        expected,
        "the last changes nothing"
    );
    for Write { request, .. } in &writes {
        assert_eq!(
            (request.manager.as_str(), request.name.as_deref()),
            ("me", Some("c"))
        );
    }
}

#[tokio::test]
async fn injected_response_loss_executes_request() {
    let (server, configs) = server();
    for (failure, is_executed) in [(Failure::DropResponse, true), (Failure::Refuse, false)] {
        server.faults().fail_next(1, failure, RequestInfo::is_write);
        let name = is_executed.to_string();
        create(&configs, &name).await.unwrap_err();
        assert_eq!(configs.get_opt(&name).await.unwrap().is_some(), is_executed);
    }
}

#[tokio::test(start_paused = true)]
async fn outage_refuses_or_hangs_requests() {
    const LIMIT: Duration = Duration::from_secs(30);
    let (server, configs) = server();
    let events = configs.watch(&WatchParams::default(), "0").await.unwrap();
    let mut events = pin!(events);
    server.faults().set_outage(Outage::Hang);
    let later = configs.clone();
    let created = tokio::spawn(async move { create(&later, "later").await });
    let list = ListParams::default();
    timeout(LIMIT, configs.list(&list)).await.unwrap_err();
    timeout(LIMIT, events.next()).await.unwrap_err();
    server.faults().set_outage(Outage::Refuse);
    assert!(matches!(
        configs.list(&list).await,
        Err(kube::Error::Service(_))
    ));
    assert!(created.await.unwrap().is_err());
    assert!(events.next().await.unwrap().is_err());
    assert!(events.next().await.is_none());
    server.faults().set_outage(Outage::None);
    configs.list(&list).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn latency_delays_requests_and_lag_delays_watch_events() {
    let (server, configs) = server();
    server.faults().set_watch_lag(Duration::from_secs(5));
    create(&configs, "initial").await.unwrap();
    let events = configs.watch(&WatchParams::default(), "0").await.unwrap();
    let mut events = pin!(events);
    server.faults().set_latency(Duration::from_millis(20));
    let start = Instant::now();
    assert!(matches!(
        events.next().await,
        Some(Ok(WatchEvent::Added(_)))
    ));
    create(&configs, "c").await.unwrap();
    assert_eq!(start.elapsed(), Duration::from_millis(20));
    timeout(Duration::from_secs(4), events.next())
        .await
        .unwrap_err();
    assert!(matches!(
        events.next().await,
        Some(Ok(WatchEvent::Added(_)))
    ));
    assert_eq!(start.elapsed(), Duration::from_millis(5020));
}
