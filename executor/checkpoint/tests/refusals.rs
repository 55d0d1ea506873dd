//! Failures: each has its reason, and a failed dump leaves the tree running.

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Child;
use std::time::Duration;

use checkpoint::{Approval, CheckpointError, Criu, FailureReason, Manifest, read_manifest};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use super::namespaces::{Privileges, criu, criu_program, run_phases};
use super::sandbox::{agree, ask, dump_options, key, limits, restore_options, start_tree};

const BYTES: usize = 8 << 20;

/// Dumps a tree that cannot be dumped, and asserts that it goes on.
fn fail_to_dump(
    folder: &Path,
    tree: &mut Child,
    approve: Approval<'_>,
    change: impl FnOnce(&mut checkpoint::DumpOptions<'_>),
) -> CheckpointError {
    let (before, checksum) = ask(folder);
    let key = key();
    let mut options = dump_options(&key, approve);
    change(&mut options);
    let archive = folder.join("archive");
    let error = criu(folder)
        .dump(tree.id().cast_signed(), &archive, options)
        .unwrap_err();
    println!("{error}: {}", error.log);
    assert!(!archive.exists() && !folder.join("archive.partial").exists());
    assert_eq!(ask(folder), (before + 1, checksum));
    error
}

/// Ends a tree, whose root leads a session.
fn end(mut tree: Child) {
    let root = Pid::from_raw(tree.id().cast_signed()).unwrap();
    kill_process_group(root, Signal::KILL).unwrap();
    tree.wait().unwrap();
}

/// Signals the CRIU that this process runs at the moment.
fn signal_criu(signal: Signal) {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let mut names = processes.filter_map(|entry| {
        let name = fs::read_to_string(entry.path().join("comm")).ok()?;
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        (name == "criu\n").then_some(pid)
    });
    kill_process(Pid::from_raw(names.next().unwrap()).unwrap(), signal).unwrap();
}

/// Dumps with a script in place of CRIU.
fn fail_with(folder: &Path, script: &str, root: i32, limit: Duration) -> FailureReason {
    let program = folder.join("script");
    fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let criu = Criu {
        program,
        scratch: folder.to_owned(),
    };
    let (secret, mut approve) = (key(), agree);
    let mut options = dump_options(&secret, &mut approve);
    options.limits.time = limit;
    let dumped = criu.dump(root, &folder.join("archive"), options);
    dumped.unwrap_err().reason
}

fn run_refused_dumps(folder: &Path) {
    let mut tree = start_tree(folder, BYTES, &[]);
    let error = fail_to_dump(folder, &mut tree, &mut agree, |options| {
        options.limits.bytes = 1 << 20;
    });
    assert!(matches!(error.reason, FailureReason::SizeLimit(_)));
    let short = Duration::from_millis(20);
    let error = fail_to_dump(folder, &mut tree, &mut agree, |options| {
        options.limits.time = short;
    });
    assert!(matches!(error.reason, FailureReason::TimeLimit(_)));
    let root = tree.id().cast_signed();
    let reason = fail_with(folder, "exec sleep 60", root, short);
    assert!(matches!(reason, FailureReason::TimeLimit(_)));
    // A child of CRIU keeps its socket open.
    let killed = "sleep 60 & kill -KILL $$";
    let reason = fail_with(folder, killed, root, Duration::from_secs(20));
    assert!(matches!(reason, FailureReason::Criu), "{reason}");
    // CRIU is killed while it holds the tree: the archive was complete, and is gone again.
    let mut stop_criu = |_: &Manifest| {
        signal_criu(Signal::STOP);
        Ok(())
    };
    let error = fail_to_dump(folder, &mut tree, &mut stop_criu, |options| {
        options.limits.time = Duration::from_secs(1);
    });
    assert!(matches!(error.reason, FailureReason::TimeLimit(_)));
    let mut veto = |_: &Manifest| Err("not now".to_owned());
    let error = fail_to_dump(folder, &mut tree, &mut veto, |_| {});
    assert_eq!(error.to_string(), "stopped by the caller: not now");
    end(tree);

    let missing = Criu {
        program: folder.join("missing"),
        scratch: folder.to_owned(),
    };
    let own = std::process::id().cast_signed();
    let error = missing
        .dump(
            own,
            &folder.join("archive"),
            dump_options(&key(), &mut agree),
        )
        .unwrap_err();
    assert!(matches!(error.reason, FailureReason::ProgramMissing(_)));
    let error = criu(folder)
        .dump(
            i32::MAX,
            &folder.join("archive"),
            dump_options(&key(), &mut agree),
        )
        .unwrap_err();
    assert!(matches!(error.reason, FailureReason::ProcessMissing));
}

#[test]
fn tree_goes_on_when_its_dump_is_refused() {
    run_phases(
        "refusals::tree_goes_on_when_its_dump_is_refused",
        Privileges::UserNamespace,
        &[("dump", run_refused_dumps)],
    );
}

/// Sets the simplest filter: one instruction that allows all.
const SECCOMP: &str = r"
import ctypes, os, sys
class Filter(ctypes.Structure):
    _fields_ = [('code', ctypes.c_ushort), ('jt', ctypes.c_ubyte), ('jf', ctypes.c_ubyte), ('k', ctypes.c_uint)]
class Program(ctypes.Structure):
    _fields_ = [('length', ctypes.c_ushort), ('filter', ctypes.POINTER(Filter))]
allow = Filter(6, 0, 0, 0x7fff0000)
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.byref(Program(1, ctypes.pointer(allow)))) == 0
os.execvp(sys.argv[1], sys.argv[1:])
";

