//! Parts of Pods and volumes on the node, which go with them. Tests that run beside have
//! Pods that come and go: what they have is not left for long.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use crds::names::SANDBOX_LABEL;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use tests::cli_tools::cluster_directory;
use tests::session::Session;

use crate::node_control::ctr;
use crate::test_namespace::TestNamespace;

/// Looks at a node that cleans up, and the time between them. The kubelet removes containers of
/// deleted Pods once a minute.
const MAX_POLLS: u32 = 60;
const POLL_INTERVAL: Duration = Duration::from_secs(2);

const CONTAINER: &str = "container";
const POD_DIRECTORY: &str = "directory of a Pod";
const PROCESS: &str = "process";
const SNAPSHOT: &str = "snapshot";
const VOLUME: &str = "volume";
const VOLUME_DIRECTORY: &str = "directory of a volume";
/// Kinds of all that a sandbox which runs has.
const KINDS: [&str; 6] = [
    CONTAINER,
    POD_DIRECTORY,
    VOLUME_DIRECTORY,
    PROCESS,
    SNAPSHOT,
    VOLUME,
];

/// Kinds and names of things on the node.
type Traces = BTreeSet<(&'static str, String)>;

/// Parts of Pods and volumes that do not exist.
pub(crate) async fn leftovers(ns: &TestNamespace) -> Traces {
    traces(ns, &ListParams::default()).await
}

/// Stops a sandbox that runs, and waits until the node has nothing of it, nor more than `before` of
/// others.
pub(crate) async fn stop_without_leftovers(ns: &TestNamespace, session: &Session, before: &Traces) {
    let selector = |operator: &str| {
        let selector = format!("{SANDBOX_LABEL}{operator}{}", session.id);
        ListParams::default().labels(&selector)
    };
    // If the sandbox did not exist, all that it has would be left.
    let seen = traces(ns, &selector("!=")).await;
    let seen: BTreeSet<_> = seen.iter().map(|(kind, _)| *kind).collect();
    assert_eq!(seen, BTreeSet::from(KINDS));
    session.stop().await;
    let own = selector("=");
    let mut left: Option<Traces> = None;
    for _ in 0..MAX_POLLS {
        let pods = ns.pods().list(&own).await.unwrap();
        let claims = ns.api::<PersistentVolumeClaim>().list(&own).await.unwrap();
        if pods.items.is_empty() && claims.items.is_empty() {
            let mut now = leftovers(ns).await;
            now.retain(|trace| {
                !before.contains(trace) && left.as_ref().is_none_or(|left| left.contains(trace))
            });
            if now.is_empty() {
                return;
            }
            left = Some(now);
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    panic!("{} has left on the node: {left:?}", session.id);
}

/// Parts of all Pods and volumes but those that these parameters list.
async fn traces(ns: &TestNamespace, listed: &ListParams) -> Traces {
    let pods = Api::<Pod>::all(ns.client.clone()).list(listed).await;
    let pods: BTreeSet<String> = pods.unwrap().iter().filter_map(ResourceExt::uid).collect();
    let mut traces = volumes(ns, listed).await;
    traces.extend(containers(&pods));
    let directory = cluster_directory();
    let directories = names(&directory.join("var/lib/kubelet/pods"));
    let directories = directories.into_iter().filter(|uid| !pods.contains(uid));
    traces.extend(directories.map(|uid| (POD_DIRECTORY, uid)));
    let number = fs::read_to_string(directory.join("n")).unwrap();
    let of_cluster = format!("/kube{}/", number.trim());
    for process in names(Path::new("/proc")) {
        let groups = fs::read_to_string(format!("/proc/{process}/cgroup")).unwrap_or_default();
        let group = groups.lines().find(|group| group.contains(&of_cluster));
        let mut parts = group.unwrap_or_default().split('/');
        let pod = parts.find_map(|part| part.strip_prefix("pod"));
        if pod.is_some_and(|uid| !pods.contains(uid)) {
            traces.insert((PROCESS, process));
        }
    }
    traces
}

/// Containers of other Pods than these, and writable snapshots of no container of these.
fn containers(pods: &BTreeSet<String>) -> Traces {
    let others = pods
        .iter()
        .map(|uid| format!("labels.\"io.kubernetes.pod.uid\"!={uid}"));
    let filter = others.collect::<Vec<_>>().join(",");
    let all = ctr(&["containers", "ls", "-q"]);
    let others = ctr(&["containers", "ls", "-q", &filter]);
    let others: BTreeSet<_> = others.lines().collect();
    let own: Vec<_> = all.lines().filter(|id| !others.contains(id)).collect();
    let snapshotter = fs::read_to_string(cluster_directory().join("etc/snapshotter")).unwrap();
    let snapshots = ctr(&["snapshots", "--snapshotter", snapshotter.trim(), "ls"]);
    // The name of a snapshot has the id of its container, and the last column its kind.
    let snapshots = snapshots.lines().skip(1).filter(|line| {
        !line.trim_end().ends_with("Committed") && !own.iter().any(|id| line.contains(id))
    });
    let names = snapshots.filter_map(|line| line.split_whitespace().next());
    let snapshots = names.map(|name| (SNAPSHOT, name.to_owned()));
    let containers = others.iter().map(|id| (CONTAINER, (*id).to_owned()));
    containers.chain(snapshots).collect()
}

/// Volumes of other claims than those that these parameters list, and their directories.
async fn volumes(ns: &TestNamespace, listed: &ListParams) -> Traces {
    let claims = Api::<PersistentVolumeClaim>::all(ns.client.clone());
    let claims = claims.list(listed).await.unwrap();
    let claims: BTreeSet<String> = claims.iter().filter_map(ResourceExt::uid).collect();
    let volumes = Api::<PersistentVolume>::all(ns.client.clone());
    let volumes = volumes.list(&ListParams::default()).await.unwrap();
    let directories = names(&cluster_directory().join("tmp/hostpath_pv"));
    let mut traces: Traces = directories
        .into_iter()
        .map(|name| (VOLUME_DIRECTORY, name))
        .collect();
    for volume in volumes {
        let name = volume.name_any();
        let spec = volume.spec.unwrap();
        let claim = spec.claim_ref.and_then(|claim| claim.uid);
        if claim.is_some_and(|uid| claims.contains(&uid)) {
            let path = spec.host_path.map(|volume| volume.path).unwrap_or_default();
            let directory = path.rsplit('/').next().unwrap_or_default();
            traces.remove(&(VOLUME_DIRECTORY, directory.to_owned()));
        } else {
            traces.insert((VOLUME, name));
        }
    }
    traces
}

/// Names in a directory, which may be absent.
fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.collect()
}
