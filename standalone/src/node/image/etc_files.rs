//! Generated files of `/etc`. The host's files are not shared, because they contain its users,
//! hosts and secrets.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use super::{OPENHANDS, PodIdentity};

/// Users of the host root: name, number, home, shell. Groups have the same names and numbers.
const USERS: [(&str, u32, &str, &str); 6] = [
    ("root", 0, "/root", "/bin/bash"),
    ("daemon", 1, "/usr/sbin", "/usr/sbin/nologin"),
    ("bin", 2, "/bin", "/usr/sbin/nologin"),
    ("openhands", OPENHANDS, "/home/openhands", "/bin/bash"),
    ("sandbox", 65532, "/home/sandbox", "/bin/bash"),
    ("nobody", 65534, "/nonexistent", "/usr/sbin/nologin"),
];

const NSSWITCH: &str = "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\n\
    networks: files\nprotocols: files\nservices: files\n";

/// Writes the user database, which always contains the node's own user.
pub(super) fn users(etc: &Path, pod_identity: &PodIdentity) -> io::Result<()> {
    let own = pod_identity.node;
    let mut users: Vec<(&str, u32, u32, &str, &str)> = USERS
        .iter()
        .map(|(name, id, home, shell)| (*name, *id, *id, *home, *shell))
        .collect();
    if USERS.iter().all(|user| user.1 != own.uid) {
        users.push(("user", own.uid, own.gid, "/home/openhands", "/bin/bash"));
    }
    let mut passwd = fs::File::create(etc.join("passwd"))?;
    let mut group = fs::File::create(etc.join("group"))?;
    group.write_all(b"tty:x:5:\nsudo:x:27:\nusers:x:100:\n")?;
    for (name, uid, gid, home, shell) in users {
        writeln!(passwd, "{name}:x:{uid}:{gid}:{name}:{home}:{shell}")?;
        writeln!(group, "{name}:x:{gid}:")?;
    }
    fs::write(etc.join("nsswitch.conf"), NSSWITCH)
}

/// Writes the files that depend on the Pod. Replaces existing files without following links: `etc`
/// may come from an image, and a link could point into the host.
pub(super) fn pod(etc: &Path, pod_identity: &PodIdentity) -> io::Result<()> {
    let hosts = format!(
        "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n{} {}\n",
        pod_identity.address, pod_identity.hostname
    );
    replace(&etc.join("hosts"), &hosts)?;
    let hostname = format!("{}\n", pod_identity.hostname);
    replace(&etc.join("hostname"), &hostname)?;
    replace(&etc.join("resolv.conf"), &pod_identity.resolv_conf)
}

fn replace(path: &Path, text: &str) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o644)
        .open(path)?;
    file.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::node_user::NodeUser;

    fn pod_identity(uid: u32) -> PodIdentity {
        PodIdentity {
            hostname: "pod".into(),
            address: "10.0.0.1".into(),
            resolv_conf: "nameserver 9.9.9.9\n".into(),
            node: NodeUser { uid, gid: uid },
        }
    }

    #[test]
    fn pod_files_replace_links() {
        let outside = tempfile::NamedTempFile::new().unwrap();
        let etc = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(outside.path(), etc.path().join("hosts")).unwrap();
        pod(etc.path(), &pod_identity(0)).unwrap();
        assert_eq!(fs::read_to_string(outside.path()).unwrap(), "");
        let hosts = fs::read_to_string(etc.path().join("hosts")).unwrap();
        assert!(hosts.ends_with("10.0.0.1 pod\n"));
    }

    #[test]
    fn passwd_contains_node_user() {
        let etc = tempfile::tempdir().unwrap();
        users(etc.path(), &pod_identity(4242)).unwrap();
        let passwd = fs::read_to_string(etc.path().join("passwd")).unwrap();
        assert!(passwd.contains("user:x:4242:4242:"));
        assert!(passwd.contains("openhands:x:1000:1000:openhands:/home/openhands:"));
    }
}
