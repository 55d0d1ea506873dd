//! Supervisors as process 1 of namespaces of their own, with the capabilities that a Pod would have
//! for level `Memory`. The root is that of this machine, as if the node kept it.

use std::io::{BufRead as _, BufReader};
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::{self, JoinHandle};

use crds::contract::control::Init;
use crds::contract::persistence::{PersistenceLevel, PodPersistence, RootMechanism, SaveLimits};
use crds::contract::prestart::Prestart;
use rustix::process::{Pid, Signal};
use rustix::thread::UnshareFlags;
use serde_json::Value;
use tempfile::TempDir;

use super::hanging_volume::OwnFileSystem;
use crate::client::{BINARY, TestProcess, is_root, pass_on, set_mode, wait_until};
use crate::supervise::{ready, start, supervise_command};

/// Process 1, with the executor `$1` at its usual path and terminals and `/dev/shm` of its own. Closes what the caller of the tests left
/// open: it lies on mounts of other namespaces.
const INIT: &str = r#"
mount -t tmpfs none /opt && mkdir -p /opt/sandbox/bin && touch /opt/sandbox/bin/sandbox-executor &&
mount --bind "$1" /opt/sandbox/bin/sandbox-executor &&
mount -t devpts -o newinstance,ptmxmode=0666 devpts /dev/pts &&
mount --bind /dev/pts/ptmx /dev/ptmx && mount -t tmpfs none /dev/shm || exit
${SMALL_STORE:+mount -t tmpfs -o size=2m none "$SMALL_STORE"} || exit
[ -z "$CHANGES" ] || { mount -t tmpfs none /run && mkdir /run/sandbox-changes &&
	mount --bind "$CHANGES" /run/sandbox-changes; } || exit
shift
for path in /proc/self/fd/*; do
	number=${path##*/}
	[ "$number" -le 2 ] || eval "exec $number>&-"
done
exec "$@""#;

/// Default set of containers and two more. Number 40 is `CAP_CHECKPOINT_RESTORE`, which older tools
/// do not know by name.
pub(super) const CAPABILITIES: &str = "-all,+cap_40,+sys_ptrace,+chown,+dac_override,+fowner,\
    +fsetid,+kill,+setgid,+setuid,+setpcap,+net_bind_service,+sys_chroot";

/// The fewest capabilities for a tree of several users without a user namespace.
pub(super) const HOST_CAPABILITIES: &str = "-all,+cap_40,+sys_ptrace,+setpcap,+setuid,+setgid,+dac_override,\
    +kill";

/// Limit of a save in seconds, unless a test has another one.
const SECONDS: u64 = 60;

/// Files that containers of one sandbox share.
pub(super) struct Volumes {
    /// Goes before its directory.
    file_system: Option<OwnFileSystem>,
    directory: TempDir,
    /// Limit of a save in the next container.
    pub(super) seconds: u64,
    has_user_namespace: bool,
    pub(super) criu: PathBuf,
}

/// A supervisor that ends with the test.
pub(super) struct Container {
    process: TestProcess,
    log: Option<JoinHandle<String>>,
    _state: TempDir,
}

thread_local! {
    /// Network of this thread and of what it starts, as a Pod has one: no other test takes the ports
    /// of saved servers meanwhile.
    static OWN_NETWORK: () = enter_own_network();
}

#[expect(unsafe_code, reason = "the safe function is deprecated")]
fn enter_own_network() {
    // SAFETY: Descriptors stay shared.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }.unwrap();
    let mut loopback = Command::new("ip");
    loopback.args(["link", "set", "lo", "up"]);
    assert!(loopback.status().unwrap().success());
}

impl Volumes {
    /// Prints SKIPPED without root or CRIU.
    pub(super) fn new(test: &str) -> Option<Self> {
        let criu = criu(test)?;
        OWN_NETWORK.with(|()| ());
        Some(Self::of(tempfile::tempdir().unwrap(), None, criu))
    }

    /// As [`Self::new`], on a file system that can hang.
    pub(super) fn on_own_file_system(test: &str) -> Option<Self> {
        let criu = criu(test)?;
        OWN_NETWORK.with(|()| ());
        let directory = tempfile::tempdir().unwrap();
        let file_system = OwnFileSystem::mount(test, directory.path())?;
        Some(Self::of(directory, Some(file_system), criu))
    }

