//! Pods when the node stops, is killed and starts again.

use std::net::Ipv4Addr;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::DeleteParams;
use serde_json::json;
use tokio::net::TcpListener;

use super::harness::{
    KilledOnDrop, Machine, container, ended, eventually, phase, running, self_exe, started,
};

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
fn traces(state: &Path) -> Vec<String> {
    let tag = tag(state);
    let mut found = Vec::new();
    let groups = "find /sys/fs/cgroup -maxdepth 5 -name sandbox-standalone-*";
    for (kind, command, mark) in [
        ("interface", "ip -o link", format!("sbx{tag}")),
        ("table", "nft list tables", format!("_{tag}")),
        ("memory", "ls /dev/shm", tag.clone()),
        ("group", groups, tag.clone()),
    ] {
        let words: Vec<&str> = command.split(' ').collect();
        let output = Command::new(words[0]).args(&words[1..]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let lines = text.lines().filter(|line| line.contains(&mark));
        found.extend(lines.map(|line| format!("{kind}: {line}")));
    }
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
fn tag(state: &Path) -> String {
    let state = state.canonicalize().unwrap();
    let hash = ring::digest::digest(&ring::digest::SHA256, state.as_os_str().as_encoded_bytes());
    let first = hash.as_ref().first_chunk().copied().unwrap();
    format!("{:05x}", u32::from_be_bytes(first) >> 12)
}

const ANY_KIND: &[&str] = &[""];

/// Waits until no traces of these kinds are left. The kernel removes namespaces of dead processes
/// asynchronously.
async fn no_traces(machine: &Machine, kinds: &[&str]) {
    let is_one = |trace: &String| kinds.iter().any(|kind| trace.starts_with(kind));
    let are_gone = || !traces(machine.state.path()).iter().any(is_one);
    eventually("the node leaves no traces", are_gone).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn node_shutdown_leaves_nothing_and_restart_resumes_pods() {
    let (machine, node) = started();
    machine.create("pod", lasting()).await;
    let before = machine.wait("pod", running).await;
    assert!(traces(machine.state.path()).len() >= 3);
    node.stop().await;
    no_traces(&machine, ANY_KIND).await;
    let stopped = machine.all::<Pod>().get("pod").await.unwrap();
    assert_eq!(phase(&stopped), "Running");

    let node = machine.node_with(|_| {});
    let again = |pod: Option<&Pod>| {
        running(pod) && pod.is_some_and(|pod| container(pod).restart_count == 1)
    };
    let after = machine.wait("pod", again).await;
    let ip = |pod: &Pod| pod.status.clone()?.pod_ip?.parse::<Ipv4Addr>().ok();
    let [before, restarted] = [&before, &after].map(|pod| ip(pod).unwrap());
    // Another node may have taken the network of 1024 addresses meanwhile.
    let same_network = before.to_bits() >> 10 == restarted.to_bits() >> 10;
    assert!(restarted == before || !same_network);
    let last = container(&after).last_state.unwrap().terminated.unwrap();
    assert_eq!(last.reason.as_deref(), Some("ContainerStatusUnknown"));
    let starts = machine.path(format!("pods/{}/volumes/disk/starts", after.uid().unwrap()));
    let are_both = || std::fs::read_to_string(&starts).is_ok_and(|text| text == "x\nx\n");
    eventually("the volume has both starts", are_both).await;
    machine.delete::<Pod>("pod").await;
    node.stop().await;
    no_traces(&machine, ANY_KIND).await;
    assert_eq!(std::fs::read_dir(machine.path("pods")).unwrap().count(), 0);
}

/// Node in a separate process, which can be killed or run as another user.
pub(crate) fn node_process(machine: &Machine, url: &str, user: Option<u32>) -> KilledOnDrop {
    let own = std::env::current_exe().unwrap();
    let (mut command, program) = match user {
        None => (Command::new(own), self_exe()),
        Some(user) => {
            let mut command = Command::new("setpriv");
            command.arg(format!("--reuid={user}"));
            command.arg(format!("--regid={user}"));
            command.arg("--clear-groups");
            command.arg(within_reach(machine, &own));
            (command, within_reach(machine, &self_exe()))
        }
    };
    let entry = "node::restart::node_process_entry";
    command.args(["--ignored", "--exact", entry, "--nocapture"]);
    command.env("NODE_TEST_API", url);
    command.env("NODE_TEST_STATE", machine.state.path());
    command.env("NODE_TEST_PROGRAM", program);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command.stderr(Stdio::null());
    KilledOnDrop(command.process_group(0).spawn().unwrap())
}

/// Copies a program for users without access to the build directory.
fn within_reach(machine: &Machine, program: &Path) -> PathBuf {
    let copy = machine.path(program.file_name().unwrap());
    if !copy.exists() {
        std::fs::copy(program, &copy).unwrap();
    }
    copy
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "runs inside the other tests"]
async fn node_process_entry() {
    let variable = |name| std::env::var(name).ok();
    let (Some(url), Some(state), Some(program)) = (
        variable("NODE_TEST_API"),
        variable("NODE_TEST_STATE"),
        variable("NODE_TEST_PROGRAM"),
    ) else {
        return;
    };
    let client = kube::Client::try_from(kube::Config::new(url.parse().unwrap())).unwrap();
    let mut config = standalone::node::NodeConfig::new(state, &program, &program);
    config.images.host_fallback = true;
    let shutdown = tokio_util::sync::CancellationToken::new();
    let run = standalone::node::run(client, config, shutdown);
    Box::pin(run).await.unwrap();
}

pub(crate) async fn serve(machine: &Machine) -> String {
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
    let node = node_process(&machine, &url, None);
    machine.create("pod", lasting()).await;
    machine.wait("pod", running).await;
    drop(node);
    no_traces(&machine, &["process", "interface"]).await;

    let at_once = DeleteParams::default().grace_period(0);
    machine.all::<Pod>().delete("pod", &at_once).await.unwrap();
    let node = machine.node_with(|_| {});
    machine.once("next", "true").await;
    node.stop().await;
    no_traces(&machine, ANY_KIND).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn node_works_without_root() {
    const USER: u32 = 65534;
    let machine = Machine::new();
    std::os::unix::fs::chown(machine.state.path(), Some(USER), Some(USER)).unwrap();
    let url = serve(&machine).await;
    let node = node_process(&machine, &url, Some(USER));
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
    let pod = machine.wait("pod", ended).await;
    let ip = pod.status.unwrap().pod_ip.unwrap();
    assert!(ip.starts_with("127."), "{ip}");
    let expected = format!(
        "1000\nopenhands\n{ip}\n/proc/1\nls: cannot access '/sys': No such file or directory\n"
    );
    assert_eq!(machine.log("pod"), expected);
    machine.create("lasting", lasting()).await;
    machine.wait("lasting", running).await;
    drop(node);
    no_traces(&machine, &["process"]).await;

    let node = node_process(&machine, &url, Some(USER));
    machine.delete::<Pod>("lasting").await;
    machine.delete::<Pod>("pod").await;
    let memory = std::fs::read_to_string(machine.path("memory-volumes")).unwrap();
    let name = format!("/dev/shm/sandbox-standalone-{}-", tag(machine.state.path()));
    assert_eq!(memory.len(), name.len() + 16, "a random part: {memory:?}");
    let is_empty = || std::fs::read_dir(&memory).unwrap().next().is_none();
    eventually("volumes of deleted Pods go", is_empty).await;
    drop(node);
    std::fs::remove_dir(memory).unwrap();
}
