//! The end of a gateway process: SIGTERM, as a cluster sends it, to a replica beside that of the
//! standalone, with the standalone's API server and sandboxes.

use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use futures::{Stream, StreamExt as _};
use hyper::body::Bytes;
use serde_json::json;
use tests::binaries::binary;
use tests::clients::{HttpClient, POLL, V0};
use tests::standalone::free_port;
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;

use super::sse;
use crate::fixture::{CALL_TIMEOUT, Fixture, text, fixture};

/// Polls before something has to be as it should: a minute of pauses.
const POLLS: u32 = 1200;

/// `sandbox-operator gateway`. Killed when dropped.
struct Replica {
    process: Child,
    port: u16,
    admin: u16,
}

impl Replica {
    /// A replica that is ready.
    async fn start(fixture: &Fixture, drain: [&str; 2]) -> Self {
        let (port, admin) = (free_port(), free_port());
        let command = fixture
            .standalone
            .command(binary("sandbox-operator").to_str().unwrap());
        let process = Command::from(command)
            .arg("gateway")
            .args(["--listen", &format!("127.0.0.1:{port}")])
            .args(["--admin-listen", &format!("127.0.0.1:{admin}")])
            .args(["--base-url", &format!("http://localhost:{port}")])
            .args(["--drain-delay-seconds", drain[0]])
            .args(["--drain-seconds", drain[1]])
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let replica = Self {
            process,
            port,
            admin,
        };
        replica.until_ready(true).await;
        replica
    }

    async fn is_ready(&self) -> bool {
        let url = format!("http://127.0.0.1:{}/readyz", self.admin);
        let reply = HttpClient::anonymous().try_get(&url, CALL_TIMEOUT).await;
        reply.is_ok_and(|reply| reply.is_success())
    }

    async fn until_ready(&self, wanted: bool) {
        for _ in 0..POLLS {
            if self.is_ready().await == wanted {
                return;
            }
            tokio::time::sleep(POLL).await;
        }
        panic!("ready is never {wanted}");
    }

    /// Connects until that fails. Returns the number of requests served before.
    async fn until_closed(&self) -> u32 {
        let mut served = 0;
        for _ in 0..POLLS {
            if TcpStream::connect(("127.0.0.1", self.port)).await.is_err() {
                return served;
            }
            let url = format!("http://127.0.0.1:{}/health", self.port);
            let reply = HttpClient::anonymous().try_get(&url, CALL_TIMEOUT).await;
            served += u32::from(reply.is_ok_and(|reply| reply.is_success()));
            tokio::time::sleep(POLL).await;
        }
        panic!("never closed");
    }

    fn terminate(&self) {
        let id = self.process.id().unwrap().to_string();
        let sent = std::process::Command::new("kill").arg(&id).status();
        assert!(sent.unwrap().success());
    }

    async fn end(mut self) -> ExitStatus {
        let ended = tokio::time::timeout(POLL * POLLS, self.process.wait()).await;
        ended.unwrap().unwrap()
    }

    /// The same place in the sandbox, through this replica.
    fn url(&self, id: &str) -> String {
        format!("http://{id}.localhost:{}", self.port)
    }

    /// A V0 client whose sandbox is reached through this replica.
    async fn connected(&self, fixture: &Fixture) -> V0 {
        let mut client = fixture.connected("v0").await;
        client.url = self.url(client.id());
        client
    }
}

/// Reads an event stream to its end.
struct Listener {
    heard: Arc<AtomicU32>,
    /// Fails if an event is missing, or if the end is not that of the stream.
    heard_all: JoinHandle<()>,
}

impl Listener {
    fn of(
        mut events: impl Stream<Item = Result<Bytes, hyper::Error>> + Unpin + Send + 'static,
    ) -> Self {
        let heard = Arc::new(AtomicU32::new(0));
        let count = heard.clone();
        let heard_all = tokio::spawn(async move {
            while let Some(event) = events.next().await {
                let event = event.unwrap();
                // HTTP/2 may say the end with a frame of its own, which is empty.
                if !event.is_empty() {
                    let number = count.fetch_add(1, Ordering::Relaxed);
                    assert_eq!(event, format!("data: {number}\n\n"));
                }
            }
        });
        Self { heard, heard_all }
    }

