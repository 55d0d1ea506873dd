//! Programs of the tree: for its calls, CRIU puts code of its own into a page of each for a moment.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use checkpoint::reserve_pids;
use rustix::process::{Pid, WaitOptions, waitpid};

use super::namespaces::{Privileges, criu, run_phases};
use super::sandbox::{agree, dump_options, key, restore_options};

const ROUNDS: usize = 30;
const PROCESSES: usize = 12;

/// Content of all executable mappings of a process.
fn code(pid: i32) -> Vec<(u64, Vec<u8>)> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let memory = File::open(format!("/proc/{pid}/mem")).unwrap();
    let executable = maps.lines().filter(|line| {
        line.split(' ').nth(1).unwrap().contains('x') && !line.ends_with("[vsyscall]")
    });
    let ranges = executable.map(|line| {
        let (range, _) = line.split_once(' ').unwrap();
        let (start, end) = range.split_once('-').unwrap();
        [start, end].map(|number| u64::from_str_radix(number, 16).unwrap())
    });
    let content = ranges.map(|[start, end]| {
        let mut content = vec![0; usize::try_from(end - start).unwrap()];
        memory.read_exact_at(&mut content, start).unwrap();
        (start, content)
    });
    content.collect()
}

fn dump_and_restore_often(folder: &Path) {
    reserve_pids(1000).unwrap();
    let mut tree = Command::new("setsid")
        .args([
            "bash",
            "-c",
            "for _ in $(seq $0); do sleep 1000 & done; wait",
        ])
        .arg(PROCESSES.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let pid = tree.id().cast_signed();
    let mut sleeping: Vec<i32> = Vec::new();
    while sleeping.len() < PROCESSES {
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
        let children = children.split_whitespace().map(|pid| pid.parse().unwrap());
        sleeping = children.filter(|pid| is_asleep(*pid)).collect();
    }
    let archive = folder.join("archive");
    let before: Vec<_> = sleeping.iter().map(|pid| code(*pid)).collect();
    for round in 0..ROUNDS {
        criu(folder)
            .dump(pid, &archive, dump_options(&key(), &mut agree))
            .unwrap_or_else(|error| panic!("{error}\n{}", error.log));
        waitpid(Pid::from_raw(pid), WaitOptions::empty()).unwrap();
        // Process 1 reaps the others.
        while sleeping
            .iter()
            .any(|pid| Path::new(&format!("/proc/{pid}")).exists())
        {
            thread::yield_now();
        }
        let restored = criu(folder)
            .restore(&archive, restore_options(&key(), Vec::new(), &mut agree))
            .unwrap_or_else(|error| panic!("round {round}: {error}\n{}", error.log));
        assert_eq!(restored.pid, pid);
        for (pid, before) in sleeping.iter().zip(&before) {
            assert!(*before == code(*pid), "round {round}: code of {pid}");
        }
    }
    // The restored tree is a child as the first one was.
    tree.kill().unwrap();
    tree.wait().unwrap();
}

/// Returns whether a process is `sleep` that has loaded its libraries.
fn is_asleep(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|stat| stat.starts_with(&format!("{pid} (sleep) S ")))
}

#[test]
fn programs_are_whole_after_each_of_many_dumps() {
    run_phases(
        "code::programs_are_whole_after_each_of_many_dumps",
        Privileges::UserNamespace,
        &[("dumps", dump_and_restore_often)],
    );
}
