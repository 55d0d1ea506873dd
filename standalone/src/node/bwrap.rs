//! Arguments of bubblewrap for one container, as a pure function.
//!
//! They travel in a memory file (`--args`), because they contain secrets and an `LD_PRELOAD` of the
//! container must not reach bubblewrap.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use super::container_user::ContainerUser;
use super::exec_as::EXEC_AS;
use super::mount::{MARKER_DIR, Mount};

/// Size of `/dev/shm`, as in container runtimes.
const SHM_BYTES: u32 = 64 << 20;

/// Size of the directory with the node's binary, which is a mount: one page.
const MARKER_BYTES: u32 = 4096;

/// Input of bubblewrap for one container.
#[derive(Debug, Clone)]
pub(crate) struct BwrapSpec {
    pub hostname: String,
    pub tag: String,
    pub self_exe: PathBuf,
    /// Root file system, before `/proc` and `/dev`.
    pub root: Vec<Mount>,
    /// Volumes, mounted afterwards: one may be mounted at `/dev/shm`.
    pub volumes: Vec<Mount>,
    pub environment: Vec<(String, String)>,
    pub user: ContainerUser,
    pub directory: PathBuf,
    pub command: Vec<String>,
}

#[derive(Default)]
struct BwrapOptions(Vec<OsString>);

impl BwrapOptions {
    fn add<const N: usize>(&mut self, args: [&dyn AsRef<OsStr>; N]) {
        self.0
            .extend(args.iter().map(|arg| arg.as_ref().to_owned()));
    }

    /// Creates the parents of a mount point for all users; bubblewrap would for its own only.
    fn parents(&mut self, path: &Path) {
        let above: Vec<_> = path.ancestors().skip(1).collect();
        for directory in above.iter().rev().filter(|d| d.parent().is_some()) {
            self.add([&"--dir", directory]);
        }
    }

    fn mount(&mut self, mount: &Mount) {
        match mount {
            Mount::Bind { from, to, writable } => {
                let kind = if *writable { "--bind" } else { "--ro-bind" };
                self.add([&kind, from, to]);
            }
            Mount::Host { from, to, bind } => self.add([bind, from, to]),
            Mount::Symlink { target, at } => self.add([&"--symlink", target, at]),
            Mount::Dir { at } => self.add([&"--dir", at]),
            Mount::Mounted(root) => self.add([&"--bind", root, &"/"]),
            // The launcher has replaced them.
            Mount::Overlay(_) | Mount::Volume { .. } => {}
        }
    }
}

impl BwrapSpec {
    /// Options in the NUL-terminated format of `--args`.
    pub(crate) fn options(&self) -> Vec<u8> {
        let args = self.args();
        let terminated = args.iter().map(|arg| [arg.as_encoded_bytes(), b"\0"]);
        terminated.flatten().flatten().copied().collect()
    }

    fn args(&self) -> Vec<OsString> {
        let mut options = BwrapOptions::default();
        self.namespaces(&mut options);
        self.file_system(&mut options);
        for (name, value) in &self.environment {
            options.add([&"--setenv", name, value]);
        }
        options.0
    }

    fn namespaces(&self, options: &mut BwrapOptions) {
        options.add([&"--die-with-parent", &"--new-session", &"--clearenv"]);
        options.add([&"--unshare-pid", &"--as-pid-1", &"--unshare-ipc"]);
        options.add([&"--unshare-uts", &"--unshare-cgroup-try"]);
        options.add([&"--hostname", &self.hostname]);
        match &self.user {
            ContainerUser::Switched(switch) => {
                options.add([&"--cap-drop", &"ALL"]);
                for capability in switch.capabilities_outside() {
                    options.add([&"--cap-add", &capability]);
                }
            }
            ContainerUser::Mapped { uid, gid } => {
                options.add([&"--unshare-user", &"--uid", &uid.to_string()]);
                options.add([&"--gid", &gid.to_string()]);
            }
        }
    }

    fn file_system(&self, options: &mut BwrapOptions) {
        self.root.iter().for_each(|mount| options.mount(mount));
        options.add([&"--proc", &"/proc", &"--dev", &"/dev"]);
        options.add([&"--perms", &"1777", &"--size", &SHM_BYTES.to_string()]);
        options.add([&"--tmpfs", &"/dev/shm"]);
        // A mount of its own cannot be renamed, nor can what is in it.
        options.add([&"--perms", &"0755", &"--size", &MARKER_BYTES.to_string()]);
        options.add([&"--tmpfs", &MARKER_DIR]);
        options.add([&"--ro-bind", &self.self_exe, &self.marker()]);
        options.add([&"--remount-ro", &MARKER_DIR]);
        for volume in &self.volumes {
            options.parents(volume.path());
            options.mount(volume);
        }
    }

