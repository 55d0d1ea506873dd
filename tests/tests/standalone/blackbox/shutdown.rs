//! The end of a gateway process: SIGTERM, as a cluster sends it, to a replica beside that of the
//! standalone, with the standalone's API server and sandboxes.

use std::process::ExitStatus;
use std::time::Duration;

use futures::StreamExt as _;
use serde_json::json;
use tests::binaries::binary;
use tests::clients::{HttpClient, POLL};
use tests::free_port::free_port;
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout};

use super::streams::open;
use crate::fixture::{CALL_TIMEOUT, Fixture, connected, fixture, text};

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
    async fn start(fixture: &Fixture) -> Self {
        let (port, admin) = (free_port(), free_port());
        let program = binary("sandbox-operator");
        let command = fixture.standalone.command(program.to_str().unwrap());
        let process = Command::from(command)
            .arg("gateway")
            .args(["--listen", &format!("127.0.0.1:{port}")])
            .args(["--admin-listen", &format!("127.0.0.1:{admin}")])
            .args(["--base-url", &format!("http://localhost:{port}")])
            .args(["--drain-delay-seconds", "5"])
            .args(["--drain-seconds", "600"])
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let replica = Self {
            process,
            port,
            admin,
        };
        until(async || replica.answers(replica.admin, "readyz").await).await;
        replica
    }

    /// Returns whether the answer of a port of this replica is 2xx.
    async fn answers(&self, port: u16, path: &str) -> bool {
        let url = format!("http://127.0.0.1:{port}/{path}");
        let reply = HttpClient::anonymous().try_get(&url, CALL_TIMEOUT).await;
        reply.is_ok_and(|reply| reply.is_success())
    }

    fn terminate(&self) {
        let id = self.process.id().unwrap().to_string();
        let sent = std::process::Command::new("kill").arg(&id).status();
        assert!(sent.unwrap().success());
    }

    async fn end(mut self) -> ExitStatus {
        let ended = timeout(POLL * POLLS, self.process.wait()).await;
        ended.unwrap().unwrap()
    }

    /// The same place in the sandbox, through this replica.
    fn url(&self, id: &str) -> String {
        format!("http://{id}.localhost:{}", self.port)
    }
}

/// Looks until it is so.
async fn until(look: impl AsyncFn() -> bool) {
    for _ in 0..POLLS {
        if look().await {
            return;
        }
        sleep(POLL).await;
    }
    panic!("not within a minute");
}

#[tokio::test]
async fn sigterm_lets_streams_and_actions_end() {
    let Some(fixture) = fixture() else { return };
    let (info, sandbox) = fixture.started("s").await;
    let replica = Replica::start(&fixture).await;
    let key = text(&info, "session_api_key");
    let url = replica.url(&text(&info, "runtime_id"));
    let url = format!("{url}/api/events/sse?until=/workspace/end");
    let mut streams = [open(&url, &key, false).await, open(&url, &key, true).await];
    let mut client = fixture.connected("v0").await;
    client.url = replica.url(client.id());
    let command = "touch begun; while ! test -e end; do sleep 0.1; done; echo done";
    let args = json!({"command": command, "blocking": true});
    let action = json!({"action": "run", "args": args, "timeout": 600});
    let acting = tokio::spawn(async move { client.act(&action).await });
    let mut config = fixture.v0("v0");
    config.attach_to_existing = true;
    let second = connected(config).await;
    let list = format!("{}/list_files", second.url);
    let path = json!({"path": "/workspace"});
    until(async || {
        let names = second.wire.post(&list, &path).await.success();
        names.as_array().unwrap().contains(&json!("begun"))
    })
    .await;

    replica.terminate();
    until(async || !replica.answers(replica.admin, "readyz").await).await;
    let serves = replica.answers(replica.port, "health").await;
    assert!(serves, "it serves until clients know");
    let address = ("127.0.0.1", replica.port);
    until(async || TcpStream::connect(address).await.is_err()).await;
    // Open requests continue: events arrive, and the action is still running.
    for events in &mut streams {
        let live = Instant::now() + Duration::from_secs(3);
        let mut number = 0;
        while number == 0 || Instant::now() < live {
            let event = events.next().await.unwrap().unwrap();
            assert_eq!(event, format!("data: {number}\n\n"));
            number += 1;
        }
    }
    assert!(!acting.is_finished());
    second.upload("end", b"x", "/workspace").await.unwrap();
    let observation = acting.await.unwrap().unwrap();
    assert_eq!(observation["content"], "done", "{observation}");
    let end = format!("{}/api/file/upload?path=/workspace/end", text(&info, "url"));
    assert_eq!(sandbox.post(&end, &json!({})).await.status, 200);
    for mut events in streams {
        // To the end of the stream, which is no error.
        while let Some(event) = events.next().await {
            event.unwrap();
        }
    }
    assert_eq!(replica.end().await.code(), Some(0));
}
