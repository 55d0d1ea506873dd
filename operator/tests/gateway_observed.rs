//! What a gateway tells of itself: counts, lines, and to controllers the traffic of a sandbox.

#[cfg(test)]
#[path = "gateway_support/support.rs"]
mod support;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use operator::admin;
use operator::clock::Clock;
use operator::index::Key;
use operator::keys::Keys;
use operator::traffic::{Desk, Gateways as _, HttpGateways};
use operator::vitals::Vitals;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tracing_subscriber::fmt::MakeWriter;

use support::stage::{OK, Stage};
use support::world::{World, config};

#[tokio::test]
async fn every_way_out_is_counted_once() {
    let stage = Stage::new().await;
    let metrics = stage.world.gateway.metrics().clone();
    let mut client = stage.client("GET /a HTTP/1.1\nHost: HOST\n\n").await;
    let mut sandbox = stage.sandbox().await;
    sandbox.head().await;
    sandbox.send(OK).await;
    client.until("ok").await;
    for (text, target, outcome) in [
        (
            "GET /nothing HTTP/1.1\nHost: gateway\n",
            "api",
            "client-error",
        ),
        (
            "GET / HTTP/1.1\nHost: vscode-HOST\n",
            "sandbox",
            "unknown-port",
        ),
        ("GET / HTTP/1.1\nHost: a@b\n", "nobody", "bad-request"),
        ("TRACE / HTTP/1.1\nHost: HOST\n", "nobody", "client-error"),
    ] {
        stage
            .exchange(&format!("{text}Connection: close\n\n"))
            .await;
        assert_eq!(metrics.requests(target, outcome), 1, "{text}");
    }
    // The client leaves before the head, and after it.
    for head in ["", "HTTP/1.1 200 OK\nContent-Length: 9\n\nok"] {
        let mut client = stage.client("GET /b HTTP/1.1\nHost: HOST\n\n").await;
        sandbox.head().await;
        if !head.is_empty() {
            sandbox.send(head).await;
            client.until("ok").await;
        }
        drop(client);
        assert_eq!(sandbox.rest().await, "");
        if head.is_empty() {
            let text = "GET /c HTTP/1.1\nHost: HOST\nConnection: close\n\n";
            let mut client = stage.client(text).await;
            sandbox = stage.sandbox().await;
            sandbox.head().await;
            sandbox.send(OK).await;
            client.until("ok").await;
        }
    }
    assert_eq!(metrics.requests("sandbox", "client-left"), 2);
    assert_eq!(metrics.requests("sandbox", "ok"), 2);

    // The same over HTTP, and nothing in it names a sandbox.
    let text = "GET /metrics HTTP/1.1\nHost: gateway\nConnection: close\n\n";
    let answer = stage.exchange(text).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let line = r#"gateway_requests_total{target="sandbox",outcome="client-left"} 2"#;
    assert!(answer.contains(line), "{answer}");
    assert!(!answer.contains(&stage.id), "{answer}");
    let answer = stage.exchange(&text.replace("GET", "HEAD")).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert!(!answer.contains("gateway_requests_total"), "{answer}");
}

/// Where log lines go in a test.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