    fn of(directory: TempDir, file_system: Option<OwnFileSystem>, criu: PathBuf) -> Self {
        set_mode(&directory, 0o755);
        for name in ["store", "work"] {
            std::fs::create_dir(directory.path().join(name)).unwrap();
        }
        Self {
            file_system,
            directory,
            seconds: SECONDS,
            has_user_namespace: true,
            criu,
        }
    }

    pub(super) fn file_system(&self) -> &OwnFileSystem {
        self.file_system.as_ref().unwrap()
    }

    /// For containers with the users of this machine.
    pub(super) fn of_host_users(test: &str) -> Option<Self> {
        Some(Self {
            has_user_namespace: false,
            ..Self::new(test)?
        })
    }

    /// Directory of the command.
    pub(super) fn work(&self) -> PathBuf {
        self.directory.path().join("work")
    }

    /// Its directory `changes`, if there is one, is that of the changes that the node keeps.
    pub(super) fn store(&self) -> PathBuf {
        self.directory.path().join("store")
    }

    /// File of the saved processes.
    pub(super) fn saved(&self, name: &str) -> PathBuf {
        self.store().join("root/memory").join(name)
    }

    pub(super) fn persistence(level: PersistenceLevel, root: RootMechanism) -> String {
        Self::persistence_within(SECONDS, level, root)
    }

    fn persistence_within(seconds: u64, level: PersistenceLevel, root: RootMechanism) -> String {
        let persistence = PodPersistence {
            level,
            root,
            limits: SaveLimits {
                bytes: 1 << 30,
                files: 100_000,
                seconds,
            },
            withheld: Vec::new(),
        };
        serde_json::to_string(&persistence).unwrap()
    }

    /// Starts a container, and in it the command of an init message.
    pub(super) fn run(&self, init: &Init) -> Container {
        self.run_with(init, &self.criu.clone())
    }

    pub(super) fn run_with(&self, init: &Init, criu: &Path) -> Container {
        started(self.dormant(criu, None, PersistenceLevel::Memory), init)
    }

    /// As [`Self::run`], at another level.
    pub(super) fn run_at(&self, level: PersistenceLevel, init: &Init) -> Container {
        started(self.dormant(&self.criu, None, level), init)
    }

    /// As [`Self::run`], with a store of 2 MiB.
    pub(super) fn run_with_small_store(&self, init: &Init) -> Container {
        let mut command = self.command(&self.criu, None, PersistenceLevel::Memory);
        command.0.env("SMALL_STORE", self.store());
        started(Container::start(&mut command.0, command.1), init)
    }

    /// A container without a command.
    pub(super) fn waiting(&self) -> Container {
        self.dormant(&self.criu, None, PersistenceLevel::Memory)
    }

    /// A container without a command, with a prestarted program.
    pub(super) fn prestarted(&self, prestart: &Prestart) -> Container {
        self.dormant(&self.criu, Some(prestart), PersistenceLevel::Memory)
    }

    fn dormant(
        &self,
        criu: &Path,
        prestart: Option<&Prestart>,
        level: PersistenceLevel,
    ) -> Container {
        let (mut command, state) = self.command(criu, prestart, level);
        Container::start(&mut command, state)
    }