/// Watches a folder, then becomes the tree.
const WATCH: &str = r"
import ctypes, os, sys
libc = ctypes.CDLL(None)
watch = libc.inotify_init()
assert libc.inotify_add_watch(watch, b'/usr/bin', 0x100) > 0
os.set_inheritable(watch, True)
os.execvp(sys.argv[1], sys.argv[1:])
";

/// Sets up a queue of `io_uring`, then becomes the tree.
const IO_URING: &str = r"
import ctypes, os, sys
queue = ctypes.CDLL(None).syscall(425, 4, ctypes.create_string_buffer(120))
assert queue > 0
os.set_inheritable(queue, True)
os.execvp(sys.argv[1], sys.argv[1:])
";

/// Traces the rest of the tree, which ends with it.
const TRACE: &str = r"
import ctypes, os, sys
os.setsid()
child = os.fork()
if child == 0:
    os.execvp(sys.argv[1], sys.argv[1:])
assert ctypes.CDLL(None).ptrace(0x4206, child, 0, 0x100000) == 0
os.waitpid(child, 0)
";

fn run_unsupported(folder: &Path) {
    let python = |script| ["python3", "-c", script];
    let nested = ["unshare", "--user", "--net"];
    // The traced one is the last: the innermost process of the tree outlives its tracer.
    for (prefix, expected) in [
        (python(SECCOMP), "SeccompFilter"),
        (python(WATCH), "WatchedFiles"),
        (python(IO_URING), "IoUring"),
        (nested, "NestedNamespaces"),
        (python(TRACE), "Traced"),
    ] {
        let mut tree = start_tree(folder, BYTES, &prefix);
        let error = fail_to_dump(folder, &mut tree, &mut agree, |_| {});
        assert_eq!(format!("{:?}", error.reason), expected);
        end(tree);
    }
}

#[test]
fn reason_is_told_when_tree_cannot_be_dumped() {
    run_phases(
        "refusals::reason_is_told_when_tree_cannot_be_dumped",
        Privileges::UserNamespace,
        &[("dump", run_unsupported)],
    );
}

fn dump_for_later(folder: &Path) {
    checkpoint::reserve_pids(1000).unwrap();
    let mut tree = start_tree(folder, BYTES, &[]);
    ask(folder);
    let root = tree.id().cast_signed();
    criu(folder)
        .dump(
            root,
            &folder.join("archive"),
            dump_options(&key(), &mut agree),
        )
        .unwrap();
    tree.wait().unwrap();
}

fn null_descriptors(folder: &Path) -> Vec<(String, OwnedFd)> {
    let manifest = read_manifest(&folder.join("archive"), &key(), b"test").unwrap();
    let pipes = manifest.outside_pipes.into_iter();
    let null = || fs::File::options().write(true).open("/dev/null").unwrap();
    pipes.map(|pipe| (pipe.name, null().into())).collect()
}

