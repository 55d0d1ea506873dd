//! Debian's `docker-registry` on a port of this machine, and images for it that are made from nothing.

mod odd_layers;
mod tokens;

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

pub use self::odd_layers::odd_layers;
pub use self::tokens::{PASSWORD, USER};

use self::tokens::TokenServer;
use crate::free_port::free_port;

/// Looks for the port of a starting registry, and the pause between them.
const MAX_POLLS: u32 = 1000;
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Running registry; ends with the value.
#[derive(Debug)]
pub struct LocalRegistry {
    directory: TempDir,
    address: SocketAddr,
    child: Child,
    tokens: Option<TokenServer>,
}

impl LocalRegistry {
    /// Starts an empty registry without authentication. Panics if the program is missing: `hack/install` installs it.
    pub fn start() -> Self {
        Self::start_with(loopback(), |_| None)
    }

    /// Starts an empty registry without authentication at this address.
    pub fn start_at(address: SocketAddr) -> Self {
        Self::start_with(address, |_| None)
    }

    /// Starts an empty registry that serves nothing without a token, which [`USER`] gets.
    pub fn with_tokens() -> Self {
        Self::start_with(loopback(), |directory| Some(TokenServer::start(directory)))
    }

    fn start_with(address: SocketAddr, tokens: impl FnOnce(&Path) -> Option<TokenServer>) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let tokens = tokens(directory.path());
        let child = serve(directory.path(), address, tokens.as_ref());
        Self {
            child: child.expect("docker-registry, of hack/install"),
            directory,
            address,
            tokens,
        }
    }

    /// Tokens that were given out.
    pub fn issued_tokens(&self) -> Vec<String> {
        self.tokens
            .as_ref()
            .map_or_else(Vec::new, TokenServer::issued)
    }

    /// `HOST:PORT`.
    pub fn host(&self) -> String {
        self.address.to_string()
    }

    /// Directory with everything that was pushed.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Ends the process; the content stays for [`Self::restart`].
    pub fn stop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    pub fn restart(&mut self) {
        self.stop();
        let child = serve(self.directory.path(), self.address, self.tokens.as_ref());
        self.child = child.expect("docker-registry");
    }

    /// Adds the image of an OCI layout under a name without host; the reference.
    pub fn push(&self, layout: &Path, name: &str) -> String {
        self.copy(&format!("oci:{}", layout.display()), name)
    }

    /// Adds the image of an archive as `hack/image` and `docker save` write them; the reference.
    pub fn push_archive(&self, archive: &Path, name: &str) -> String {
        self.copy(&format!("docker-archive:{}", archive.display()), name)
    }

    fn copy(&self, source: &str, name: &str) -> String {
        let reference = format!("{}/{name}", self.host());
        let output = Command::new("skopeo")
            .args(["copy", "--dest-tls-verify=false", "--preserve-digests"])
            .args(
                self.tokens
                    .iter()
                    .map(|_| format!("--dest-creds={USER}:{PASSWORD}")),
            )
            .args([source, &format!("docker://{reference}")])
            .output()
            .expect("skopeo, of hack/install");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "skopeo: {errors}");
        reference
    }

    /// Tags of a repository that has had some.
    pub fn tags(&self, repository: &str) -> Vec<String> {
        let name = format!("docker://{}/{repository}", self.host());
        let output = Command::new("skopeo")
            .args(["list-tags", "--tls-verify=false"])
            .args(
                self.tokens
                    .iter()
                    .map(|_| format!("--creds={USER}:{PASSWORD}")),
            )
            .arg(&name)
            .output()
            .expect("skopeo, of hack/install");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "skopeo: {errors}");
        let listed: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        serde_json::from_value(listed["Tags"].clone()).expect("tags")
    }
}

impl Drop for LocalRegistry {
    fn drop(&mut self) {
        self.stop();
    }
}

fn loopback() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], free_port()))
}

