//! Times of dump and restore of a Python process with memory of a given size, in namespaces of its
//! own: `bench_checkpoint CRIU [MIB...]`. Prints a table for docs/benchmarks.md.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result, anyhow};
use checkpoint::{ArchiveKey, Criu, DumpOptions, Limits, Manifest, RestoreOptions, reserve_pids};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

const RUNS: usize = 12;
const SIZES: [u32; 3] = [30, 256, 1024];
/// First argument of the process in the namespaces.
const IN_NAMESPACES: &str = "in-namespaces";
/// Runs this program as process 2 of a PID namespace, without descriptors of its caller.
const INSIDE: &str = r#"
for path in /proc/self/fd/*; do
	number=${path##*/}
	[ "$number" -le 2 ] || eval "exec $number>&-"
done
"$@"
exit $?
"#;
const SCRIPT: &str = "
import os, sys, time
memory = os.urandom(int(sys.argv[1]) << 20)
open(sys.argv[2], 'w').close()
while True: time.sleep(1)
";

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [first, program, sizes @ ..] = &arguments[..]
        && first == IN_NAMESPACES
    {
        let sizes = sizes.iter().map(|size| Ok(size.parse()?));
        return measure(Path::new(program), &sizes.collect::<Result<Vec<_>>>()?);
    }
    anyhow::ensure!(
        !arguments.is_empty(),
        "usage: bench_checkpoint CRIU [MIB...]"
    );
    let own = std::env::current_exe()?;
    let status = Command::new("unshare")
        .args([
            "--user",
            "--map-root-user",
            "--pid",
            "--mount",
            "--fork",
            "--kill-child",
        ])
        .args(["--mount-proc", "bash", "-c", INSIDE, "bash"])
        .arg(own)
        .arg(IN_NAMESPACES)
        .args(arguments)
        .status()?;
    anyhow::ensure!(status.success(), "{status}");
    Ok(())
}

fn measure(program: &Path, sizes: &[u32]) -> Result<()> {
    let sizes = if sizes.is_empty() { &SIZES } else { sizes };
    let start = SystemTime::now();
    reserve_pids(1000)?;
    println!("1000 process numbers: {:?}\n", start.elapsed()?);
    println!("| Memory | Archive | Dump, p50 (min-max) | with sync | going on | Restore |");
    println!("|---|---|---|---|---|---|");
    for &mebibytes in sizes {
        let kinds = [(false, false), (true, false), (false, true)];
        let mut cells = Vec::new();
        let (mut restores, mut bytes) = (Vec::new(), 0);
        for (sync, leave_running) in kinds {
            let mut dumps = Vec::new();
            for _ in 0..RUNS {
                let (dump, restore, size) = cycle(program, mebibytes, sync, leave_running)?;
                dumps.push(dump);
                restores.extend(restore);
                bytes = size;
            }
            cells.push(summary(dumps));
        }
        println!(
            "| {mebibytes} MiB | {} MiB | {} | {} |",
            bytes >> 20,
            cells.join(" | "),
            summary(restores)
        );
    }
    Ok(())
}

fn cycle(
    program: &Path,
    mebibytes: u32,
    sync: bool,
    leave_running: bool,
) -> Result<(Duration, Option<Duration>, u64)> {
    let folder = tempfile::tempdir()?;
    let (ready, archive) = (folder.path().join("ready"), folder.path().join("archive"));
    let mut tree = Command::new("setsid")
        .args(["/usr/bin/python3", "-c", SCRIPT, &mebibytes.to_string()])
        .arg(&ready)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    while !ready.exists() {
        std::thread::sleep(Duration::from_millis(5));
    }
    let criu = Criu {
        program: program.to_owned(),
        scratch: folder.path().to_owned(),
    };
    let key = ArchiveKey::new([1; 32]);
    let limits = Limits {
        time: Duration::from_mins(1),
        bytes: 1 << 32,
    };
    let mut agree = |_: &Manifest| Ok(());
    let options = DumpOptions {
        key: &key,
        context: b"bench",
        limits,
        leave_running,
        find_watched_files: false,
        sync,
        approve: &mut agree,
    };
    let root = tree.id().cast_signed();
    let dumped = criu
        .dump(root, &archive, options)
        .map_err(|error| anyhow!("{error}\n{}", error.log))?;
    let size = fs::metadata(&archive)?.len();
    if leave_running {
        tree.kill()?;
        tree.wait()?;
        return Ok((dumped.duration, None, size));
    }
    tree.wait()?;
    let options = RestoreOptions {
        key: &key,
        context: b"bench",
        limits,
        descriptors: Vec::new(),
        approve: &mut agree,
    };
    let restored = criu
        .restore(&archive, options)
        .map_err(|error| anyhow!("{error}\n{}", error.log))?;
    let pid = Pid::from_raw(restored.pid).context("no process")?;
    kill_process(pid, Signal::KILL)?;
    waitpid(Some(pid), WaitOptions::empty())?;
    Ok((dumped.duration, Some(restored.duration), size))
}

fn summary(mut times: Vec<Duration>) -> String {
    times.sort();
    let of = |place: usize| times.get(place).map_or(0, Duration::as_millis);
    format!(
        "{} ms ({}-{})",
        of(times.len() / 2),
        of(0),
        of(times.len() - 1)
    )
}