#[tokio::test]
async fn lines_of_the_access_log_hold_no_secret() {
    let lines = Lines::default();
    let subscriber = tracing_subscriber::fmt()
        .json()
        .flatten_event(true)
        .with_max_level(tracing::Level::TRACE)
        .with_writer(lines.clone())
        .finish();
    // With a single subscriber in the process, a test beside this one that meets a line first, and
    // has none, would switch the line off for both.
    let _second = tracing::Dispatch::new(tracing_subscriber::registry());
    let _logging = tracing::subscriber::set_default(subscriber);
    let stage = Stage::new().await;
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let secrets = format!(
        "X-API-Key: secret-a\nX-Session-API-Key: secret-b\nAuthorization: Bearer secret-c\n\
         Cookie: secret-d\nTraceparent: 00-{trace}-00f067aa0ba902b7-01\n"
    );
    let text = format!(
        "POST /login?tkn=secret-e HTTP/1.1\nHost: HOST\n{secrets}Content-Length: 8\n\nsecret-f"
    );
    let mut client = stage.client(&text).await;
    let mut sandbox = stage.sandbox().await;
    sandbox.until("secret-f").await;
    sandbox
        .send("HTTP/1.1 200 OK\nSet-Cookie: secret-g\nContent-Length: 8\n\nsecret-h")
        .await;
    client.until("secret-h").await;
    let text = format!(
        "GET /sessions/s1?x=secret-i HTTP/1.1\nHost: gateway\n{secrets}Connection: close\n\n"
    );
    stage.exchange(&text).await;

    let text = String::from_utf8(lines.0.lock().clone()).unwrap();
    let lines = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let ours: Vec<_> = lines.filter(|line| line["target"] == "access").collect();
    let [sandbox, api] = ours.as_slice() else {
        panic!("{ours:?}");
    };
    assert_eq!(
        (&sandbox["level"], &api["level"]),
        (&json!("DEBUG"), &json!("INFO"))
    );
    assert_eq!(
        (&sandbox["to"], &api["to"]),
        (&json!("sandbox"), &json!("api"))
    );
    assert_eq!(
        (&sandbox["id"], &sandbox["port"]),
        (&json!(stage.id), &json!("runtime"))
    );
    assert_eq!(
        (&sandbox["path"], &api["path"]),
        (&json!("/login"), &json!("/sessions/s1"))
    );
    assert_eq!(
        (&sandbox["status"], &api["status"]),
        (&json!(200), &json!(401))
    );
    assert_eq!(
        (&sandbox["bytes"], &sandbox["outcome"]),
        (&json!(8), &json!("ok"))
    );
    for line in &ours {
        assert_eq!(line["trace_id"], trace);
        assert_eq!(line["peer"], "127.0.0.1");
    }
    assert!(!text.contains("secret"), "{text}");
}

/// A gateway's administration port.
#[cfg(test)]
async fn port(world: &World) -> (SocketAddr, CancellationToken) {
    let vitals = Arc::new(Vitals::default());
    let gateway = world.gateway.clone();
    let desk = Desk::new(&world.keys, Clock::wall(), move |key| gateway.seen(key)).unwrap();
    vitals.traffic.set(desk).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let shutdown = CancellationToken::new();
    tokio::spawn(admin::serve(listener, vitals, shutdown.clone()));
    (address, shutdown)
}

#[tokio::test]
async fn a_controller_learns_of_the_traffic_through_every_gateway() {
    let stage = Stage::new().await;
    let other = World::beside(&stage.world.api, config());
    let ((first, _open), (second, closing)) = (port(&stage.world).await, port(&other).await);
    let keys = stage.world.keys.clone();
    let ask = async |keys: &Arc<Keys>, places: &[SocketAddr]| {
        let places = places.iter().map(ToString::to_string).collect();
        let gateways = HttpGateways::new(places, keys.clone(), Clock::wall());
        let sandbox = Key {
            namespace: "sandboxes".into(),
            name: stage.id.clone(),
        };
        gateways.traffic(&sandbox).await
    };
    let both = [second, first];
    let seen = ask(&keys, &both).await.unwrap().unwrap();
    assert!(!seen.seen);

    // A request through one of them is seen while it is open, and afterwards.
    let mut client = stage.client("GET /a HTTP/1.1\nHost: HOST\n\n").await;
    let mut sandbox = stage.sandbox().await;
    sandbox.head().await;
    let seen = ask(&keys, &both).await.unwrap().unwrap();
    assert_eq!((seen.idle, seen.seen), (Duration::ZERO, true));
    sandbox.send(OK).await;
    client.until("ok").await;
    let seen = ask(&keys, &both).await.unwrap().unwrap();
    assert!(seen.seen);
    assert!(!ask(&keys, &[second]).await.unwrap().unwrap().seen);

    // Who is not of this installation learns nothing, and one silent gateway is no answer.
    let stranger = Arc::new(Keys::derive(&[8; 32]).unwrap());
    let refused = ask(&stranger, &both).await.unwrap_err();
    assert!(refused.to_string().contains("401"), "{refused}");
    closing.cancel();
    while ask(&keys, &[second]).await.is_ok() {}
    let silent = ask(&keys, &both).await.unwrap_err();
    assert!(silent.to_string().contains(&second.to_string()), "{silent}");
    let gateways = HttpGateways::new(vec!["nowhere.invalid:1".into()], keys, Clock::wall());
    let sandbox = Key {
        namespace: "a".into(),
        name: "b".into(),
    };
    assert!(gateways.traffic(&sandbox).await.is_err());
}
