//! Sandboxes that start from a snapshot of a running one, the same wherever they run.

use std::collections::HashSet;

use client::{ForkRequest, Level, Snapshot, SnapshotRequest};
use crds::pool::{ClaimPolicy, PoolTemplate, SandboxPoolSpec};
use crds::sandbox::Source;
use crds::{SandboxPool, SandboxSnapshot};
use futures::future::join_all;
use serde_json::{Value, json};

use crate::cli_tools::{apply, kubectl};
use crate::session::Session;

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

/// Takes a snapshot of a sandbox, and waits until it is ready.
pub async fn snapshot(session: &Session, level: Level) -> Snapshot {
    let request = SnapshotRequest {
        runtime_id: session.id.clone(),
        level: Some(level),
        delete_after: None,
    };
    let snapshot = session.client.snapshot(&request).await.unwrap();
    session.client.wait_snapshot(snapshot).await.unwrap()
}

/// Starts sandboxes from a snapshot, and waits until they are ready.
pub async fn fork(session: &Session, snapshot: &Snapshot, request: &ForkRequest) -> Vec<Session> {
    let client = &session.client;
    let started = client.fork(&snapshot.snapshot_id, request).await.unwrap();
    let forks = started.into_iter();
    let forks: Vec<_> = forks
        .map(|info| Session::new(client.clone(), info))
        .collect();
    join_all(forks.iter().map(Session::ready)).await;
    forks
}

/// Applies a pool of warm Pods that wait beside a snapshot of the runtime API, whose forks claim them.
/// Waits until they are ready.
pub fn apply_pool(name: &str, snapshot: &Snapshot, replicas: u32) {
    let id = &snapshot.snapshot_id;
    let object = kubectl(&["get", "sandboxsnapshot", id, "-o", "json"]);
    let object: SandboxSnapshot = serde_json::from_str(&object).unwrap();
    let status = object.status.unwrap();
    // The fields of a sandbox that a pool has.
    let template: PoolTemplate = serde_json::from_value(status.template.unwrap()).unwrap();
    let spec = SandboxPoolSpec {
        template: PoolTemplate {
            persistence: status.level,
            source: Some(Source {
                snapshot: id.clone(),
            }),
            ..template
        },
        replicas,
        claimed_by: ClaimPolicy::Matching,
        ..SandboxPoolSpec::default()
    };
    apply(&json!(SandboxPool::new(name, spec)).to_string(), &[]);
    await_pool(name, replicas);
}

/// Waits until all Pods of a pool are ready.
pub fn await_pool(name: &str, replicas: u32) {
    let ready = format!("--for=jsonpath={{.status.ready}}={replicas}");
    kubectl(&["wait", "sandboxpool", name, &ready, "--timeout=120s"]);
}

/// Request for this number of forks.
pub fn new_forks(count: usize) -> ForkRequest {
    ForkRequest {
        count: Some(count.try_into().unwrap()),
        ..ForkRequest::default()
    }
}

/// Deletes all snapshots of the client, and returns their number.
pub async fn delete_all(session: &Session) -> usize {
    let snapshots = session.client.snapshots(None).await.unwrap();
    for snapshot in &snapshots {
        let id = &snapshot.snapshot_id;
        session.client.delete_snapshot(id).await.unwrap();
    }
    snapshots.len()
}

/// Forks a sandbox of level `Memory` with a loaded process: each fork goes on for itself, with secrets
/// of its own, and the sandbox goes on as if nothing had happened. Returns the forks, and the time in
/// milliseconds for which the sandbox stood still.
pub async fn forks_go_on(session: &Session, count: usize, mib: u32) -> (Vec<Session>, u64) {
    session.write("/workspace/holder.py", HOLDER).await;
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

    let snapshot = snapshot(session, Level::Memory).await;
    assert_eq!(snapshot.level, Some(Level::Memory), "{snapshot:?}");
    assert_eq!(snapshot.reason, None, "{snapshot:?}");
    let answer = session.run(ASK).await;
    let rest = answer.strip_prefix(&format!("{digest} 2 ")).expect(&answer);
    let stood_still = rest.trim().parse().unwrap();

    let forks = fork(session, &snapshot, &new_forks(count)).await;
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
