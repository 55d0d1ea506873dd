//! The browser of a sandbox through the gateway: actions, and a program outside over the protocol.

use futures::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tests::session::Session;
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{WebSocketStream, client_async};

use crate::fixture::{fixture, start_body, text};

const PAGE: &str =
    "python3 -c \"open('page.html', 'w').write('<title>P</title><button>press</button>')\"";

/// Opens a WebSocket of the sandbox, with the session key if there is one.
async fn connect(url: &str, key: Option<&str>) -> Result<WebSocketStream<TcpStream>, Error> {
    let mut request = url.into_client_request()?;
    if let Some(key) = key {
        let name = "x-session-api-key";
        request.headers_mut().insert(name, key.parse().unwrap());
    }
    // Names below localhost do not resolve everywhere.
    let port = request.uri().port_u16().unwrap();
    let stream = TcpStream::connect(("127.0.0.1", port)).await?;
    client_async(request, stream)
        .await
        .map(|(socket, _)| socket)
}

/// Calls a method of the protocol and returns its result.
async fn call(
    socket: &mut WebSocketStream<TcpStream>,
    id: u64,
    method: &str,
    params: Value,
) -> Value {
    let command = json!({"id": id, "method": method, "params": params});
    socket
        .send(Message::text(command.to_string()))
        .await
        .unwrap();
    loop {
        let message = socket.next().await.unwrap().unwrap();
        let message: Value = serde_json::from_str(message.to_text().unwrap()).unwrap();
        if message["id"] == id {
            assert!(message["error"].is_null(), "{method}: {message}");
            return message["result"].clone();
        }
    }
}

#[tokio::test]
async fn agent_and_program_outside_use_the_same_tabs() {
    let Some(fixture) = fixture() else { return };
    let mut body = start_body("browser");
    let command = body["command"].as_array_mut().unwrap();
    command.extend(["--enable-browser", "--plugins", "browser:cdp,view"].map(Value::from));
    let session = Session::start(fixture.api(), fixture.key(), &body).await;
    session.run(PAGE).await;
    let args = json!({"browser_actions": "goto(\"file:///workspace/page.html\")"});
    let answer = session.act("browse_interactive", args).await.success();
    assert!(
        text(&answer, "content").contains("button 'press'"),
        "{answer}"
    );

    let id = &session.id;
    let host = session
        .url
        .replacen(&format!("://{id}."), &format!("://browser-{id}."), 1);
    let version = session
        .sandbox
        .get(&format!("{host}/json/version/"))
        .await
        .success();
    let url = text(&version, "webSocketDebuggerUrl");
    let expected = host.replacen("http", "ws", 1);
    assert_eq!(url, format!("{expected}/devtools/browser/sandbox"));
    match connect(&url, None).await {
        Err(Error::Http(refused)) => assert_eq!(refused.status(), 403),
        other => panic!("{other:?}"),
    }
    let mut socket = connect(&url, Some(&session.key)).await.unwrap();
    let targets = call(&mut socket, 1, "Target.getTargets", json!({})).await;
    let targets = targets["targetInfos"].as_array().unwrap();
    assert!(
        targets.iter().any(|target| target["title"] == "P"),
        "{targets:?}"
    );
    call(
        &mut socket,
        2,
        "Target.createTarget",
        json!({"url": "about:blank"}),
    )
    .await;
    let args = json!({"browser_actions": "noop(1)"});
    let answer = session.act("browse_interactive", args).await.success();
    let pages = answer["extras"]["open_pages_urls"].as_array().unwrap();
    assert_eq!(pages.len(), 2, "{pages:?}");
    session.change_state("stop").await;
}
