//! Item 12: what goes through the gateway, and what does not.

use serde_json::json;
use tests::clients::HttpClient;

use crate::fixture::{CALL_TIMEOUT, Fixture, text};

#[tokio::test]
async fn item_12_the_api_key_never_reaches_the_sandbox() {
    let Some(fixture) = Fixture::set("black-box item 12") else {
        return;
    };
    fixture.start("s", &json!({})).await;
    let info = fixture.ready("s").await;
    let key = text(&info, "session_api_key");
    let both = HttpClient::with_headers(&[
        ("X-API-Key", fixture.key()),
        ("x-api-key", fixture.key()),
        ("X-Session-API-Key", &key),
    ]);
    let path_form = format!("{}/{}/runtime", fixture.api(), text(&info, "runtime_id"));
    for url in [text(&info, "url"), path_form] {
        let echo = both
            .get(&format!("{url}/api/echo?a=b"), CALL_TIMEOUT)
            .await
            .unwrap();
        let echo = echo.success().unwrap();
        assert_eq!(echo["headers"]["x-session-api-key"], json!([key]));
        assert_eq!(echo["uri"], "/api/echo?a=b");
        assert!(!echo.to_string().contains(fixture.key()), "{echo}");
    }
}

#[tokio::test]
async fn item_12_a_wrong_session_key_is_refused_by_the_sandbox_itself() {
    let Some(fixture) = Fixture::set("black-box item 12") else {
        return;
    };
    fixture.start("s", &json!({})).await;
    let info = fixture.ready("s").await;
    let stranger = HttpClient::of_session("wrong");
    let v1 = stranger
        .get(&format!("{}/api/echo", text(&info, "url")), CALL_TIMEOUT)
        .await
        .unwrap();
    assert_eq!(
        (v1.status, v1.json().unwrap()),
        (401, json!({"detail": "Unauthorized"}))
    );
    let client = fixture.connected("v0").await;
    let action = json!({"action": {"action": "run", "args": {"command": "true"}}});
    let v0 = stranger
        .post(
            &format!("{}/execute_action", client.url),
            &action,
            CALL_TIMEOUT,
        )
        .await
        .unwrap();
    assert_eq!(v0.status, 403);
}
