//! Resource limits, where this machine allows cgroups.

use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, PersistentVolumeClaim, Pod};
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use standalone::node::NodeError;

use super::harness::{Machine, ended, eventually, running, started, termination};

#[tokio::test(flavor = "multi_thread")]
async fn memory_limit_reports_oom_killed() {
    let (machine, node) = started();
    let main = json!({
        "command": ["perl", "-e", "my $x = 'x' x (256 << 20); print 'alive'"],
        "resources": {"limits": {"memory": "64Mi"}},
    });
    machine.create_once("pod", main).await;
    let end = termination(&machine.wait("pod", ended).await);
    if machine.path("cgroups").exists() {
        assert_eq!(end.reason.as_deref(), Some("OOMKilled"));
        assert_eq!(end.exit_code, 137);
    } else {
        assert_eq!(machine.log("pod"), "alive");
    }
    node.stop().await;
    assert!(!machine.path("cgroups").exists());
}

/// A container that always computes uses up its time in each period of its cgroup.
#[tokio::test(flavor = "multi_thread")]
async fn cpu_limit_throttles() {
    let (machine, node) = started();
    let main = json!({
        "command": ["bash", "-c", "while :; do :; done"],
        "resources": {"limits": {"cpu": "100m"}},
    });
    machine.create_once("pod", main).await;
    machine.wait("pod", running).await;
    let record = std::fs::read_to_string(machine.path("cgroups")).unwrap_or_default();
    let statistics = |group: &Path| std::fs::read_to_string(group.join("cpu.stat")).ok();
    let counts = |text: &String| text.contains("nr_throttled ");
    let mut groups = record.lines().map(Path::new);
    if let Some(node) = groups.find(|node| statistics(node).as_ref().is_some_and(counts)) {
        let is_throttled = |text: String| counts(&text) && !text.contains("nr_throttled 0\n");
        eventually("throttled periods", || {
            let mut containers = std::fs::read_dir(node).unwrap().flatten();
            containers.any(|own| statistics(&own.path()).is_some_and(is_throttled))
        })
        .await;
    }
    node.stop().await;
}

