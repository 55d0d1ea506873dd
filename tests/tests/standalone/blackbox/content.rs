//! Item 12: what goes through the gateway, and what does not.

use serde_json::json;
use tests::clients::HttpClient;

use crate::fixture::{fixture, text};

#[tokio::test]
async fn item_12_the_api_key_never_reaches_the_sandbox() {
    let Some(fixture) = fixture() else { return };
    let (info, _) = fixture.started("s").await;
    let (key, api_key) = (text(&info, "session_api_key"), fixture.key());
    let keys = [
        ("X-API-Key", api_key),
        ("x-api-key", api_key),
        ("X-Session-API-Key", &key),
    ];
    let both = HttpClient::with_headers(&keys);
    let path_form = format!("{}/{}/runtime", fixture.api(), text(&info, "runtime_id"));
    for url in [text(&info, "url"), path_form] {
        let echo = both.get(&format!("{url}/api/echo?a=b")).await.success();
        assert_eq!(echo["headers"]["x-session-api-key"], json!([key]));
        assert_eq!(echo["uri"], "/api/echo?a=b");
        assert!(!echo.to_string().contains(api_key), "{echo}");
    }
}

#[tokio::test]
async fn item_12_sandbox_rejects_wrong_session_key() {
    let Some(fixture) = fixture() else { return };
    let (info, _) = fixture.started("s").await;
    let stranger = HttpClient::of_session("wrong");
    let v1 = stranger
        .get(&format!("{}/api/echo", text(&info, "url")))
        .await;
    assert_eq!(
        (v1.status, v1.body),
        (401, json!({"detail": "Unauthorized"}))
    );
    let v0 = fixture.run("v0").await;
    assert_eq!(v0.status_with_key("wrong").await, 403);
}
