//! An image store without space: on a small file system in memory, which only standalone sees.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use serde_json::json;
use tests::binaries::{binary, is_root_or_skips};
use tests::registry::{LocalRegistry, image_of, small_root};
use tests::standalone::Standalone;

use crate::fixture::Fixture;

/// Size of the store, and of the file of the large image.
const STORE: &str = "100m";
const LARGE: usize = 20 << 20;

/// Starts standalone with its image store on a file system of its own, which ends with it.
fn start(state: &Path, registry: &LocalRegistry) -> Standalone {
    let program = state.join("start-with-store");
    let script = format!(
        "#!/bin/sh\nexec unshare --mount --propagation private sh -c 'mkdir -p \"$0\" && \
         mount -t tmpfs -o mode=700,size={STORE} none \"$0\" && exec {} \"$@\"' {} \"$@\"\n",
        binary("sandbox-standalone").display(),
        state.join("node/images").display(),
    );
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let flags = ["--insecure-registries", &registry.host()];
    Standalone::start_binary(&program, state, &flags)
}

impl Fixture {
    /// Runs a script that sees the image store, its first argument.
    fn beside_store(&self, script: &str) -> String {
        let namespace = format!("--mount=/proc/{}/ns/mnt", self.standalone.id());
        let mut command = Command::new("nsenter");
        command.args([&namespace, "sh", "-c", script, "sh"]);
        command.arg(self.state.path().join("node/images"));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{script}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Kilobytes that are free in the store.
    fn free(&self) -> u64 {
        let text = self.beside_store("df --output=avail -k $1 | tail -1");
        text.trim().parse().unwrap()
    }

    /// Applies a Pod, of which the pull must fail by lack of space and give the space back.
    fn assert_full(&self, pod: &str, image: &str) {
        let free = self.free();
        self.pod(pod, image, &json!({"command": ["/bin/sleep", "1000"]}));
        let state = "{.status.containerStatuses[0].state.waiting";
        let reason = format!("jsonpath={state}.reason}}");
        let failed = format!("wait --for={reason}=ErrImagePull pod/{pod} --timeout=60s");
        self.kubectl(&failed);
        let message = self.kubectl(&format!("get pod {pod} -o jsonpath={state}.message}}"));
        let store = self.state.path().join("node/images");
        let begin = format!(
            "failed to pull image {image:?}: no space left in the image store {}: ",
            store.display()
        );
        let megabytes = message.strip_prefix(&begin).expect(&message);
        let end = " MB are free; `images prune` removes unused images";
        let megabytes = megabytes.strip_suffix(end).expect(&message);
        let said: u64 = megabytes.parse().unwrap();
        assert!(
            said.abs_diff(free * 1024 / 1_000_000) <= 1,
            "{said} of {free} KiB"
        );
        let query = format!("get events --field-selector involvedObject.name={pod} -o");
        let events = self.kubectl(&format!("{query} jsonpath={{.items[*].message}}"));
        assert!(events.contains(&message), "{events}");
        assert!(free.saturating_sub(self.free()) < 64, "{free}");
        let left =
            self.beside_store("cd $1 && find blobs staging -name '*.part' -o -type f -size +0");
        assert!(
            !left.contains("part") && !left.contains("staging"),
            "{left}"
        );
    }
}

/// Some content that does not compress.
fn large_file() -> Vec<u8> {
    let mut content = vec![0; LARGE];
    let random = ring::rand::SystemRandom::new();
    ring::rand::SecureRandom::fill(&random, &mut content).unwrap();
    content
}

#[test]
fn full_disk_during_a_pull_is_said_given_back_and_overcome() {
    if !is_root_or_skips() {
        return;
    }
    let registry = LocalRegistry::start();
    let root = small_root();
    let small = registry.push(image_of(root.path(), &json!({})).path(), "small:1");
    fs::write(root.path().join("large"), large_file()).unwrap();
    let large = registry.push(image_of(root.path(), &json!({})).path(), "large:1");
    let state = tempfile::tempdir().unwrap();
    let standalone = start(state.path(), &registry);
    let fixture = Fixture { standalone, state };
    let sleep = json!({"command": ["/bin/sleep", "1000"]});
    let ready = |pod: &str| {
        fixture.kubectl(&format!(
            "wait --for=condition=Ready pod/{pod} --timeout=60s"
        ));
    };
    fixture.pod("before", &small, &sleep);
    ready("before");
    // Room for half of the blob of the large image, or for the blob and half of its files.
    for (pod, room) in [("blob", LARGE / 2), ("large", LARGE * 3 / 2)] {
        fixture.beside_store("rm -f $1/filler");
        let fill = fixture.free() - (room / 1024 + 4096) as u64;
        fixture.beside_store(&format!("fallocate -l {fill}K $1/filler"));
        fixture.assert_full(pod, &large);
    }
    fixture.kubectl("delete pod blob --timeout=60s");
    fixture.pod("meanwhile", &small, &sleep);
    ready("meanwhile");

    fixture.beside_store("rm $1/filler");
    ready("large");
    let sum = |file: &Path| {
        let output = Command::new("sha256sum").arg(file).output().unwrap();
        String::from_utf8(output.stdout).unwrap()[..64].to_owned()
    };
    let found = fixture.kubectl("exec large -- /bin/busybox sha256sum /large");
    assert_eq!(found[..64], sum(&root.path().join("large")));
    let found = fixture.kubectl("exec large -- /bin/busybox sha256sum /bin/bash");
    assert_eq!(found[..64], sum(Path::new("/bin/bash")));
}