fn fail_to_restore(
    folder: &Path,
    archive: &Path,
    approve: Approval<'_>,
    change: impl FnOnce(&mut checkpoint::RestoreOptions<'_>),
) -> CheckpointError {
    let manifest = read_manifest(&folder.join("archive"), &key(), b"test").unwrap();
    let key = key();
    let mut options = restore_options(&key, null_descriptors(folder), approve);
    change(&mut options);
    let error = criu(folder).restore(archive, options).unwrap_err();
    println!("{error}: {}", error.log);
    assert!(!Path::new(&format!("/proc/{}", manifest.root_pid)).exists());
    error
}

fn run_refused_restores(folder: &Path) {
    let archive = folder.join("archive");
    let original = fs::read(&archive).unwrap();
    let changed = folder.join("changed");
    let mut bytes = original.clone();
    bytes[original.len() / 2] ^= 1;
    fs::write(&changed, &bytes).unwrap();
    let error = fail_to_restore(folder, &changed, &mut agree, |_| {});
    assert!(matches!(error.reason, FailureReason::ArchiveInvalid(_)));
    fs::write(&changed, &original[..original.len() / 2]).unwrap();
    let error = fail_to_restore(folder, &changed, &mut agree, |_| {});
    assert!(matches!(error.reason, FailureReason::ArchiveInvalid(_)));
    let error = fail_to_restore(folder, &archive, &mut agree, |options| {
        options.context = b"other";
    });
    assert!(matches!(error.reason, FailureReason::ArchiveInvalid(_)));
    let error = fail_to_restore(folder, &archive, &mut agree, |options| {
        options.descriptors.clear();
    });
    assert!(matches!(error.reason, FailureReason::DescriptorMissing(_)));
    let mut veto = |_: &Manifest| Err("used".to_owned());
    let error = fail_to_restore(folder, &archive, &mut veto, |_| {});
    assert!(matches!(error.reason, FailureReason::Vetoed(_)));
    let short = checkpoint::Limits {
        time: Duration::from_millis(5),
        ..limits()
    };
    let error = fail_to_restore(folder, &archive, &mut agree, |options| {
        options.limits = short;
    });
    assert!(matches!(error.reason, FailureReason::TimeLimit(_)));
    // Nothing of the failures is left: the same archive in the same place is restored.
    let restored = criu(folder)
        .restore(
            &archive,
            restore_options(&key(), null_descriptors(folder), &mut agree),
        )
        .unwrap();
    assert_eq!(ask(folder).0, 2);
    // Its number is in use now.
    let error = criu(folder)
        .restore(
            &archive,
            restore_options(&key(), null_descriptors(folder), &mut agree),
        )
        .unwrap_err();
    assert!(matches!(error.reason, FailureReason::PidInUse));
    assert_eq!(ask(folder).0, 3);
    kill_process_group(Pid::from_raw(restored.pid).unwrap(), Signal::KILL).unwrap();
}

/// A program in place of CRIU that fails as long as the file `fail` has lines, and takes one each time.
fn failing_criu(folder: &Path, failures: usize) -> Criu {
    let (program, lines) = (folder.join("failing"), folder.join("fail"));
    let real = criu_program().unwrap();
    let script = format!(
        "#!/bin/sh\nif [ -s {lines} ]; then sed -i 1d {lines}; exit 1; fi\nexec {real} \"$@\"\n",
        lines = lines.display(),
        real = real.display()
    );
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(lines, "x\n".repeat(failures)).unwrap();
    Criu {
        program,
        ..criu(folder)
    }
}

fn run_second_attempts(folder: &Path) {
    let archive = folder.join("archive");
    let secret = key();
    let restore = |failures, approve: Approval<'_>| {
        let options = restore_options(&secret, null_descriptors(folder), approve);
        failing_criu(folder, failures).restore(&archive, options)
    };
    let mut approvals = 0;
    let mut approve = |_: &Manifest| {
        approvals += 1;
        Ok(())
    };
    let error = restore(2, &mut approve).unwrap_err();
    assert!(matches!(error.reason, FailureReason::Criu), "{error}");
    let restored = restore(1, &mut approve).unwrap();
    let failed = restored.failed_attempt.unwrap();
    assert!(matches!(failed.reason, FailureReason::Criu), "{failed}");
    assert_eq!((ask(folder).0, approvals), (2, 1));
    kill_process_group(Pid::from_raw(restored.pid).unwrap(), Signal::KILL).unwrap();
}

#[test]
fn restore_that_fails_without_a_known_reason_is_tried_twice() {
    run_phases(
        "refusals::restore_that_fails_without_a_known_reason_is_tried_twice",
        Privileges::UserNamespace,
        &[("dump", dump_for_later), ("restore", run_second_attempts)],
    );
}

#[test]
fn no_process_is_left_when_restore_is_refused() {
    run_phases(
        "refusals::no_process_is_left_when_restore_is_refused",
        Privileges::UserNamespace,
        &[("dump", dump_for_later), ("restore", run_refused_restores)],
    );
}
