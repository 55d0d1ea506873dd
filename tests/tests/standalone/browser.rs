//! The browser of a sandbox through the gateway: actions, and Playwright outside.

use serde_json::Value;
use tests::browser_session::{PLUGIN, agent_and_playwright_share_tabs};
use tests::clients::HttpClient;
use tests::session::Session;

use crate::fixture::{fixture, start_body, text};

#[tokio::test]
async fn agent_and_program_outside_use_the_same_tabs() {
    let Some(fixture) = fixture() else { return };
    let mut body = start_body("browser");
    let command = body["command"].as_array_mut().unwrap();
    command.extend(["--enable-browser", "--plugins", PLUGIN].map(Value::from));
    let session = Session::start(fixture.api(), fixture.key(), &body).await;
    agent_and_playwright_share_tabs(&session).await;

    // At the plugin's own host, too, programs are told where to connect.
    let id = &session.id;
    let own = session
        .url
        .replacen(&format!("://{id}."), &format!("://browser-{id}."), 1);
    let version = format!("{own}/json/version");
    let answer = session.wire.get(&version).await.success();
    let expected = format!("{}/devtools/browser/sandbox", own.replacen("http", "ws", 1));
    assert_eq!(text(&answer, "webSocketDebuggerUrl"), expected);
    let stranger = HttpClient::unpooled(&[("Accept", "*/*")]);
    assert_eq!(stranger.get(&version).await.status, 403);
    session.stop().await;
}