    /// So many more than until now.
    async fn until_it_has_heard(&self, more: u32) {
        let goal = self.heard.load(Ordering::Relaxed) + more;
        for _ in 0..POLLS {
            if self.heard.load(Ordering::Relaxed) >= goal {
                return;
            }
            assert!(!self.heard_all.is_finished(), "cut off");
            tokio::time::sleep(POLL).await;
        }
        panic!("silent");
    }
}

#[tokio::test]
async fn sigterm_lets_streams_and_actions_end() {
    let Some(fixture) = fixture() else { return };
    fixture.start("s", &json!({})).await;
    let info = fixture.ready("s").await;
    let replica = Replica::start(&fixture, ["5", "600"]).await;
    let key = text(&info, "session_api_key");
    let url = format!(
        "{}/api/events/sse?until=/workspace/end",
        replica.url(&text(&info, "runtime_id"))
    );
    let listeners = [
        Listener::of(sse::open(&url, &key, false).await),
        Listener::of(sse::open(&url, &key, true).await),
    ];
    let mut client = replica.connected(&fixture).await;
    let command = "touch begun; while ! test -e end; do sleep 0.1; done; echo done";
    let args = json!({"command": command, "blocking": true});
    let action = json!({"action": "run", "args": args, "timeout": 600});
    let acting = tokio::spawn(async move { client.act(&action).await });
    let second = {
        let mut attached = fixture.v0("v0");
        attached.attach_to_existing = true;
        let mut client = V0::new(attached);
        client.connect().await.unwrap();
        client
    };
    until_there(&second, "begun").await;

    replica.terminate();
    replica.until_ready(false).await;
    assert_ne!(replica.until_closed().await, 0);
    // Open requests continue: events arrive, and the action is still running.
    for listener in &listeners {
        listener.until_it_has_heard(30).await;
    }
    assert!(!acting.is_finished());
    second.upload("end", b"x", "/workspace").await.unwrap();
    let observation = acting.await.unwrap().unwrap();
    assert_eq!(observation["content"], "done", "{observation}");
    let end = format!("{}/api/file/upload?path=/workspace/end", text(&info, "url"));
    let sent = HttpClient::of_session(&key)
        .try_post(&end, &json!({}), CALL_TIMEOUT)
        .await;
    assert_eq!(sent.unwrap().status, 200);
    for listener in listeners {
        listener.heard_all.await.unwrap();
    }
    assert_eq!(replica.end().await.code(), Some(0));
}

/// Polls until there is a file in the workspace.
async fn until_there(client: &V0, name: &str) {
    let (url, body) = (
        format!("{}/list_files", client.url),
        json!({"path": "/workspace"}),
    );
    for _ in 0..POLLS {
        let listed = client.wire.try_post(&url, &body, CALL_TIMEOUT).await.unwrap();
        let listed = listed.success().unwrap();
        if listed.as_array().unwrap().contains(&json!(name)) {
            return;
        }
        tokio::time::sleep(POLL).await;
    }
    panic!("no file {name}");
}

#[tokio::test]
async fn sigterm_cuts_off_what_never_ends() {
    let Some(fixture) = fixture() else { return };
    fixture.start("s", &json!({})).await;
    let info = fixture.ready("s").await;
    let replica = Replica::start(&fixture, ["0", "1"]).await;
    let url = format!("{}/api/events/sse", replica.url(&text(&info, "runtime_id")));
    let mut events = sse::open(&url, &text(&info, "session_api_key"), false).await;
    replica.terminate();
    // Its end is none that could be taken for that of the stream.
    let broken_off = loop {
        match events.next().await {
            Some(Ok(_)) => {}
            Some(Err(_)) => break true,
            None => break false,
        }
    };
    assert!(broken_off);
    assert_eq!(replica.end().await.code(), Some(0));
}