fn serve(directory: &Path, address: SocketAddr, tokens: Option<&TokenServer>) -> io::Result<Child> {
    let mut config = json!({
        "version": "0.1",
        "storage": {
            "filesystem": {"rootdirectory": directory.join("data")}, "delete": {"enabled": true},
        },
        "http": {"addr": address.to_string()},
    });
    if let Some(tokens) = tokens {
        config["auth"] = tokens.auth.clone();
    }
    let path = directory.join("config.yml");
    fs::write(&path, config.to_string())?;
    let mut child = Command::new("docker-registry")
        .arg("serve")
        .arg(&path)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    for _ in 0..MAX_POLLS {
        if TcpStream::connect(address).is_ok() {
            return Ok(child);
        }
        if child.try_wait()?.is_some() {
            break;
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    let _ = child.kill();
    Err(io::Error::other("docker-registry does not listen"))
}

/// OCI layout of an image with one layer: `root`, as `tar` packs it with root as its owner.
/// `config` is the `config` of the image's configuration.
pub fn image_of(root: &Path, config: &Value) -> TempDir {
    image_of_layers(&[layer_of(root)], config)
}

/// Archive of `root` with root as the owner of all files.
pub fn layer_of(root: &Path) -> Vec<u8> {
    let packed = Command::new("tar")
        .args(["--owner=0", "--group=0", "--sort=name", "-C"])
        .arg(root)
        .args(["-c", "."])
        .output()
        .expect("tar");
    packed.stdout
}

/// OCI layout of an image with these layers, each a tar archive.
pub fn image_of_layers(layers: &[Vec<u8>], config: &Value) -> TempDir {
    let layout = tempfile::tempdir().expect("a directory");
    let blobs = layout.path().join("blobs/sha256");
    fs::create_dir_all(&blobs).expect("a directory");
    let add = |content: &[u8], media_type: &str| {
        let digest = ring::digest::digest(&ring::digest::SHA256, content);
        let hex = data_encoding::HEXLOWER.encode(digest.as_ref());
        fs::write(blobs.join(&hex), content).expect("a blob");
        json!({"mediaType": media_type, "digest": format!("sha256:{hex}"), "size": content.len()})
    };
    let kind = |kind: &str| format!("application/vnd.oci.image.{kind}");
    let layers = layers.iter().map(|layer| add(layer, &kind("layer.v1.tar")));
    let layers: Vec<Value> = layers.collect();
    let diff_ids: Vec<&Value> = layers.iter().map(|layer| &layer["digest"]).collect();
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let config = json!({"architecture": architecture, "os": "linux", "config": config,
        "rootfs": {"type": "layers", "diff_ids": diff_ids}});
    let config = add(config.to_string().as_bytes(), &kind("config.v1+json"));
    let manifest_type = kind("manifest.v1+json");
    let manifest = json!({"schemaVersion": 2, "mediaType": manifest_type, "config": config,
        "layers": layers});
    let manifest = add(manifest.to_string().as_bytes(), &manifest_type);
    let write = |name: &str, document: Value| {
        fs::write(layout.path().join(name), document.to_string()).expect("a file");
    };
    write("oci-layout", json!({"imageLayoutVersion": "1.0.0"}));
    write(
        "index.json",
        json!({"schemaVersion": 2, "manifests": [manifest]}),
    );
    layout
}

/// Root with busybox, bash, and the user `web` (33, group 34).
pub fn small_root() -> TempDir {
    let root = tempfile::tempdir().expect("a directory");
    let path = |name: &str| root.path().join(name);
    for directory in ["bin", "etc", "tmp", "srv"] {
        fs::create_dir(path(directory)).expect("a directory");
    }
    let open = fs::Permissions::from_mode(0o1777);
    fs::set_permissions(path("tmp"), open).expect("a mode");
    add_program(root.path(), "/bin/bash");
    fs::copy("/bin/busybox", path("bin/busybox")).expect("busybox-static, of hack/install");
    for program in [
        "sh", "cat", "echo", "id", "ls", "mkdir", "rm", "sleep", "stat", "touch",
    ] {
        symlink("busybox", path("bin").join(program)).expect("a link");
    }
    let passwd = "root:x:0:0::/root:/bin/sh\nweb:x:33:34::/srv:/bin/sh\n";
    fs::write(path("etc/passwd"), passwd).expect("a file");
    fs::write(path("etc/group"), "root:x:0:\nweb:x:34:\nlog:x:4:web\n").expect("a file");
    root
}

/// Adds a program of this machine with its libraries to a root.
pub fn add_program(root: &Path, program: &str) {
    for file in std::iter::once(program.to_owned()).chain(libraries(program)) {
        let copy = root.join(file.trim_start_matches('/'));
        fs::create_dir_all(copy.parent().expect("a directory above")).expect("a directory");
        fs::copy(&file, copy).expect("a copy");
    }
}

/// Paths of the libraries that a program loads.
fn libraries(program: &str) -> Vec<String> {
    let output = Command::new("ldd").arg(program).output().expect("ldd");
    let text = String::from_utf8(output.stdout).expect("text");
    let words = text.split_whitespace().filter(|word| word.starts_with('/'));
    words.map(str::to_owned).collect()
}
