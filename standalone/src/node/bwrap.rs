//! The command line of bubblewrap for one container: pure, so that it can be read in a snapshot.
//!
//! Options travel in a memory file (`--args`), not on the command line or in the environment:
//! they hold secrets, and an `LD_PRELOAD` meant for the container must not reach bubblewrap.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use super::exec_as::EXEC_AS;
use super::identity::Identity;

/// Directory of the node's own binary in every container. Its entry is the node's tag, which
/// makes containers recognisable from outside (see [`super::sweep`]).
pub(crate) const MARKER_DIR: &str = "/.sandbox-node";

/// One step in making the container's file system, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Mount {
    Bind {
        from: PathBuf,
        to: PathBuf,
        writable: bool,
    },
    Symlink {
        target: PathBuf,
        at: PathBuf,
    },
    Dir {
        at: PathBuf,
    },
}

impl Mount {
    fn place(&self) -> &Path {
        match self {
            Self::Bind { to: at, .. } | Self::Symlink { at, .. } | Self::Dir { at } => at,
        }
    }
}

/// All that bubblewrap is told about a container.
#[derive(Debug, Clone)]
pub(crate) struct Sandbox {
    pub hostname: String,
    pub tag: String,
    pub self_exe: PathBuf,
    /// The root, before `/proc` and `/dev`.
    pub root: Vec<Mount>,
    /// Volumes, after them: a volume may be mounted at `/dev/shm`.
    pub volumes: Vec<Mount>,
    pub environment: Vec<(String, String)>,
    pub identity: Identity,
    pub directory: PathBuf,
    pub command: Vec<String>,
}

#[derive(Default)]
struct Options(Vec<OsString>);

impl Options {
    fn add<const N: usize>(&mut self, words: [&dyn AsRef<OsStr>; N]) {
        self.0
            .extend(words.iter().map(|word| word.as_ref().to_owned()));
    }

    /// Directories above a mount point, as every user may enter them: bubblewrap makes what is
    /// missing for its own user alone.
    fn parents(&mut self, place: &Path) {
        let above: Vec<_> = place.ancestors().skip(1).collect();
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
            Mount::Symlink { target, at } => self.add([&"--symlink", target, at]),
            Mount::Dir { at } => self.add([&"--dir", at]),
        }
    }
}

impl Sandbox {
    /// The options, NUL-terminated as `--args` wants them.
    pub(crate) fn options(&self) -> Vec<u8> {
        let words = self.words();
        let mut bytes = Vec::new();
        for word in words {
            bytes.extend_from_slice(word.as_encoded_bytes());
            bytes.push(0);
        }
        bytes
    }

    fn words(&self) -> Vec<OsString> {
        let mut options = Options::default();
        self.namespaces(&mut options);
        self.file_system(&mut options);
        for (name, value) in &self.environment {
            options.add([&"--setenv", name, value]);
        }
        options.0
    }

    fn namespaces(&self, options: &mut Options) {
        options.add([&"--die-with-parent", &"--new-session", &"--clearenv"]);
        options.add([
            &"--unshare-pid",
            &"--as-pid-1",
            &"--unshare-ipc",
            &"--unshare-uts",
        ]);
        options.add([&"--hostname", &self.hostname]);
        match &self.identity {
            Identity::Switched(switch) => {
                options.add([&"--cap-drop", &"ALL"]);
                for capability in switch.capabilities_outside() {
                    options.add([&"--cap-add", &capability]);
                }
            }
            Identity::Mapped { uid, gid } => {
                options.add([&"--unshare-user", &"--uid", &uid.to_string()]);
                options.add([&"--gid", &gid.to_string()]);
            }
        }
    }

    fn file_system(&self, options: &mut Options) {
        self.root.iter().for_each(|mount| options.mount(mount));
        options.add([&"--proc", &"/proc", &"--dev", &"/dev"]);
        options.add([&"--perms", &"1777", &"--tmpfs", &"/dev/shm"]);
        options.add([&"--ro-bind", &self.self_exe, &self.marker()]);
        for volume in &self.volumes {
            options.parents(volume.place());
            options.mount(volume);
        }
    }

    fn marker(&self) -> String {
        format!("{MARKER_DIR}/{}", self.tag)
    }

