//! Runs a test again in namespaces of its own, with the capabilities that a Pod would have.

use std::path::{Path, PathBuf};
use std::process::Command;

use checkpoint::Criu;

/// Tells the inner run which part of the test it is.
const PHASE: &str = "CHECKPOINT_TEST_PHASE";
const FOLDER: &str = "CHECKPOINT_TEST_FOLDER";

/// Process 1, which reaps. Closes what the caller of the tests left open: it lies on mounts of
/// other namespaces.
const INIT: &str = r#"
for path in /proc/self/fd/*; do
	number=${path##*/}
	[ "$number" -le 2 ] || eval "exec $number>&-"
done
"$@"
exit $?
"#;

#[derive(Clone, Copy)]
pub(crate) enum Privileges {
    /// A user namespace, with the default capabilities of containers and two more.
    UserNamespace,
    /// The machine's user namespace, with the fewest capabilities for a tree of several users and
    /// for files without a path.
    HostUsers,
}

impl Privileges {
    /// Number 40 is `CAP_CHECKPOINT_RESTORE`, which older tools do not know by name.
    fn capabilities(self) -> &'static str {
        match self {
            Self::UserNamespace => {
                "-all,+cap_40,+sys_ptrace,+chown,+dac_override,+fowner,+fsetid,+kill,+setgid,\
                 +setuid,+setpcap,+net_bind_service,+sys_chroot"
            }
            Self::HostUsers => {
                "-all,+cap_40,+sys_ptrace,+setpcap,+setuid,+setgid,+dac_override,+kill,+chown,\
                 +fowner"
            }
        }
    }
}

/// CRIU of `hack/criu/install`, or `None` with a note.
pub(crate) fn criu_program() -> Option<PathBuf> {
    let install = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../hack/criu/install");
    let path = Command::new(install).arg("path").output().unwrap();
    let program = PathBuf::from(String::from_utf8(path.stdout).unwrap().trim());
    let is_root = rustix::process::geteuid().is_root();
    if program.is_file() && is_root {
        return Some(program);
    }
    let lacking = if is_root {
        "CRIU (hack/install criu)"
    } else {
        "root"
    };
    eprintln!("SKIPPED, needs {lacking}: dump and restore of processes");
    None
}

pub(crate) fn criu(folder: &Path) -> Criu {
    Criu {
        program: criu_program().unwrap(),
        scratch: folder.to_owned(),
    }
}

/// Name and function of a part that runs in namespaces of its own.
pub(crate) type Phase = (&'static str, fn(&Path));

/// Runs the phases of a test one after the other, each in new namespaces. In the inner run it
/// calls the phase instead.
pub(crate) fn run_phases(test: &str, privileges: Privileges, phases: &[Phase]) {
    if let (Ok(phase), Ok(folder)) = (std::env::var(PHASE), std::env::var(FOLDER)) {
        let (_, run) = phases.iter().find(|(name, _)| *name == phase).unwrap();
        return run(Path::new(&folder));
    }
    if criu_program().is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for (phase, _) in phases {
        let mut command = Command::new("unshare");
        if matches!(privileges, Privileges::UserNamespace) {
            command.args(["--user", "--map-root-user"]);
        }
        let status = command
            .args([
                "--pid",
                "--mount",
                "--ipc",
                "--fork",
                "--kill-child",
                "--mount-proc",
            ])
            .args(["bash", "-c", INIT, "bash"])
            .args(["setpriv", "--bounding-set", privileges.capabilities()])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture", "--test-threads=1"])
            .env(PHASE, phase)
            .env(FOLDER, folder.path())
            .status()
            .unwrap();
        assert!(status.success(), "phase {phase}");
    }
}