    fn marker(&self) -> String {
        format!("{MARKER_DIR}/{}", self.tag)
    }

    /// The inner step executes a command after the gate of the start, or in a session.
    pub(crate) fn inner(&self, gate_or_session: &str, command: &[String]) -> Vec<OsString> {
        let mut args = BwrapOptions::default();
        args.add([&self.marker(), &EXEC_AS]);
        if let ContainerUser::Switched(switch) = &self.user {
            args.add([&"--uid", &switch.uid.to_string()]);
            args.add([&"--gid", &switch.gid.to_string()]);
            if !switch.groups.is_empty() {
                let groups: Vec<String> = switch.groups.iter().map(u32::to_string).collect();
                args.add([&"--groups", &groups.join(",")]);
            }
            args.add([&"--caps", &format!("{:x}", switch.capabilities.bits())]);
        }
        args.add([&gate_or_session, &"--cwd", &self.directory, &"--"]);
        args.0.extend(command.iter().map(OsString::from));
        args.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::container_user::RootSwitch;
    use rustix::thread::CapabilitySet;

    fn sandbox(user: ContainerUser) -> BwrapSpec {
        let bind = |from: &str, to: &str, writable| Mount::Bind {
            from: from.into(),
            to: to.into(),
            writable,
        };
        let link = Mount::Symlink {
            target: "usr/bin".into(),
            at: "/bin".into(),
        };
        let workspace = Mount::Dir {
            at: "/workspace".into(),
        };
        BwrapSpec {
            hostname: "pod".into(),
            tag: "abcde".into(),
            self_exe: "/bin/standalone".into(),
            root: vec![bind("/usr", "/usr", false), link, workspace],
            volumes: vec![bind("/v", "/dev/shm", true)],
            environment: vec![("LD_PRELOAD".into(), "/x.so".into())],
            user,
            directory: "/workspace".into(),
            command: ["sh", "-c", "true"].map(str::to_owned).into(),
        }
    }

    fn text(args: &[OsString]) -> String {
        let args: Vec<_> = args.iter().map(|arg| arg.to_string_lossy()).collect();
        args.join(" ").replace(" --", "\n--")
    }

    #[test]
    fn args_of_root_node_with_user() {
        let switch = RootSwitch {
            uid: 1000,
            gid: 1000,
            groups: vec![2000],
            capabilities: CapabilitySet::CHOWN,
            is_filtered: true,
        };
        let sandbox = sandbox(ContainerUser::Switched(switch));
        let expected = "--die-with-parent\n--new-session\n--clearenv\n--unshare-pid\n--as-pid-1\n\
            --unshare-ipc\n--unshare-uts\n--unshare-cgroup-try\n--hostname pod\n--cap-drop ALL\n--cap-add CAP_CHOWN\n\
            --cap-add CAP_SETGID\n--cap-add CAP_SETUID\n--cap-add CAP_SETPCAP\n\
            --ro-bind /usr /usr\n--symlink usr/bin /bin\n--dir /workspace\n--proc /proc\n\
            --dev /dev\n--perms 1777\n--size 67108864\n--tmpfs /dev/shm\n\
            --perms 0755\n--size 4096\n--tmpfs /.sandbox-node\n\
            --ro-bind /bin/standalone /.sandbox-node/abcde\n--remount-ro /.sandbox-node\n\
            --dir /dev\n--bind /v /dev/shm\n\
            --setenv LD_PRELOAD /x.so";
        assert_eq!(text(&sandbox.args()), expected);
        let expected = "/.sandbox-node/abcde exec-as\n--uid 1000\n--gid 1000\n--groups 2000\n\
            --caps 1\n--gate\n--cwd /workspace\n-- sh -c true";
        assert_eq!(text(&sandbox.inner("--gate", &sandbox.command)), expected);
    }

    #[test]
    fn args_of_unprivileged_node_map_user() {
        let (uid, gid) = (1000, 1000);
        let sandbox = sandbox(ContainerUser::Mapped { uid, gid });
        let args = text(&sandbox.args());
        let mapping = "--unshare-user\n--uid 1000\n--gid 1000";
        assert!(args.contains(mapping), "{args}");
        assert!(!args.contains("--cap-add"));
        let expected = "/.sandbox-node/abcde exec-as\n--gate\n--cwd /workspace\n-- sh -c true";
        assert_eq!(text(&sandbox.inner("--gate", &sandbox.command)), expected);
        let options = sandbox.options();
        assert!(options.starts_with(b"--die-with-parent\0--new-session\0"));
        assert_eq!(options.last(), Some(&0));
    }
}