    /// What bubblewrap executes: the inner step, which executes the container's command.
    pub(crate) fn inner(&self) -> Vec<OsString> {
        let mut words = Options::default();
        words.add([&self.marker(), &EXEC_AS]);
        if let Identity::Switched(switch) = &self.identity {
            words.add([
                &"--uid",
                &switch.uid.to_string(),
                &"--gid",
                &switch.gid.to_string(),
            ]);
            if !switch.groups.is_empty() {
                let groups: Vec<String> = switch.groups.iter().map(u32::to_string).collect();
                words.add([&"--groups", &groups.join(",")]);
            }
            words.add([&"--caps", &format!("{:x}", switch.mask())]);
            if switch.no_new_privs {
                words.add([&"--no-new-privs"]);
            }
        }
        words.add([&"--gate", &"--cwd", &self.directory, &"--"]);
        words.0.extend(self.command.iter().map(OsString::from));
        words.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::identity::Switch;

    fn sandbox(identity: Identity) -> Sandbox {
        Sandbox {
            hostname: "pod".into(),
            tag: "abcde".into(),
            self_exe: "/bin/standalone".into(),
            root: vec![
                Mount::Bind {
                    from: "/usr".into(),
                    to: "/usr".into(),
                    writable: false,
                },
                Mount::Symlink {
                    target: "usr/bin".into(),
                    at: "/bin".into(),
                },
                Mount::Dir {
                    at: "/workspace".into(),
                },
            ],
            volumes: vec![Mount::Bind {
                from: "/v".into(),
                to: "/dev/shm".into(),
                writable: true,
            }],
            environment: vec![("LD_PRELOAD".into(), "/x.so".into())],
            identity,
            directory: "/workspace".into(),
            command: vec!["sh".into(), "-c".into(), "true".into()],
        }
    }

    fn text(words: &[OsString]) -> String {
        let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
        words.join(" ").replace(" --", "\n--")
    }

    #[test]
    fn as_root_with_a_user() {
        let switch = Switch {
            uid: 1000,
            gid: 1000,
            groups: vec![2000],
            capabilities: vec!["CHOWN".into()],
            no_new_privs: true,
        };
        let sandbox = sandbox(Identity::Switched(switch));
        let expected = "--die-with-parent\n--new-session\n--clearenv\n--unshare-pid\n--as-pid-1\n\
            --unshare-ipc\n--unshare-uts\n--hostname pod\n--cap-drop ALL\n--cap-add CAP_CHOWN\n\
            --cap-add CAP_SETGID\n--cap-add CAP_SETUID\n--cap-add CAP_SETPCAP\n\
            --ro-bind /usr /usr\n--symlink usr/bin /bin\n--dir /workspace\n--proc /proc\n\
            --dev /dev\n--perms 1777\n--tmpfs /dev/shm\n\
            --ro-bind /bin/standalone /.sandbox-node/abcde\n--dir /dev\n--bind /v /dev/shm\n\
            --setenv LD_PRELOAD /x.so";
        assert_eq!(text(&sandbox.words()), expected);
        let expected = "/.sandbox-node/abcde exec-as\n--uid 1000\n--gid 1000\n--groups 2000\n\
            --caps 1\n--no-new-privs\n--gate\n--cwd /workspace\n-- sh -c true";
        assert_eq!(text(&sandbox.inner()), expected);
    }

    #[test]
    fn without_root_the_user_is_mapped() {
        let sandbox = sandbox(Identity::Mapped {
            uid: 1000,
            gid: 1000,
        });
        let words = text(&sandbox.words());
        assert!(
            words.contains("--unshare-user\n--uid 1000\n--gid 1000"),
            "{words}"
        );
        assert!(!words.contains("--cap-add"));
        let expected = "/.sandbox-node/abcde exec-as\n--gate\n--cwd /workspace\n-- sh -c true";
        assert_eq!(text(&sandbox.inner()), expected);
    }

    #[test]
    fn options_are_nul_terminated() {
        let bytes = sandbox(Identity::Mapped { uid: 0, gid: 0 }).options();
        assert_eq!(bytes.last(), Some(&0));
        assert!(bytes.starts_with(b"--die-with-parent\0--new-session\0"));
    }
}
