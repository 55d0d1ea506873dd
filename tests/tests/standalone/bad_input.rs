//! What the runtime API answers to requests that are wrong.

use http::Method;
use hyper::body::Bytes;
use serde_json::{Value, json};
use tests::binaries::is_root_or_skips;
use tests::http::Json;
use tests::standalone::Standalone;

#[tokio::test]
async fn wrong_requests_get_their_status_and_a_detail() {
    if !is_root_or_skips("bad input to standalone") {
        return;
    }
    let state = tempfile::tempdir().unwrap();
    let standalone = Standalone::start(state.path(), &[]);
    let api = Json::with_api_key(standalone.key());
    let stranger = Json::with_api_key("wrong");
    let url = |path: &str| format!("{}{path}", standalone.api());
    let unknown = json!({"runtime_id": "abcdefghijklmnop"});
    let null = json!({"runtime_id": null});

    let answers = [
        (401, stranger.get(&url("/list")).await),
        (401, stranger.post(&url("/start"), &json!({})).await),
        (
            400,
            api.send(Method::POST, &url("/start"), Bytes::from("{nonsense"))
                .await,
        ),
        (
            400,
            api.post(&url("/start"), &json!({"session_id": "s"})).await,
        ),
        (400, api.post(&url("/start"), &json!({"image": "i"})).await),
        (
            400,
            api.post(
                &url("/start"),
                &json!({"image": "i", "session_id": "s", "resource_factor": 0}),
            )
            .await,
        ),
        (
            400,
            api.post(
                &url("/start"),
                &json!({"image": "i", "session_id": "batch"}),
            )
            .await,
        ),
        (404, api.get(&url("/runtime/abcdefghijklmnop")).await),
        (404, api.get(&url("/sessions/nobody")).await),
        (404, api.post(&url("/stop"), &unknown).await),
        (404, api.post(&url("/pause"), &unknown).await),
        (404, api.post(&url("/resume"), &unknown).await),
        (400, api.post(&url("/resume"), &null).await),
        (404, api.get(&url("/nothing/here")).await),
    ];
    for (number, (status, answer)) in answers.iter().enumerate() {
        assert_eq!(
            answer.status.as_u16(),
            *status,
            "answer {number}: {}",
            answer.body
        );
        let detail = answer.body.get("detail").and_then(Value::as_str);
        assert!(
            detail.is_some_and(|d| !d.is_empty()),
            "answer {number}: {}",
            answer.body
        );
    }
    for verb in ["/stop", "/pause"] {
        assert_eq!(api.post(&url(verb), &null).await.status, 200);
    }
    assert_eq!(
        api.get(&url("/list")).await.body,
        json!({"runtimes": [], "total": 0})
    );
    assert_eq!(
        api.get(&url("/sessions/batch?ids=x&ids=y")).await.body,
        json!([null, null])
    );
    assert_eq!(stranger.get(&url("/health")).await.status, 200);
}
