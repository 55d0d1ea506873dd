//! A plugin of the user's own behind the gateway: its files are on the volume of the workspace, and
//! `spec.plugins` names it.

use serde_json::json;
use tests::binaries::root;
use tests::clients::HttpClient;
use tests::session::Session;

use crate::fixture::{CALL_TIMEOUT, fixture, start_body};

#[tokio::test]
async fn plugin_of_the_spec_is_reachable_at_its_own_host() {
    let Some(fixture) = fixture() else { return };
    let mut body = start_body("plugin");
    body["environment"]["SANDBOX_PLUGIN_PATH"] = "/workspace/plugins".into();
    let session = Session::start(fixture.api(), fixture.key(), &body).await;
    for name in ["plugin.yaml", "server.py"] {
        let file = root().join("examples/plugins/hello").join(name);
        let content = std::fs::read_to_string(file).unwrap();
        let path = format!("/workspace/plugins/hello/{name}");
        session.run("mkdir -p /workspace/plugins/hello").await;
        session.write(&path, &content).await;
    }
    session.pause().await;
    let id = session.id.clone();
    fixture.kubectl(&format!(
        "wait --for=condition=Paused sbx/{id} --timeout=60s"
    ));
    fixture.patch(&id, &json!({"plugins": ["hello"]}));
    session.resume().await;
    session.ready().await;

    let host = format!("://hello-{id}.");
    let at_host = session.url.replacen(&format!("://{id}."), &host, 1);
    assert!(at_host.contains(&host), "{at_host}");
    let at_path = format!("{}/{id}/hello", fixture.api());
    let anonymous = HttpClient::anonymous();
    let get =
        async |client: &HttpClient, url: &str| client.try_get(url, CALL_TIMEOUT).await.unwrap();
    let page = async |url: &str| loop {
        let reply = get(&session.wire, &format!("{url}/")).await;
        // 502 between the end of its program and the moment in which that is noticed.
        if ![502, 503].contains(&reply.status) {
            assert_eq!(reply.status, 200, "{:?}", reply.body);
            break String::from_utf8(reply.body.to_vec()).unwrap();
        }
    };
    for url in [&at_host, &at_path] {
        let shown = page(url).await;
        assert!(shown.ends_with(": plugins\n"), "{shown}");
        assert_eq!(get(&anonymous, url).await.status, 403);
    }
    let pid = page(&at_host)
        .await
        .split([' ', ':'])
        .nth(2)
        .map(str::to_owned);
    session
        .run(&format!("kill -9 {}", pid.as_deref().unwrap()))
        .await;
    let after = page(&at_host).await;
    assert_ne!(after.split([' ', ':']).nth(2), pid.as_deref());

    let key = &session.key;
    for (url, path) in [
        (&at_host, "/".to_owned()),
        (&at_path, format!("/{id}/hello")),
    ] {
        let opened = get(&anonymous, &format!("{url}/a?session_api_key={key}")).await;
        let header = |name: &str| opened.headers[name].to_str().unwrap();
        assert_eq!(opened.status, 303);
        assert_eq!(
            header("location"),
            format!("{}/a", path.trim_end_matches('/'))
        );
        let attributes: Vec<_> = header("set-cookie").split(';').map(str::trim).collect();
        assert!(
            attributes.contains(&&*format!("Path={path}")),
            "{attributes:?}"
        );
    }
    let unknown = at_host.replacen("hello-", "other-", 1);
    let reply = get(&session.wire, &unknown).await;
    assert_eq!(reply.status, 404);
    let detail = "this sandbox has no port of this name";
    assert!(
        reply.json().unwrap().to_string().contains(detail),
        "{:?}",
        reply.body
    );
    session.stop().await;
}
