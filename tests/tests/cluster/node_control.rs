//! The node from outside: its kubelet and the first processes of its containers.

use k8s_openapi::api::core::v1::Pod;
use tests::cli_tools::{cluster_directory, run_checked};

/// Runs containerd's client on the node.
fn ctr(args: &[&str]) -> String {
    let socket = cluster_directory().join("run/containerd.sock");
    let place = ["-a", socket.to_str().unwrap(), "-n", "k8s.io"];
    run_checked("ctr", &[&place[..], args].concat())
}

/// Containerd's name of the container of a sandbox.
fn container(pod: &Pod) -> &str {
    let status = pod.status.as_ref().unwrap();
    let mut containers = status.container_statuses.iter().flatten();
    let container = containers.find(|c| c.name == "sandbox");
    let id = container.unwrap().container_id.as_deref().unwrap();
    id.trim_start_matches("containerd://")
}

/// Kills the first process of a sandbox, as the kernel or an administrator would.
pub(crate) fn kill_container(pod: &Pod) {
    ctr(&["tasks", "kill", "--signal", "SIGKILL", container(pod)]);
}

/// A sandbox whose processes stand still until this is dropped, as if its node were out of reach.
pub(crate) struct Frozen {
    container: String,
}

impl Frozen {
    pub(crate) fn new(pod: &Pod) -> Self {
        let container = container(pod).to_owned();
        ctr(&["tasks", "pause", &container]);
        Self { container }
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        ctr(&["tasks", "resume", &self.container]);
    }
}

/// A kubelet that is stopped until this is dropped. Containers run on.
pub(crate) struct StoppedKubelet {
    pid: String,
}

impl StoppedKubelet {
    pub(crate) fn new() -> Self {
        let first = std::fs::read_to_string(cluster_directory().join("pid")).unwrap();
        let first = first.split_whitespace().next().unwrap();
        let children = run_checked("ps", &["-o", "pid=,args=", "--ppid", first]);
        let kubelet = children
            .lines()
            .find(|line| line.contains("kubelet --config"));
        let pid = kubelet.and_then(|line| line.split_whitespace().next());
        let pid = pid.expect("a node has a kubelet").to_owned();
        run_checked("kill", &["-STOP", &pid]);
        Self { pid }
    }
}

impl Drop for StoppedKubelet {
    fn drop(&mut self) {
        run_checked("kill", &["-CONT", &self.pid]);
    }
}