    fn command(
        &self,
        criu: &Path,
        prestart: Option<&Prestart>,
        level: PersistenceLevel,
    ) -> (Command, TempDir) {
        let state = tempfile::tempdir().unwrap();
        let mut inner = supervise_command(BINARY, state.path());
        inner
            .arg("--store-dir")
            .arg(self.store())
            .arg("--criu")
            .arg(criu)
            .env(
                "SANDBOX_PERSISTENCE",
                Self::persistence_within(self.seconds, level, RootMechanism::Node),
            )
            .env("SANDBOX_NODE_ROOT", r#"{"level": "Root"}"#)
            .env("TMPDIR", self.work());
        let (mut command, capabilities) = if self.has_user_namespace {
            (namespaces(true), CAPABILITIES)
        } else {
            (namespaces(false), HOST_CAPABILITIES)
        };
        command
            .args(["bash", "-c", INIT, "bash", BINARY])
            .args(["setpriv", "--bounding-set", capabilities])
            .arg(BINARY)
            .env_clear();
        pass_on(&inner, &mut command);
        let changes = self.store().join("changes");
        if changes.exists() {
            command.env("CHANGES", changes);
        }
        if let Some(prestart) = prestart {
            let prestart = serde_json::to_string(prestart).unwrap();
            command.env("SANDBOX_PRESTART", prestart);
        }
        (command, state)
    }
}

/// Path of CRIU. Prints SKIPPED without it or root.
fn criu(test: &str) -> Option<PathBuf> {
    if !is_root(test) {
        return None;
    }
    let install = Path::new(env!("CARGO_MANIFEST_DIR")).join("../hack/criu/install");
    let path = Command::new(install).arg("path").output().unwrap();
    let criu = PathBuf::from(String::from_utf8(path.stdout).unwrap().trim());
    if !criu.is_file() {
        eprintln!("SKIPPED {test}: needs CRIU (hack/install criu)");
        return None;
    }
    Some(criu)
}

/// Runs the rest in new namespaces, also of users or not.
pub(super) fn namespaces(of_users: bool) -> Command {
    let mut command = Command::new("unshare");
    if of_users {
        command.args(["--user", "--map-root-user"]);
    }
    command
        .args(["--pid", "--mount", "--ipc"])
        .args(["--fork", "--kill-child", "--mount-proc"]);
    command
}

fn started(container: Container, init: &Init) -> Container {
    let response = start(&container, init);
    assert_eq!(response.status, 200, "{}", response.body);
    container
}

impl Container {
    pub(super) fn start(command: &mut Command, state: TempDir) -> Self {
        command.stdin(Stdio::null()).stderr(Stdio::piped());
        let mut process = TestProcess::start(command);
        // A pipe, as in a container. A terminal or file of the caller could not be saved.
        let log = BufReader::new(process.child.stderr.take().unwrap());
        let log = thread::spawn(move || {
            let lines = log.lines().map_while(Result::ok);
            let lines = lines.inspect(|line| eprintln!("{line}"));
            lines.collect::<Vec<_>>().join("\n")
        });
        Self {
            process,
            log: Some(log),
            _state: state,
        }
    }

    /// Log of a container that ends by itself.
    pub(super) fn log_of_ended(mut self) -> String {
        self.process.child.wait().unwrap();
        self.log.take().unwrap().join().unwrap()
    }

    /// Report on the state that the run began with, once it is known.
    pub(super) fn restored(&self) -> Value {
        let report = || ready(self.address, 0).json()["restored"].clone();
        wait_until(|| !report().is_null());
        report()
    }

    /// Id of the command's processes, once it is known.
    pub(super) fn processes_id(&self) -> String {
        self.restored();
        let report = ready(self.address, 0).json();
        report["processesId"].as_str().unwrap().to_owned()
    }

    /// Number of the container's process 1 outside of it.
    pub(super) fn first_process(&self) -> i32 {
        let caller = self.process.child.id();
        let children = format!("/proc/{caller}/task/{caller}/children");
        let first = std::fs::read_to_string(children).unwrap();
        first.trim().parse().unwrap()
    }

    /// Ends the container as the kubelet does, and returns its exit status.
    pub(super) fn stop(self) -> i32 {
        self.signalled(Signal::TERM)
    }

    /// Ends the container without a warning.
    pub(super) fn kill(self) {
        self.signalled(Signal::KILL);
    }

    fn signalled(mut self, signal: Signal) -> i32 {
        let first = Pid::from_raw(self.first_process()).unwrap();
        rustix::process::kill_process(first, signal).unwrap();
        self.process.child.wait().unwrap().code().unwrap()
    }

    /// Ends the container after a save.
    pub(super) fn end(self) {
        assert_eq!(self.stop(), 0);
    }
}

impl Deref for Container {
    type Target = TestProcess;

    fn deref(&self) -> &TestProcess {
        &self.process
    }
}

impl DerefMut for Container {
    fn deref_mut(&mut self) -> &mut TestProcess {
        &mut self.process
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        // It ignores SIGTERM.
        let _ = self.process.child.kill();
        let _ = self.process.child.wait();
    }
}
