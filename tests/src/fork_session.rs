//! Sandboxes that start from a snapshot of a running one, the same wherever they run.

use std::collections::HashSet;
use std::time::Duration;

use futures::future::join_all;
use http::Method;
use hyper::body::Bytes;
use serde_json::{Value, json};

use crate::clients::http_client::{HttpClient, text};
use crate::session::Session;

/// Tries of a look at a snapshot that is being taken, and the time between them.
const MAX_POLLS: u32 = 600;
const POLL_INTERVAL: Duration = Duration::from_millis(50);
const DELETE_LIMIT: Duration = Duration::from_secs(10);

/// A process with random data. It answers to the file `ask` with the digest of the data, the number of
/// its answers, and the longest time in milliseconds that it stood still since the answer before.
const HOLDER: &str = r#"
import hashlib, os, sys, time
data = bytearray(os.urandom(1 << 20)) * int(sys.argv[1])
answers, longest, last = 0, 0, time.monotonic()
while True:
    time.sleep(0.002)
    now = time.monotonic()
    longest, last = max(longest, now - last), now
    if os.path.exists("/workspace/ask"):
        os.remove("/workspace/ask")
        answers += 1
        digest = hashlib.sha256(data).hexdigest()
        with open("/workspace/answer.new", "w") as answer:
            answer.write(f"{digest} {answers} {longest * 1000:.0f}")
        os.rename("/workspace/answer.new", "/workspace/answer")
        longest, last = 0, time.monotonic()
"#;

/// Asks the holder, and prints its answer once it is there.
const ASK: &str = "rm -f /workspace/answer; touch /workspace/ask; \
    for n in $(seq 1 300); do [ -e /workspace/answer ] && break; sleep 0.02; done; cat /workspace/answer";

/// Takes a snapshot of a sandbox, and waits until it is ready. Returns its info.
pub async fn snapshot(session: &Session, level: &str) -> Value {
    let url = format!("{}/snapshots", session.base);
    let body = json!({"runtime_id": session.id, "level": level});
    let created = session.api.post(&url, &body).await;
    let id = text(&created.success(), "snapshot_id");
    let url = format!("{url}/{id}");
    for _ in 0..MAX_POLLS {
        let info = session.api.get(&url).await.success();
        match info["status"].as_str() {
            Some("ready") => return info,
            Some("failed") | None => panic!("failed: {info}"),
            Some(_) => tokio::time::sleep(POLL_INTERVAL).await,
        }
    }
    panic!("never ready");
}

/// Starts sandboxes from a snapshot, and waits until they are ready.
pub async fn fork(session: &Session, snapshot: &Value, body: &Value) -> Vec<Session> {
    let id = text(snapshot, "snapshot_id");
    let url = format!("{}/snapshots/{id}/start", session.base);
    let started = session.api.post(&url, body).await.success();
    let forks = started["runtimes"].as_array().unwrap().iter();
    let forks = forks.map(|info| {
        let key = text(info, "session_api_key");
        Session {
            sandbox: HttpClient::unpooled(&[("X-Session-API-Key", &key)]),
            id: text(info, "runtime_id"),
            url: text(info, "url"),
            key,
            ..session.clone()
        }
    });
    let forks: Vec<_> = forks.collect();
    join_all(forks.iter().map(Session::ready)).await;
    forks
}

/// Deletes all snapshots of the client, and returns their number.
pub async fn delete_all(session: &Session) -> usize {
    let url = format!("{}/snapshots", session.base);
    let list = session.api.get(&url).await.success();
    let list = list["snapshots"].as_array().unwrap();
    for snapshot in list {
        let url = format!("{url}/{}", text(snapshot, "snapshot_id"));
        let deleting = session
            .api
            .send(Method::DELETE, &url, Bytes::new(), DELETE_LIMIT);
        assert_eq!(deleting.await.unwrap().status, 204);
    }
    list.len()
}

/// Forks a sandbox of level `Memory` with a loaded process: each fork goes on for itself, with secrets
/// of its own, and the sandbox goes on as if nothing had happened. Returns the forks, and the time in
/// milliseconds for which the sandbox stood still.
pub async fn forks_go_on(session: &Session, count: usize, mib: u32) -> (Vec<Session>, u64) {
    let script = json!({"path": "/workspace/holder.py", "content": HOLDER});
    session.act("write", script).await.success();
    session
        .run("mine=$RANDOM$RANDOM; cd /var/lib; echo parent >/etc/whose; sleep 10000 &")
        .await;
    let start = format!("python3 /workspace/holder.py {mib} >/workspace/log 2>&1 &");
    session.run(&start).await;
    let shell = "echo \"$mine $PWD $(jobs | wc -l) $(cat /etc/whose)\"";
    let first = session.run(ASK).await;
    let digest = first.split(' ').next().unwrap().to_owned();
    assert_eq!(digest.len(), 64, "{first}");
    let of_parent = session.run(shell).await;

    let snapshot = snapshot(session, "Memory").await;
    assert_eq!(snapshot["level"], "Memory", "{snapshot}");
    assert_eq!(snapshot["reason"], Value::Null, "{snapshot}");
    let answer = session.run(ASK).await;
    let rest = answer.strip_prefix(&format!("{digest} 2 ")).expect(&answer);
    let stood_still = rest.trim().parse().unwrap();

    let forks = fork(session, &snapshot, &json!({"count": count})).await;
    assert_eq!(forks.len(), count);
    let mut identities = HashSet::new();
    for (number, fork) in forks.iter().enumerate() {
        let info = fork.info().await;
        assert_eq!(info["restored"]["level"], "Memory", "{info}");
        assert_eq!(info["restored"]["reason"], Value::Null, "{info}");
        assert_eq!(fork.run(shell).await, of_parent, "fork {number}");
        let answer = fork.run(ASK).await;
        assert!(answer.starts_with(&format!("{digest} 2 ")), "{answer}");
        fork.run(&format!(
            "mine=fork-{number}; echo fork-{number} >/etc/whose"
        ))
        .await;
        identities.extend([
            fork.id.clone(),
            fork.key.clone(),
            fork.run("echo host $(hostname)").await,
        ]);
        assert_eq!(fork.status_with_key(&session.key).await, 403);
        assert_eq!(fork.status_with_key(&fork.key).await, 200);
    }
    identities.extend([
        session.id.clone(),
        session.key.clone(),
        session.run("echo host $(hostname)").await,
    ]);
    assert_eq!(identities.len(), 3 * (count + 1), "{identities:?}");
    for (number, fork) in forks.iter().enumerate() {
        let own = fork.run("echo $mine $(cat /etc/whose)").await;
        assert_eq!(own, format!("fork-{number} fork-{number}"));
    }
    assert_eq!(session.run(shell).await, of_parent);
    let answer = session.run(ASK).await;
    assert!(answer.starts_with(&format!("{digest} 3 ")), "{answer}");
    (forks, stood_still)
}
