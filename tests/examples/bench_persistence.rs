//! Pauses and resumes by level (`make bench-persistence`), as a client of the runtime API sees them: from
//! `/pause` until the sandbox is paused with its state on disk, and from `/resume` to the answer of the
//! first command. The reference, in the same run, is a pause that keeps the workspace only.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a benchmark may fail")]

use std::path::PathBuf;
use std::time::Duration;

use client::{Level, Snapshot};
use futures::future::join_all;
use serde_json::Value;
use tests::cli_tools::kubectl;
use tests::fork_session::{
    apply_pool, await_pool, delete_all, fork, forks_go_on, new_forks, snapshot,
};
use tests::persistence_session::start_body;
use tests::session::Session;
use tests::standalone::Standalone;
use tokio::time::{Instant, sleep};

const ROUNDS: usize = 7;
const FORKS: usize = 8;
/// Pool of warm Pods that wait beside the snapshot.
const POOL: &str = "beside";
const POOL_SIZE: u32 = 8;
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Times of starts and saves in the status are those of whole seconds.
const SECOND: Duration = Duration::from_secs(1);
/// Time in which the Pods of stopped forks have ended, so that they do not slow down what follows.
const FORKS_END: Duration = Duration::from_secs(5);
/// Time in which a Pod that waits for the resume has started.
const WAITING_POD_START: Duration = Duration::from_secs(5);
const MIB: u64 = 1 << 20;

/// Memory of a process that cannot be compressed, and says that it is filled.
const HOLDER: &str = "import os, sys, time\n\
    data = [os.urandom(1 << 20) for _ in range(int(sys.argv[1]))]\n\
    open('/workspace/filled', 'w').close()\n\
    while True: time.sleep(0.1)\n";

/// Content of one sandbox.
struct BenchmarkLoad {
    level: &'static str,
    /// MiB of a process.
    memory: u64,
    /// MiB of a file outside of the workspace, which each round writes anew.
    file: u64,
}

const fn load(level: &'static str, memory: u64, file: u64) -> BenchmarkLoad {
    BenchmarkLoad {
        level,
        memory,
        file,
    }
}

const LOADS: [BenchmarkLoad; 6] = [
    load("Workspace", 0, 0),
    load("Root", 0, 0),
    load("Root", 0, 128),
    load("Memory", 30, 0),
    load("Memory", 256, 0),
    load("Memory", 1024, 0),
];

#[tokio::main]
async fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match &args[..] {
        [binaries, criu] => {
            let state = tempfile::tempdir().unwrap();
            let program = PathBuf::from(binaries).join("sandbox-standalone");
            let flags = ["--memory-persistence", "--criu", criu];
            let standalone = Standalone::start_binary(&program, state.path(), &flags);
            let (api, key) = (standalone.api(), standalone.key());
            measure(api, key, "host", SECOND).await;
            measure_forks(api, key, "host", false).await;
        }
        [api, key, image] => {
            measure(api, key, image, SECOND).await;
            measure_forks(api, key, image, true).await;
        }
        [api, key, image, waiting] if waiting == "waiting" => {
            measure(api, key, image, WAITING_POD_START).await;
        }
        [api, key, image, forks] if forks == "forks" => {
            measure_forks(api, key, image, true).await;
        }
        // Pools are made with kubectl.
        _ => panic!("usage: bench_persistence BINARIES CRIU | API KEY IMAGE [waiting|forks]"),
    }
}

/// Measures pauses, and resumes after so long a rest.
async fn measure(api: &str, key: &str, image: &str, rest: Duration) {
    println!("p50 (max) of {ROUNDS}, ms; ratio to the first line");
    let mut reference = None;
    for load in LOADS {
        let name = format!("{}-{}-{}", load.level, load.memory, load.file);
        let mut body = start_body(&name, image);
        body["persistence"] = Value::from(load.level);
        body["resource_factor"] = Value::from(8);
        let session = Session::start(api, key, &body).await;
        let (pauses, resumes, size) = load.rounds(&session, rest).await;
        let [pause, resume] = [&pauses, &resumes].map(|times| times[ROUNDS / 2]);
        let (pause_0, resume_0) = *reference.get_or_insert((pause, resume));
        println!(
            "{name:18} pause {:5.0} ({:5.0}) {:4.1}x   resume to first command {:5.0} ({:5.0}) {:4.1}x   \
             {:4} MiB beside the workspace",
            milliseconds(pause),
            milliseconds(pauses[ROUNDS - 1]),
            pause.as_secs_f64() / pause_0.as_secs_f64(),
            milliseconds(resume),
            milliseconds(resumes[ROUNDS - 1]),
            resume.as_secs_f64() / resume_0.as_secs_f64(),
            size / MIB,
        );
        session.stop().await;
    }
}