/// The limit that the kernel enforces follows a resize of the Pod.
#[tokio::test(flavor = "multi_thread")]
async fn resize_changes_the_limit_of_a_running_container() {
    let (machine, node) = started();
    let resources = |memory: &str| json!({"limits": {"memory": memory}});
    let main = json!({"command": ["sleep", "infinity"], "resources": resources("64Mi")});
    machine.create_once("pod", main).await;
    machine.wait("pod", running).await;
    let record = std::fs::read_to_string(machine.path("cgroups")).unwrap_or_default();
    let limits = || {
        let containers = record
            .lines()
            .filter_map(|node| std::fs::read_dir(node).ok());
        let files = ["memory.limit_in_bytes", "memory.max"];
        let paths = containers.flatten().flatten().map(|own| own.path());
        paths
            .flat_map(|own| files.map(|file| std::fs::read_to_string(own.join(file)).ok()))
            .flatten()
            .map(|text| text.trim().to_owned())
            .collect::<Vec<_>>()
    };
    let is_limited = !limits().is_empty();
    assert!(!is_limited || limits().contains(&(64 << 20).to_string()));
    let containers = json!([{"name": "main", "resources": resources("128Mi")}]);
    let patch = Patch::Strategic(json!({"spec": {"containers": containers}}));
    let (pods, params) = (machine.all::<Pod>(), PatchParams::default());
    pods.patch_subresource("resize", "pod", &params, &patch)
        .await
        .unwrap();
    if is_limited {
        eventually("a higher limit", || {
            limits().contains(&(128 << 20).to_string())
        })
        .await;
    }
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_and_shared_memory_are_limited() {
    let machine = Machine::new();
    let node = machine.node_with(|config| config.process_limit = 20);
    let script = "df --output=size -B1 /dev/shm | tail -1; exec perl -e '$| = 1; for (1..40) { \
        my $child = fork; defined $child or die; sleep 60, exit unless $child; print qq(forked\\n) }'";
    machine.once("pod", script).await;
    let log = machine.log("pod");
    assert!(log.contains("67108864\n"), "{log}");
    let record = std::fs::read_to_string(machine.path("cgroups")).unwrap_or_default();
    let is_limited = record.contains("pids") || record.lines().count() == 1;
    let expected = if is_limited { 10..20 } else { 40..41 };
    assert!(expected.contains(&log.matches("forked").count()), "{log}");
    node.stop().await;
}

/// The control writes as much without a limit, while the container does not come to its end.
#[tokio::test(flavor = "multi_thread")]
async fn disk_rate_limit_slows_down_containers() {
    const WRITE: &str = "dd if=/dev/zero bs=1M count=16 oflag=direct status=none of=";
    let machine = Machine::new();
    let mut node = machine.node_with(|config| config.disk_rate_limit = 64 << 10);
    let main = json!({"command": ["bash", "-c", format!("{WRITE}/tmp/f; echo end; sleep 1000")]});
    machine.create_once("pod", main).await;
    tokio::select! {
        _ = machine.wait("pod", running) => {}
        Err(NodeError::DiskRate(error)) = node.ended() => {
            return eprintln!("SKIPPED, no limits for disks: {error}");
        }
    }
    let write = format!("{WRITE}{}", machine.path("f").display());
    let written = std::process::Command::new("bash")
        .args(["-c", &write])
        .status();
    assert!(written.unwrap().success());
    assert_eq!(machine.log("pod"), "");
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn node_does_not_start_without_the_limit_of_the_disk_that_is_asked_for() {
    let machine = Machine {
        state: tempfile::tempdir_in("/dev/shm").unwrap(),
        ..Machine::new()
    };
    let mut node = machine.node_with(|config| config.disk_rate_limit = 1 << 20);
    let error = node.ended().await.unwrap_err().to_string();
    let expected = "the disk use of containers cannot be limited: the file system of /dev/shm";
    assert!(error.starts_with(expected), "{error}");
    assert!(
        error.ends_with("; --disk-rate-limit 0 does without"),
        "{error}"
    );
    assert!(!machine.path("cgroups").exists());
}

/// So containers without limits of their own end before the rest of the machine does.
#[tokio::test(flavor = "multi_thread")]
async fn all_containers_together_leave_memory_and_processes_to_the_machine() {
    let (machine, node) = started();
    machine.once("pod", "true").await;
    let record = std::fs::read_to_string(machine.path("cgroups")).unwrap_or_default();
    let limit = |files: &[&str]| {
        let groups = record.lines().map(Path::new);
        let mut paths = groups.flat_map(|node| files.iter().map(|file| node.join(file)));
        let text = paths.find_map(|path| std::fs::read_to_string(path).ok())?;
        text.trim().parse::<u64>().ok()
    };
    let total = std::fs::read_to_string("/proc/meminfo").unwrap();
    let total = total.split_whitespace().nth(1).unwrap();
    let total = total.parse::<u64>().unwrap() << 10;
    if !record.is_empty() {
        let memory = limit(&["memory.limit_in_bytes", "memory.max"]).unwrap();
        assert!(
            (total / 2..total - (200 << 20)).contains(&memory),
            "{memory} of {total}"
        );
        assert!(limit(&["pids.max"]).unwrap() >= 4096);
    }
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pod_beyond_the_machine_stays_pending() {
    let (machine, node) = started();
    let resources = json!({"limits": {"cpu": "500", "memory": "900Gi"}});
    let main = json!({"command": ["true"], "resources": resources});
    machine.create_once("pod", main).await;
    let is_rejected = |pod: Option<&Pod>| {
        let conditions = pod.and_then(|pod| pod.status.as_ref()?.conditions.as_ref());
        let mut conditions = conditions.into_iter().flatten();
        conditions.any(|held| held.reason.as_deref() == Some("Unschedulable"))
    };
    let pod = machine.wait("pod", is_rejected).await;
    let status = serde_json::to_value(&pod.status).unwrap();
    let message = "0/1 nodes are available: 1 Insufficient cpu, 1 Insufficient memory.";
    assert_eq!(status["conditions"][0]["message"], message);
    assert_eq!(status["phase"], "Pending");
    assert_eq!(pod.spec.unwrap().node_name, None);

    machine.once("small", "true").await;
    let nodes = Api::<Node>::all(machine.api.client());
    let node_object = nodes.get("standalone").await.unwrap();
    let capacity = node_object.status.unwrap().capacity.unwrap();
    let (cpu, memory) = (&capacity["cpu"].0, &capacity["memory"].0);
    assert!(cpu.ends_with("000m") && memory != "0", "{capacity:?}");
    machine.delete::<Pod>("pod").await;
    node.stop().await;
}

/// Pod whose container writes 8 MiB to `file` and stays.
fn writer(file: &str, limit: &str, volume: &Value) -> Value {
    let script = format!("fallocate -l 8M {file}; exec sleep infinity");
    json!({
        "containers": [{"name": "main", "image": "any", "command": ["bash", "-c", script],
            "resources": {"limits": {"ephemeral-storage": limit}},
            "volumeMounts": [{"name": "v", "mountPath": "/v"}]}],
        "volumes": [volume],
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn pod_that_fills_the_disk_is_evicted() {
    let machine = Machine::new();
    let node = machine.node_with(|config| {
        config.disk_interval = Duration::from_millis(50);
        config.pod_disk_limit = 4 << 20;
    });
    let claim = json!({"metadata": {"name": "work"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}},
    }});
    machine.make::<PersistentVolumeClaim>(claim).await;
    let directory = |source| json!({"name": "v", "emptyDir": source});
    let claimed = json!({"name": "v", "persistentVolumeClaim": {"claimName": "work"}});
    let small = "exceeds the limit \"1Mi\". ";
    let total = "Pod ephemeral local storage usage exceeds the total limit of containers";
    for (name, spec, message) in [
        (
            "layer",
            writer("/tmp/f", "2Mi", &directory(json!({}))),
            format!("{total} 2Mi. "),
        ),
        (
            "default",
            writer("/v/f", "0", &directory(json!({}))),
            format!("{total} 4Mi. "),
        ),
        (
            "directory",
            writer("/v/f", "1Gi", &directory(json!({"sizeLimit": "1Mi"}))),
            format!("Usage of EmptyDir volume \"v\" {small}"),
        ),
        (
            "memory",
            writer(
                "/v/f",
                "1Gi",
                &directory(json!({"sizeLimit": "1Mi", "medium": "Memory"})),
            ),
            format!("Usage of EmptyDir volume \"v\" {small}"),
        ),
        (
            "claim",
            writer("/v/f", "1Gi", &claimed),
            format!("Usage of PersistentVolumeClaim volume \"v\" {small}"),
        ),
    ] {
        machine.create(name, spec).await;
        let pod = machine.wait(name, ended).await;
        assert_eq!(termination(&pod).exit_code, 137);
        let files = machine.path(format!("pods/{}", pod.uid().unwrap()));
        let status = pod.status.unwrap();
        assert_eq!(status.phase.as_deref(), Some("Failed"));
        assert_eq!(status.reason.as_deref(), Some("Evicted"));
        assert_eq!(status.message, Some(message));
        let is_freed = || !files.join("roots").exists() && !files.join("volumes").exists();
        eventually("the space is free", is_freed).await;
        assert!(files.join("logs").exists());
    }
    // The claim is still too full, which the next Pod can change.
    let mut cleaner = writer("/v/f", "1Gi", &claimed);
    cleaner["restartPolicy"] = json!("Never");
    cleaner["containers"][0]["command"] = json!(["bash", "-c", "rm /v/f"]);
    machine.create("cleaner", cleaner).await;
    let pod = machine.wait("cleaner", ended).await;
    assert_eq!(pod.status.unwrap().phase.as_deref(), Some("Succeeded"));
    node.stop().await;
}
