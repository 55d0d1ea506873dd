//! The node from outside: its kubelet and the first processes of its containers.

use std::path::PathBuf;
use std::process::Command;

use k8s_openapi::api::core::v1::Pod;

fn directory() -> PathBuf {
    let directory = std::env::var_os("CLUSTER_DIR");
    directory.expect("hack/cluster env sets CLUSTER_DIR").into()
}

fn run(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output().unwrap();
    assert!(output.status.success(), "{program} {args:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Runs containerd's client on the node.
pub(crate) fn ctr(args: &[&str]) -> String {
    let socket = directory().join("run/containerd.sock");
    let place = ["-a", socket.to_str().unwrap(), "-n", "k8s.io"];
    run("ctr", &[&place[..], args].concat())
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
        let first = std::fs::read_to_string(directory().join("pid")).unwrap();
        let first = first.split_whitespace().next().unwrap();
        let children = run("ps", &["-o", "pid=,args=", "--ppid", first]);
        let kubelet = children
            .lines()
            .find(|line| line.contains("kubelet --config"));
        let pid = kubelet.and_then(|line| line.split_whitespace().next());
        let pid = pid.expect("a node has a kubelet").to_owned();
        run("kill", &["-STOP", &pid]);
        Self { pid }
    }
}

impl Drop for StoppedKubelet {
    fn drop(&mut self) {
        run("kill", &["-CONT", &self.pid]);
    }
}
