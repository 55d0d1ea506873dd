//! Pods when the node stops, is killed and starts again.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use kube::ResourceExt as _;
use serde_json::json;
use tokio::net::TcpListener;

use super::harness::{Machine, WAIT_TIMEOUT, container, phase, running, self_exe};

/// Pod that runs until it is terminated, with memory and disk volumes.
fn lasting() -> serde_json::Value {
    json!({
        "terminationGracePeriodSeconds": 1,
        "containers": [{"name": "main", "image": "any",
            "command": ["bash", "-c", "echo x >> /disk/starts; exec sleep infinity"],
            "securityContext": {"runAsUser": 1000},
            "volumeMounts": [{"name": "memory", "mountPath": "/run/sandbox"},
                {"name": "disk", "mountPath": "/disk"}]}],
        "volumes": [{"name": "memory", "emptyDir": {"medium": "Memory"}},
            {"name": "disk", "emptyDir": {}}],
    })
}

/// Everything of the node outside of its state directory: processes, interfaces, firewall tables,
/// cgroups, shared memory.
fn traces(state: &std::path::Path) -> Vec<String> {
    let tag = tag(state);
    let text = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let mut found = Vec::new();
    let mut note = |kind: &str, text: String, mark: &str| {
        found.extend(
            text.lines()
                .filter(|line| line.contains(mark))
                .map(|line| format!("{kind}: {line}")),
        );
    };
    note(
        "interface",
        text("ip", &["-o", "link"]),
        &format!("sbx{tag}"),
    );
    note(
        "table",
        text("nft", &["list", "tables"]),
        &format!("_{tag}"),
    );
    note("memory", text("ls", &["/dev/shm"]), &tag);
    note(
        "group",
        text(
            "find",
            &[
                "/sys/fs/cgroup",
                "-maxdepth",
                "5",
                "-name",
                "sandbox-standalone-*",
            ],
        ),
        &tag,
    );
    let marker = format!(" /.sandbox-node/{tag} ");
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let mounts = std::fs::read_to_string(entry.path().join("mountinfo")).unwrap_or_default();
        if mounts.contains(&marker) {
            found.push(format!("process: {}", entry.path().display()));
        }
    }
    found
}

/// Tag of the node.
fn tag(state: &std::path::Path) -> String {
    let state = state.canonicalize().unwrap();
    let hash = ring::digest::digest(&ring::digest::SHA256, state.as_os_str().as_encoded_bytes());
    let first = hash.as_ref().first_chunk().copied().unwrap();
    format!("{:05x}", u32::from_be_bytes(first) >> 12)
}

/// The kernel removes namespaces of dead processes asynchronously.
async fn no_traces(state: &std::path::Path) {
    let state = state.to_owned();
    let clean = async {
        while !traces(&state).is_empty() {
            tokio::task::yield_now().await;
        }
    };
    let cleaned = tokio::time::timeout(WAIT_TIMEOUT, clean).await;
    assert!(cleaned.is_ok(), "left behind: {:#?}", traces(&state));
}

