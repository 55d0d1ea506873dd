//! `make run`, as a newcomer calls it and ends it.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::binaries::root;
use crate::free_port::free_port;
use crate::standalone::Standalone;

const MAX_POLLS: u32 = 100;
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Starts by `make run`, on free ports: with a state directory, which may be absent, and no other flag.
pub fn make_run(state: &Path) -> Standalone {
    let (gateway, api) = (free_port(), free_port());
    let mut make = Command::new("make");
    make.arg("run")
        .arg(format!("STATE={}", state.display()))
        .arg(format!(
            "ARGS=--listen 0.0.0.0:{gateway} --api-listen 127.0.0.1:{api}"
        ))
        .current_dir(root());
    for (name, _) in std::env::vars_os().filter(|(name, _)| is_of_test(name)) {
        make.env_remove(name);
    }
    Standalone::spawn(make, state)
}

/// Ends what [`make_run`] started as Ctrl-C does, which a terminal sends to all processes of its command.
/// Nothing may be left: no process of the command, no process or mount of a sandbox.
pub fn press_ctrl_c(made: Standalone) {
    let group = Pid::from_raw(made.id().cast_signed());
    let state = made.state.clone();
    assert!(!mounts(&state).is_empty(), "warm Pods have mounts");
    killpg(group, Signal::SIGINT).expect("a running command");
    made.wait();
    // Its last processes, whose parents have ended, are reaped by the machine's first process.
    for _ in 0..MAX_POLLS {
        if killpg(group, None).is_err() && mounts(&state).is_empty() {
            return;
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    panic!(
        "`make run` leaves processes or mounts: {:?}",
        mounts(&state)
    );
}

/// A mount of something in the folder of this state directory, from each process that has one.
fn mounts(state: &Path) -> Vec<String> {
    // A random name. Where `/tmp` is a file system of its own, the path begins there.
    let folder = state.iter().nth_back(1).and_then(OsStr::to_str);
    let folder = folder.expect("a state directory in a temporary one");
    let processes = std::fs::read_dir("/proc").expect("/proc").flatten();
    let paths = processes.map(|process| process.path().join("mountinfo"));
    let seen = paths.filter_map(|path| std::fs::read_to_string(path).ok());
    let found = |text: String| {
        text.lines()
            .find(|line| line.contains(folder))
            .map(str::to_owned)
    };
    seen.filter_map(found).collect()
}

/// Variables that a newcomer does not have: of standalone, of the `make` that runs the tests, and those
/// that cargo and nextest set for a test. Cargo would run build scripts again that read them.
fn is_of_test(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    let prefixes = [
        "CARGO_BIN_",
        "CARGO_CRATE_",
        "CARGO_MANIFEST_",
        "CARGO_PKG_",
        "MAKE",
        "NEXTEST",
        "SANDBOX_",
    ];
    name == "OUT_DIR" || prefixes.iter().any(|prefix| name.starts_with(prefix))
}