/// Snapshots and forks of a sandbox with a process of 256 MiB, one and eight, with pools also in warm Pods:
/// the times, and that for which the sandbox stands still, beside pauses of the same one. Such a pause has
/// the dump, its flush and all calls in it.
async fn measure_forks(api: &str, key: &str, image: &str, has_pools: bool) {
    let mut body = start_body("forked", image);
    body["persistence"] = Value::from("Memory");
    body["resource_factor"] = Value::from(8);
    let session = Session::start(api, key, &body).await;
    let (forks, stood_still) = forks_go_on(&session, FORKS, 256).await;
    for fork in &forks {
        fork.stop().await;
    }
    sleep(FORKS_END).await;
    let (mut snapshots, mut single, mut all) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let begin = Instant::now();
        let taken = snapshot(&session, Level::Memory).await;
        snapshots.push(begin.elapsed());
        for (count, times) in [(1, &mut single), (FORKS, &mut all)] {
            times.push(timed_forks(&session, &taken, count).await);
            sleep(FORKS_END).await;
        }
    }
    let (mut single_warm, mut all_warm) = (Vec::new(), Vec::new());
    if has_pools {
        let taken = snapshot(&session, Level::Memory).await;
        apply_pool(POOL, &taken, POOL_SIZE);
        for _ in 0..ROUNDS {
            for (count, times) in [(1, &mut single_warm), (FORKS, &mut all_warm)] {
                sleep(FORKS_END).await;
                await_pool(POOL, POOL_SIZE);
                times.push(timed_forks(&session, &taken, count).await);
            }
        }
        kubectl(&["delete", "sandboxpool", POOL]);
    }
    let mut pauses = Vec::new();
    for _ in 0..ROUNDS {
        let (time, info) = timed_pause(&session).await;
        assert_eq!(info["persisted"]["level"], "Memory", "{info}");
        pauses.push(time);
        timed_resume(&session, SECOND).await;
    }
    println!("the sandbox stood still for {stood_still} ms in its first snapshot");
    for (name, mut times) in [
        ("pause until the state is on disk", pauses),
        ("snapshot until it is ready", snapshots),
        ("fork to its first command", single),
        ("all forks to their first commands", all),
        ("fork in a warm Pod", single_warm),
        ("all forks in warm Pods", all_warm),
    ] {
        if times.is_empty() {
            continue;
        }
        times.sort();
        let [middle, longest] = [ROUNDS / 2, ROUNDS - 1].map(|at| milliseconds(times[at]));
        println!("{name:34} {middle:5.0} ({longest:5.0})");
    }
    delete_all(&session).await;
    session.stop().await;
}

/// Starts forks, and stops them again. Returns the time to the answers of their first commands.
async fn timed_forks(session: &Session, taken: &Snapshot, count: usize) -> Duration {
    let begin = Instant::now();
    let forks = fork(session, taken, &new_forks(count)).await;
    let commands = forks.iter().map(|fork| fork.run("echo on"));
    assert_eq!(join_all(commands).await, vec!["on"; count]);
    let time = begin.elapsed();
    for fork in &forks {
        let info = fork.info().await;
        assert_eq!(info["restored"]["level"], "Memory", "{info}");
        fork.stop().await;
    }
    time
}

impl BenchmarkLoad {
    /// Sorted times of pauses and of resumes, and the bytes that the last pause kept.
    async fn rounds(
        &self,
        session: &Session,
        rest: Duration,
    ) -> (Vec<Duration>, Vec<Duration>, u64) {
        if self.memory > 0 {
            session.write("/workspace/holder.py", HOLDER).await;
            let start = format!(
                "python3 /workspace/holder.py {} >/dev/null 2>&1 & \
                 until [ -e /workspace/filled ]; do sleep 0.1; done",
                self.memory
            );
            session.run(&start).await;
        }
        let (mut pauses, mut resumes, mut size) = (Vec::new(), Vec::new(), 0);
        for _ in 0..ROUNDS {
            if self.file > 0 {
                let write = format!(
                    "head -c {} /dev/urandom >/opt/file && sync",
                    self.file * MIB
                );
                session.run(&write).await;
            }
            let (time, info) = timed_pause(session).await;
            pauses.push(time);
            assert_eq!(info["persisted"]["level"], self.level, "{info}");
            size = info["persisted"]["size"].as_u64().unwrap_or(0);
            let (time, info) = timed_resume(session, rest).await;
            resumes.push(time);
            assert_eq!(info["restored"]["level"], self.level, "{info}");
        }
        pauses.sort();
        resumes.sort();
        (pauses, resumes, size)
    }
}

/// Pauses. Returns the time until the state is on disk, and the description of the sandbox then.
async fn timed_pause(session: &Session) -> (Duration, Value) {
    let before = session.info().await["persisted"]["at"].clone();
    sleep(SECOND).await;
    let begin = Instant::now();
    session.pause().await;
    let info = until(session, |info| info["persisted"]["at"] != before).await;
    (begin.elapsed(), info)
}

/// Resumes after a rest. Returns the time to the answer of the first command, and the description
/// of the sandbox when it was ready.
async fn timed_resume(session: &Session, rest: Duration) -> (Duration, Value) {
    // A Pod that still ends would delay its successor.
    until(session, |info| info["pausing"] != true).await;
    sleep(rest).await;
    let begin = Instant::now();
    session.resume().await;
    let info = until(session, |info| info["pod_status"] == "Ready").await;
    assert_eq!(session.run("echo on").await, "on");
    (begin.elapsed(), info)
}

async fn until(session: &Session, is_reached: impl Fn(&Value) -> bool) -> Value {
    loop {
        let info = session.info().await;
        if is_reached(&info) {
            return info;
        }
        sleep(POLL_INTERVAL).await;
    }
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