#[tokio::test(flavor = "multi_thread")]
async fn node_shutdown_leaves_nothing_and_restart_resumes_pods() {
    let machine = Machine::new();
    let node = machine.node();
    machine.create("pod", lasting()).await;
    let before = machine.wait("pod", running).await;
    assert!(traces(machine.state.path()).len() >= 3);
    node.stop().await;
    no_traces(machine.state.path()).await;
    let stopped = machine.pods().get("pod").await.unwrap();
    assert_eq!(phase(&stopped), "Running");

    let node = machine.node();
    let again = |pod: Option<&k8s_openapi::api::core::v1::Pod>| {
        running(pod) && pod.is_some_and(|pod| container(pod).restart_count == 1)
    };
    let after = machine.wait("pod", again).await;
    let ip = |pod: &k8s_openapi::api::core::v1::Pod| pod.status.clone().unwrap().pod_ip;
    assert_eq!(ip(&after), ip(&before));
    let last = container(&after).last_state.unwrap().terminated.unwrap();
    assert_eq!(last.reason.as_deref(), Some("ContainerStatusUnknown"));
    let starts = machine.path(format!("pods/{}/volumes/disk/starts", after.uid().unwrap()));
    let twice = async {
        while std::fs::read_to_string(&starts).unwrap_or_default() != "x\nx\n" {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(WAIT_TIMEOUT, twice).await.unwrap();
    machine.delete("pod").await;
    node.stop().await;
    no_traces(machine.state.path()).await;
    assert_eq!(std::fs::read_dir(machine.path("pods")).unwrap().count(), 0);
}

/// Process that is killed at the end of the test.
struct NodeProcess(Child);

impl NodeProcess {
    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for NodeProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Node in a separate process, which can be killed or run as another user.
fn node_process(machine: &Machine, url: &str, user: Option<u32>) -> NodeProcess {
    let own = std::env::current_exe().unwrap();
    let (own, program) = match user {
        None => (own, self_exe()),
        Some(_) => (
            within_reach(machine, &own),
            within_reach(machine, &self_exe()),
        ),
    };
    let mut command = match user {
        None => Command::new(&own),
        Some(user) => {
            let mut command = Command::new("setpriv");
            command.args([
                format!("--reuid={user}"),
                format!("--regid={user}"),
                "--clear-groups".into(),
            ]);
            command.arg(&own);
            command
        }
    };
    command.args([
        "--ignored",
        "--exact",
        "node::restart::node_process_entry",
        "--nocapture",
    ]);
    command
        .env("NODE_TEST_API", url)
        .env("NODE_TEST_STATE", machine.state.path())
        .env("NODE_TEST_PROGRAM", program);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    NodeProcess(command.process_group(0).spawn().unwrap())
}

/// Copies a program for users without access to the build directory.
fn within_reach(machine: &Machine, program: &Path) -> PathBuf {
    let copy = machine.state.path().join(program.file_name().unwrap());
    if !copy.exists() {
        std::fs::copy(program, &copy).unwrap();
    }
    copy
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "runs inside the other tests"]
async fn node_process_entry() {
    let (Ok(url), Ok(state), Ok(program)) = (
        std::env::var("NODE_TEST_API"),
        std::env::var("NODE_TEST_STATE"),
        std::env::var("NODE_TEST_PROGRAM"),
    ) else {
        return;
    };
    let client = kube::Client::try_from(kube::Config::new(url.parse().unwrap())).unwrap();
    let config = standalone::node::NodeConfig::new(state, &program, &program);
    let shutdown = tokio_util::sync::CancellationToken::new();
    Box::pin(standalone::node::run(client, config, shutdown))
        .await
        .unwrap();
}

async fn serve(machine: &Machine) -> String {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let router = machine.api.router();
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    url
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_node_ends_its_containers() {
    let machine = Machine::new();
    let url = serve(&machine).await;
    let mut node = node_process(&machine, &url, None);
    machine.create("pod", lasting()).await;
    machine.wait("pod", running).await;
    node.kill();
    let processes = async {
        while traces(machine.state.path())
            .iter()
            .any(|trace| trace.starts_with("process") || trace.starts_with("interface"))
        {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(WAIT_TIMEOUT, processes)
        .await
        .expect("containers die with the node");

    machine
        .pods()
        .delete(
            "pod",
            &kube::api::DeleteParams {
                grace_period_seconds: Some(0),
                ..Default::default()
            },
        )
        .await
        .unwrap();
    let node = machine.node();
    machine.once("next", "true").await;
    node.stop().await;
    no_traces(machine.state.path()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn node_works_without_root() {
    const USER: u32 = 65534;
    let machine = Machine::new();
    std::os::unix::fs::chown(machine.state.path(), Some(USER), Some(USER)).unwrap();
    let url = serve(&machine).await;
    let mut node = node_process(&machine, &url, Some(USER));
    let script = "id -u; id -un; echo $SANDBOX_BIND_ADDRESS; touch /work/x ~/y /tmp/z; ls -d \
        /proc/[0-9]*; ls /sys";
    let main = json!({
        "name": "main", "image": "any", "command": ["bash", "-c", script],
        "securityContext": {"runAsUser": 1000},
        "volumeMounts": [{"name": "work", "mountPath": "/work"}],
    });
    let spec = json!({"restartPolicy": "Never", "containers": [main],
        "volumes": [{"name": "work", "emptyDir": {"medium": "Memory"}}]});
    machine.create("pod", spec).await;
    let pod = machine.wait("pod", super::harness::ended).await;
    let ip = pod.status.as_ref().unwrap().pod_ip.clone().unwrap();
    assert!(ip.starts_with("127."));
    let log = machine.log("pod", "main");
    let expected = format!(
        "1000\nopenhands\n{ip}\n/proc/1\nls: cannot access '/sys': No such file or directory\n"
    );
    assert_eq!(log, expected);
    machine.create("lasting", lasting()).await;
    machine.wait("lasting", running).await;
    node.kill();
    let processes = async {
        while traces(machine.state.path())
            .iter()
            .any(|trace| trace.starts_with("process"))
        {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(WAIT_TIMEOUT, processes)
        .await
        .expect("containers die with the node");
    let mut node = node_process(&machine, &url, Some(USER));
    machine.delete("lasting").await;
    machine.delete("pod").await;
    let record = machine.path("memory-volumes");
    let memory = PathBuf::from(std::fs::read_to_string(&record).unwrap());
    let name = format!("/dev/shm/sandbox-standalone-{}-", tag(machine.state.path()));
    assert!(
        memory.to_str().unwrap().len() == name.len() + 16,
        "a random part: {memory:?}"
    );
    let emptied = async {
        while std::fs::read_dir(&memory).unwrap().next().is_some() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(WAIT_TIMEOUT, emptied)
        .await
        .expect("volumes of deleted Pods go");
    node.kill();
    std::fs::remove_dir(memory).unwrap();
}
