//! The node from outside: its kubelet and the first processes of its containers.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use kube::{Api, ResourceExt as _};
use rustix::process::{Pid, Signal, kill_process};
use tests::cli_tools::{cluster_directory, run, run_checked};

use crate::test_namespace::TestNamespace;

/// Tries of a look at the processes of the node, and the time between them.
const MAX_POLLS: u32 = 30_000;
const POLL_INTERVAL: Duration = Duration::from_millis(2);
/// Bytes of processes after which a save is in its middle.
const SOME_BYTES: u64 = 8 << 20;

/// Runs containerd's client on the node.
pub(crate) fn ctr(args: &[&str]) -> String {
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
        let first = fs::read_to_string(cluster_directory().join("pid")).unwrap();
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

/// Directory in `/proc` of the supervisor of a Pod; `None` before it runs.
pub(crate) fn supervisor(pod: &Pod) -> Option<PathBuf> {
    let uid = pod.uid()?;
    let cgroups = [uid.clone(), uid.replace('-', "_")];
    let processes = fs::read_dir("/proc").ok()?;
    processes.flatten().map(|entry| entry.path()).find(|path| {
        let of = fs::read_to_string(path.join("cgroup")).unwrap_or_default();
        cgroups.iter().any(|own| of.contains(own)) && has_word(path, b"supervise")
    })
}

/// Returns whether this is a word of the command line of a process.
pub(crate) fn has_word(process: &Path, word: &[u8]) -> bool {
    let line = fs::read(process.join("cmdline")).unwrap_or_default();
    line.split(|byte| *byte == 0).any(|other| other == word)
}

/// Process id of a CRIU that the supervisor has started. It may run for a fraction of a second, so no
/// other process is looked at.
pub(crate) fn criu(supervisor: &Path) -> Option<String> {
    let threads = fs::read_dir(supervisor.join("task")).ok()?;
    threads.flatten().find_map(|thread| {
        let children = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
        let mut children = children.split_whitespace();
        let is_criu = |child: &&str| has_word(&Path::new("/proc").join(child), b"swrk");
        children.find(is_criu).map(str::to_owned)
    })
}

/// A CRIU that stands still in the middle of its work until this is dropped.
pub(crate) struct HeldCriu {
    pid: String,
}

impl HeldCriu {
    /// Waits for the CRIU of a supervisor, and for what it is to have done. Its name changes with the
    /// first request.
    pub(crate) fn wait(supervisor: &Path, has_begun: impl Fn() -> bool) -> Self {
        let mut running = None;
        for _ in 0..MAX_POLLS {
            running = running.or_else(|| criu(supervisor));
            if let Some(pid) = running.take_if(|_| has_begun()) {
                // At once: CRIU ends within a tenth of a second.
                let number = pid.parse().ok().and_then(Pid::from_raw);
                kill_process(number.expect("a process id"), Signal::STOP).unwrap();
                return Self { pid };
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        panic!("CRIU has not come so far: {running:?}");
    }

    /// Waits for the middle of a save of processes. `saved` is their directory on the volume.
    pub(crate) fn in_a_save(supervisor: &Path, saved: &Path) -> Self {
        let archive = saved.join("archive.partial");
        let is_written = || fs::metadata(&archive).is_ok_and(|found| found.len() > SOME_BYTES);
        Self::wait(supervisor, is_written)
    }
}

impl Drop for HeldCriu {
    fn drop(&mut self) {
        // The supervisor may have killed it.
        run("kill", &["-CONT", &self.pid]);
    }
}

/// Directory of the volume of a sandbox, on the node.
pub(crate) async fn volume(ns: &TestNamespace, sandbox: &str) -> PathBuf {
    let claim: PersistentVolumeClaim = ns.get(&format!("{sandbox}-workspace")).await;
    let name = claim.spec.unwrap().volume_name.unwrap();
    let volumes = Api::<PersistentVolume>::all(ns.client.clone());
    let volume = volumes.get(&name).await.unwrap();
    let path = volume.spec.unwrap().host_path.unwrap().path;
    // The node has directories of its own there.
    cluster_directory().join(path.trim_start_matches('/'))
}
