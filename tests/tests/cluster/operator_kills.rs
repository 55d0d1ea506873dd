//! The operator is killed in the middle of a pause or a resume that keeps processes, and starts again: it
//! continues what had begun, and no state runs twice.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crds::contract::persistence::PersistenceLevel;
use crds::sandbox::Phase;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::runtime::wait::await_condition;
use serde_json::json;
use tests::cli_tools::run_checked;
use tokio::time::timeout;

use crate::beats::{assert_goes_on, pause, start};
use crate::installation::api;
use crate::node_control::{HeldCriu, has_word, supervisor, volume};
use crate::test_namespace::TestNamespace;

/// Lease of the controller.
const LEASE: &str = "sandbox-operator-controller";
/// Time for another controller to take the lease, or for a Pod to appear.
const LIMIT: Duration = Duration::from_mins(1);
const MAX_POLLS: u32 = 6000;
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Controller of the installation, by its lease.
async fn lease_holder() -> String {
    let lease: Lease = TestNamespace::of_gateway().await.get(LEASE).await;
    lease.spec.unwrap().holder_identity.unwrap_or_default()
}

/// Kills controller and gateway of this installation, which are started again, and returns the lease
/// holder of before.
async fn kill_operator() -> String {
    let before = lease_holder().await;
    let url = api();
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let paths = processes.map(|entry| entry.path());
    let own: Vec<_> = paths
        .filter(|path| has_word(path, url.as_bytes()))
        .filter(|path| has_word(path, b"controller") || has_word(path, b"gateway"))
        .collect();
    assert_eq!(own.len(), 2, "{own:?}");
    for path in own {
        let pid = path.file_name().unwrap().to_str().unwrap();
        run_checked("kill", &["-KILL", pid]);
    }
    before
}

/// Waits until another controller than this one acts.
async fn wait_for_other_controller(before: &str) {
    let ns = TestNamespace::of_gateway().await;
    let is_other = |lease: Option<&Lease>| {
        let holder = lease.and_then(|lease| lease.spec.as_ref()?.holder_identity.as_deref());
        holder.is_some_and(|holder| !holder.is_empty() && holder != before)
    };
    let other = await_condition(ns.api(), LEASE, is_other);
    timeout(LIMIT, other).await.unwrap().unwrap();
}

/// Waits for a file of the volume.
fn wait_for_file(path: &Path) {
    for _ in 0..MAX_POLLS {
        if path.exists() {
            return;
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    panic!("{} is never there", path.display());
}

/// The save ends after another controller has begun to act, or before.
#[tokio::test]
#[ignore = "needs a real cluster: make test-cluster"]
async fn pause_goes_on_when_the_operator_is_killed_in_its_middle() {
    let ns = TestNamespace::new("pause-killed").await;
    let name = "p";
    let incarnation = start(&ns, name).await.incarnation;
    let saved = volume(&ns, name).await.join("state/root/memory");
    for ends_without_controller in [false, true] {
        let pod = ns.get::<Pod>(name).await;
        let supervisor = supervisor(&pod).expect("the Pod has a supervisor");
        ns.patch(name, json!({"state": "Paused"})).await;
        let criu = HeldCriu::in_a_save(&supervisor, &saved);
        let killed = kill_operator().await;
        let status = ns.get::<crds::Sandbox>(name).await.status.unwrap();
        assert_eq!(status.phase, Phase::Pausing);
        assert!(!saved.join("meta.json").exists());
        if ends_without_controller {
            drop(criu);
            wait_for_file(&saved.join("meta.json"));
            wait_for_other_controller(&killed).await;
        } else {
            wait_for_other_controller(&killed).await;
            drop(criu);
        }
        let persisted = ns.paused(name).await.persisted.unwrap();
        assert_eq!(persisted.level, PersistenceLevel::Memory, "{persisted:?}");
        assert_eq!(persisted.reason, None);
        ns.patch(name, json!({"state": "Running"})).await;
        assert_goes_on(&ns, name, incarnation).await;
    }
}

/// Before the supervisor is asked, and while processes are being restored.
#[tokio::test]
#[ignore = "needs a real cluster: make test-cluster"]
async fn resume_goes_on_when_the_operator_is_killed_in_its_middle() {
    let ns = TestNamespace::new("resume-killed").await;
    let name = "r";
    let incarnation = start(&ns, name).await.incarnation;
    for restores in [false, true] {
        let persisted = pause(&ns, name).await.persisted.unwrap();
        assert_eq!(persisted.level, PersistenceLevel::Memory, "{persisted:?}");
        ns.patch(name, json!({"state": "Running"})).await;
        let exists = |pod: Option<&Pod>| pod.is_some();
        let pod = await_condition(ns.pods(), name, exists);
        let pod = timeout(LIMIT, pod).await.unwrap().unwrap().unwrap();
        let criu = restores.then(|| HeldCriu::wait(&wait_for_supervisor(&pod), || true));
        let killed = kill_operator().await;
        let status = ns.get::<crds::Sandbox>(name).await.status.unwrap();
        assert_ne!(status.phase, Phase::Running);
        wait_for_other_controller(&killed).await;
        drop(criu);
        assert_goes_on(&ns, name, incarnation).await;
        // A Pod whose processes are being restored is not replaced.
        let same = ns.get::<Pod>(name).await.uid() == pod.uid();
        assert!(same || !restores);
    }
    let pod = ns.get::<Pod>(name).await;
    ns.delete::<crds::Sandbox>(name).await;
    ns.gone(&pod).await;
}

fn wait_for_supervisor(pod: &Pod) -> PathBuf {
    for _ in 0..MAX_POLLS {
        if let Some(found) = supervisor(pod) {
            return found;
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    panic!("the Pod has no supervisor: {}", pod.name_any());
}
