//! Attempts as root outside of any sandbox, where they must work: a control that they would be
//! seen.

use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Stdio};

use super::attempts::{EVERYWHERE, ON_SOME_MACHINES};
use super::program::{ABSENT, END, names, program};

/// Numbers of block devices, as `mknod` takes them.
pub fn disks() -> String {
    let entries = fs::read_dir("/sys/block").unwrap();
    let numbers = entries.filter_map(|entry| {
        let text = fs::read_to_string(entry.unwrap().path().join("dev")).ok()?;
        let (major, minor) = text.trim().split_once(':')?;
        let device = rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?);
        Some(device.to_string())
    });
    numbers.collect::<Vec<_>>().join(",")
}

/// Runs a script as root outside of any sandbox, with arguments from `$0`. Namespaces of its own
/// only keep the attempts from each other and end its processes.
pub fn outside(script: &str, arguments: &[&str]) -> String {
    let output = Command::new("unshare")
        .args([
            "--mount",
            "--ipc",
            "--pid",
            "--fork",
            "--mount-proc",
            "--kill-child",
        ])
        .args(["sh", "-c", script])
        .args(arguments)
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// Makes all attempts outside, with this file that holds `secret`. Fails unless each works for
/// which the machine has the feature.
pub fn assert_attempts_work(secret: &str) {
    let (worked, absent) = attempts(secret);
    let without_control = |attempts| -> Vec<&str> {
        let mut names = names(attempts);
        names.retain(|name| !worked.contains(*name));
        names
    };
    assert_eq!(without_control(EVERYWHERE), Vec::<&str>::new());
    for name in without_control(ON_SOME_MACHINES) {
        assert!(absent.contains(name), "{name}");
        eprintln!("not checked, because this machine lacks it: {name}");
    }
}

/// Names of the attempts that worked, and of those without the feature.
fn attempts(secret: &str) -> (BTreeSet<String>, BTreeSet<String>) {
    const SCRIPT: &str = "mount --bind $3 $3; mount -o remount,ro,bind $3; \
        setsid sleep infinity & exec perl -e \"$0\" $1 $2 $3 $! $4 1";
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (own, cover) = (path("own"), path("cover"));
    fs::create_dir(&cover).unwrap();
    let output = outside(SCRIPT, &[&program(), &own, secret, &cover, &disks()]);
    let (absent, worked): (Vec<_>, Vec<_>) =
        output.lines().partition(|line| line.starts_with(ABSENT));
    assert_eq!(worked.last(), Some(&END), "{output}");
    let absent = absent
        .into_iter()
        .map(|line| line[ABSENT.len()..].to_owned());
    (
        worked.into_iter().map(str::to_owned).collect(),
        absent.collect(),
    )
}
