//! Kept roots that their workload has left to deceive the node: links to the host at and above
//! mount points, files and pipes in their place, devices.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};

use super::super::harness::Machine;
use super::fixture::{Fixture, IMAGES};

/// Change of a root between two Pods.
struct Case {
    name: &'static str,
    change: fn(tree: &Path, host: &Path),
    /// Reason for a new root.
    reason: Option<&'static str>,
}

const CASES: [Case; 9] = [
    Case {
        name: "etc is a link to the host",
        change: |tree, host| replace_by_link(&tree.join("etc"), host),
        reason: None,
    },
    Case {
        name: "a directory above a mount point is a link to the host",
        change: |tree, host| replace_by_link(&tree.join("opt"), host),
        reason: None,
    },
    Case {
        name: "a mount point is a link to the host",
        change: |tree, host| replace_by_link(&tree.join("workspace"), host),
        reason: None,
    },
    Case {
        name: "a link leads into a volume",
        change: |tree, _| replace_by_link(&tree.join("opt"), Path::new("/workspace/evil")),
        reason: Some("/opt/sandbox/bin is led into another mount by a link"),
    },
    Case {
        name: "a file is in the way",
        change: |tree, _| {
            remove(&tree.join("opt"));
            fs::write(tree.join("opt"), "").unwrap();
        },
        reason: Some("/opt/sandbox/bin has a file in its way"),
    },
    Case {
        name: "a file of the Pod is a pipe",
        change: |tree, _| special(&tree.join("etc/hosts"), FileType::Fifo, 0),
        reason: None,
    },
    Case {
        name: "a file of the Pod is a device",
        change: |tree, _| {
            let memory = makedev(1, 1);
            special(
                &tree.join("etc/hostname"),
                FileType::CharacterDevice,
                memory,
            );
            special(
                &tree.join("device"),
                FileType::CharacterDevice,
                makedev(1, 3),
            );
        },
        reason: None,
    },
    Case {
        name: "a file of the Pod is a link to the host",
        change: |tree, host| replace_by_link(&tree.join("etc/hosts"), &host.join("file")),
        reason: None,
    },
    Case {
        name: "a mount point of the node is a link",
        change: |tree, host| replace_by_link(&tree.join("proc"), host),
        reason: Some("/proc is a link, where this node mounts"),
    },
];

fn remove(path: &Path) {
    if fs::symlink_metadata(path).is_ok_and(|found| found.is_dir()) {
        fs::remove_dir_all(path).unwrap();
    } else {
        let _ = fs::remove_file(path);
    }
}

fn replace_by_link(path: &Path, target: &Path) {
    remove(path);
    symlink(target, path).unwrap();
}

fn special(path: &Path, kind: FileType, device: u64) {
    remove(path);
    mknodat(CWD, path, kind, Mode::from_raw_mode(0o666), device).unwrap();
}

/// Root of the current generation: the upper directory of an overlay, or all of it.
fn tree(directory: &Path) -> PathBuf {
    let current = directory.join("current");
    let upper = current.join("upper");
    if upper.exists() {
        upper
    } else {
        current.join("root")
    }
}

/// Names and sizes of all files of the host's directory.
fn listing(host: &Path) -> Vec<String> {
    let entries = fs::read_dir(host).unwrap().map(|entry| {
        let entry = entry.unwrap();
        format!(
            "{} {}",
            entry.path().display(),
            entry.metadata().unwrap().len()
        )
    });
    let mut listed: Vec<String> = entries.collect();
    listed.sort();
    listed
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_roots_start_and_reach_nothing_of_the_host() {
    let Some(fixture) = Fixture::start() else {
        return;
    };
    // Every user may write there, and it is in no directory of the node.
    let host = tempfile::tempdir().unwrap();
    fs::write(host.path().join("file"), "").unwrap();
    rustix::fs::chmod(host.path(), Mode::from_raw_mode(0o777)).unwrap();
    let before = listing(host.path());
    for image in IMAGES {
        for (number, case) in CASES.iter().enumerate() {
            let claim = format!("claim-{number}");
            let directory = fixture.machine.claim(&claim, "1Gi").await;
            check(&fixture, case, image, &claim, &directory, host.path()).await;
            assert_eq!(listing(host.path()), before, "{image}: {}", case.name);
            delete(&fixture.machine, &claim).await;
        }
    }
    // The links do reach the host: it would be seen.
    let control = tempfile::tempdir().unwrap();
    replace_by_link(&control.path().join("opt"), host.path());
    fs::create_dir_all(control.path().join("opt/sandbox/bin")).unwrap();
    assert_ne!(listing(host.path()), before);
    fixture.node.stop().await;
}

async fn delete(machine: &Machine, claim: &str) {
    use k8s_openapi::api::core::v1::PersistentVolumeClaim;
    machine.delete::<PersistentVolumeClaim>(claim).await;
}

async fn check(
    fixture: &Fixture,
    case: &Case,
    image: &str,
    claim: &str,
    directory: &Path,
    host: &Path,
) {
    const SCRIPT: &str = "echo x > /opt/sandbox/bin/x && echo w > /workspace/w && \
        grep -q pod$ /etc/hosts && cat /etc/hostname && \
        if [ -e /device ] && cat /device 2>/dev/null; then echo opened; fi; echo changed > \
        /etc/hosts; echo \"$SANDBOX_NODE_ROOT\"";
    fixture.run(claim, image, "true").await;
    (case.change)(&tree(directory), host);
    let log = fixture.run(claim, image, SCRIPT).await;
    let name = case.name;
    let lines: Vec<&str> = log.lines().collect();
    let [hostname, .., state] = lines[..] else {
        panic!("{image}: {name}: {log}");
    };
    assert_eq!(
        (hostname, lines.len()),
        ("pod", 2),
        "{image}: {name}: {log}"
    );
    match case.reason {
        None => assert_eq!(state, "{\"level\":\"Root\"}", "{image}: {name}"),
        Some(reason) => assert!(state.contains(reason), "{image}: {name}: {state}"),
    }
}
